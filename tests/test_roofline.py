"""Operations and bytes worked by hand, held to torch's own counter on the real decoder; peaks that are sane."""

from statistics import median

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench import roofline
from bench.roofline import Peaks, Work, bound, decode_work, floor, parameters, prefill_work, train_work
from isocost.local.decoder import Config, Decoder

# body: 3 layers x 8 inputs x ((8 + 2*4) + 8 + 3*12) = 3*8*60 = 1440; head 20*8 = 160
SMALL = Config(vocab=20, hidden=8, layers=3, heads=4, kv_heads=2, head_dim=2, mlp=12, max_len=64)
SHAPES = [
    SMALL,
    Config(vocab=50, hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, mlp=48, max_len=64, tied=False),
    Config(vocab=50, hidden=32, layers=2, heads=4, kv_heads=4, head_dim=16, mlp=48, max_len=64, qkv_bias=True),
    Config(vocab=33, hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, mlp=20, max_len=64, qk_norm=True),
]


def test_one_decoded_token_by_hand():
    # 4 rows, 10 keys before: each 2*1440 + 2*160 for products, 4*3*(4*2)*11 for attention
    work = decode_work(SMALL, 4, 10)
    assert work.flops == 4 * (2880 + 320 + 1056)
    # a token's keys and values: 2*3 layers*2 heads*2 numbers*4 bytes = 96; 40 are read and 4 written
    assert work.bytes == 4 * (1440 + 160) + 44 * 96


def test_shared_prompts_are_read_once_for_their_group():
    # 8 rows in groups of 4: 6 of 10 keys are shared, so 2 x 6 + 8 x 4 are read and 8 written
    work = decode_work(SMALL, 8, 10, prompt=6, group=4)
    assert work.bytes == 6400 + (12 + 32 + 8) * 96
    assert work.flops == decode_work(SMALL, 8, 10).flops


def test_bf16_halves_the_layers_and_the_cache_and_not_the_head():
    assert decode_work(SMALL, 4, 10, body=2).bytes == 2 * 1440 + 4 * 160 + 44 * 48
    assert decode_work(SMALL, 4, 10, body=8).bytes == 8 * 1440 + 8 * 160 + 44 * 192


def test_reading_a_start_by_hand():
    # 5 tokens look at 1..5 keys, 3 on average; logits for the last
    work = prefill_work(SMALL, 5)
    assert work.flops == 5 * (2880 + 4 * 3 * 8 * 3) + 320
    assert work.bytes == 6400 + 5 * 96
    assert prefill_work(SMALL, 5, predicted=0).bytes == 5760 + 5 * 96
    # two rows of 5 are not one row of 10
    assert prefill_work(SMALL, 10, context=3, predicted=2).flops == 2 * work.flops


def test_one_update_by_hand():
    # norms: 3 layers x 2 x 8, and the last 8; the head is the embedding
    assert parameters(SMALL) == 1440 + 160 + 48 + 8
    work = train_work(SMALL, 10, context=3, predicted=4)
    assert work.flops == 3 * (10 * (2880 + 288) + 4 * 320)
    # weights twice; activations 3*(16 + 16 + 8 + 36) a token and the head's 8, out and in; gradients 2, update 7
    numbers = parameters(SMALL)
    assert work.bytes == 2 * 6400 + 2 * (10 * 228 * 4 + 4 * 8 * 4) + 4 * numbers * 2 + 28 * numbers
    more = train_work(SMALL, 10, context=3, predicted=4, parts=3)
    assert more.flops == work.flops
    assert more.bytes - work.bytes == 4 * 6400 + 4 * 4 * numbers


@pytest.mark.parametrize("config", SHAPES)
def test_parameters_are_those_of_the_decoder(config):
    assert parameters(config) == sum(p.numel() for p in Decoder(config).parameters())


def plain(q, k, v):
    """Attention of (N, T, H, D) by two products, each key looked at by every query."""
    groups = q.shape[-2] // k.shape[-2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(groups, -2), v.repeat_interleave(groups, -2)))
    return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2)


@pytest.mark.parametrize("config", SHAPES)
def test_operations_are_those_torch_counts_on_the_decoder(config):
    """Every query looks at all T keys here, so the context is T."""
    N, T = 3, 7
    decoder = Decoder.from_config(config, torch.Generator().manual_seed(0))
    tokens = torch.randint(config.vocab, (N, T), generator=torch.Generator().manual_seed(1))
    with FlopCounterMode(display=False) as forward:
        logits = decoder.logits(decoder.run(tokens, decoder.turns[:T], lambda layer: plain))
    assert forward.get_total_flops() == prefill_work(config, N * T, context=T, predicted=N * T).flops
    with FlopCounterMode(display=False) as both:
        logits = decoder.logits(decoder.run(tokens, decoder.turns[:T], lambda layer: plain))
        logits.sum().backward()
    assert both.get_total_flops() == train_work(config, N * T, context=T).flops


@pytest.mark.parametrize("config", SHAPES)
def test_operations_of_one_token_on_a_cache(config):
    rows, before = 5, 9
    decoder = Decoder.from_config(config, torch.Generator().manual_seed(0))

    def cached(layer):
        def attend(q, k, v):
            past = torch.zeros(rows, before, config.kv_heads, config.head_dim)
            keys, values = (torch.cat((past, x[:, None]), 1) for x in (k, v))
            return plain(q[:, None], keys, values)[:, 0]

        return attend

    with FlopCounterMode(display=False) as counted, torch.no_grad():
        decoder.logits(decoder.run(torch.zeros(rows, dtype=torch.long), decoder.turns[before][None], cached))
    assert counted.get_total_flops() == decode_work(config, rows, before).flops


def test_decoding_token_by_token_adds_up_to_reading_the_row():
    T = 12
    total = sum(decode_work(SMALL, 1, t).flops for t in range(T))
    assert total == pytest.approx(prefill_work(SMALL, T, predicted=T).flops)


def test_the_floor_is_the_longer_of_arithmetic_and_memory():
    peaks = Peaks({"fp32": 100.0, "bf16": 200.0}, 10.0, 1)
    assert floor(Work(1000, 10), peaks, "fp32") == 10
    assert floor(Work(1000, 10), peaks, "bf16") == 5
    assert floor(Work(1000, 200), peaks, "fp32") == 20
    assert bound(Work(1000, 10), peaks, "fp32") == "arithmetic"
    assert bound(Work(1000, 200), peaks, "fp32") == "memory"
    assert (Work(1, 2) + Work(3, 4)) * 2 == Work(8, 12)


def test_what_fits_a_cache_is_read_at_the_caches_speed():
    peaks = Peaks({"fp32": 1e9}, 10.0, 1, ((100.0, 40.0), (10000.0, 10.0)))
    assert peaks.bandwidth(1) == peaks.bandwidth(100) == 40
    assert peaks.bandwidth(1000) == pytest.approx(25)
    assert peaks.bandwidth(1e9) == 10
    assert floor(Work(0, 100), peaks, "fp32") == pytest.approx(2.5)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_measured_peaks_are_a_machines(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    before = torch.get_num_threads()
    peaks = roofline.measure(1, device, 0.5)
    assert torch.get_num_threads() == before
    assert peaks.threads == 1 and peaks.flops.keys() == {"fp32", "bf16"}
    assert all(1e8 < x < 1e16 for x in peaks.flops.values())
    assert 1e8 < peaks.bytes < 1e14
    rates = [rate for _, rate in peaks.reads]
    assert rates == sorted(rates, reverse=True) and rates[-1] == peaks.bytes


@pytest.mark.slow
def test_no_real_call_beats_its_floor():
    """A matrix product of the decoder's own, measured, takes no less than counted over peak.

    It needs a clock, so it is marked slow: a busy machine can make it fail. It measures in pairs, peak and call one
    after the other, and takes their median.
    """
    config = Config(vocab=2048, hidden=256, layers=2, heads=4, kv_heads=4, head_dim=64, mlp=1024, max_len=256)
    decoder = Decoder.from_config(config, torch.Generator().manual_seed(0))
    tokens, work = torch.zeros((4, 128), dtype=torch.long), prefill_work(config, 512, context=64.5, predicted=512)
    shares = []
    for _ in range(7):
        peaks = roofline.measure(1, "cpu", 0.1)
        with torch.inference_mode():
            took = roofline._seconds(lambda: decoder.logits(decoder(tokens)), torch.device("cpu"), 0.1)
        shares.append(floor(work, peaks, "fp32") / took)
    assert 0.05 < median(shares) < 1.1
