"""Ticks that are recorded once and replayed on the same memory sample what the plain decoder samples."""

import asyncio
import logging

import numpy as np
import pytest
import torch

from isocost.local import graphs, static
from isocost.local.static import bucket
from isocost.types import Place, Sampling, Stop
from local_world import SETTINGS, batch, model, pull, say, start, sums, world
from replayed import Recorder

PROMPTS = ("1+2=", "47+38=", "1" * 17, "9=" * 20, "5")
LIMITS = (4, 18, 9, 24, 12)


def recorded(source=None, **settings):
    """A world whose ticks are recorded and replayed, and what counts them."""
    w = world(source or model(), kernels="graphs", **settings)
    w.engine.cache._capture = recorder = Recorder()
    return w, recorder


def bits(said):
    return [(s.tokens.tobytes(), s.logp.tobytes(), s.version.tobytes(), s.stop, len(s.kept)) for s in said]


async def company(w, *, apart=2, stop=()):
    """Groups of different prompts, lengths and sampling, which arrive one after the other."""
    async def late(i):
        for _ in range(apart * i):
            await asyncio.sleep(0)
        return await say(w, PROMPTS[i], range(3 * i + 1), i, tokens=LIMITS[i], sampling=SETTINGS[i], stop=stop)

    return [x for some in await asyncio.gather(*(late(i) for i in (3, 0, 4, 1, 2))) for x in bits(some)]


@pytest.mark.parametrize("stop, settings", [((), {"max_slots": 5}), (("44",), {})], ids=["5 slots", "stop strings"])
def test_replayed_ticks_sample_what_the_plain_decoder_samples(stop, settings):
    """Rows that end and are refilled, prompts of different length, groups, truncation, stop strings."""
    source = model()
    w, recorder = recorded(source, **settings)
    plain = world(source, kernels="torch", **settings)
    assert asyncio.run(company(w, stop=stop)) == asyncio.run(company(plain, stop=stop))
    assert recorder.replays > 2 * recorder.captures > 0
    assert w.meter.of().counts()["rollouts"] == plain.meter.of().counts()["rollouts"]


def test_a_size_is_captured_once_and_reads_its_inputs_where_they_were():
    """Whole waves of equal shapes: a load of new weights and other sampling capture nothing again."""
    source = model(sharp=1.0)
    w, recorder = recorded(source)
    cache, plain = w.engine.cache, world(source, kernels="torch")
    asyncio.run(say(w, "1+2=", range(24), tokens=24))
    sizes = set(cache._ticks)
    held = (cache._last, cache._length, cache._left, cache._temperature, cache._u, cache._at, cache._ids, cache._cache,
            *cache.decoder.parameters())
    at = [x.data_ptr() for x in held]
    assert recorder.captures == len(sizes) == cache.captured and {s.draws for s in sizes} == {True}
    assert {s.keys for s in sizes} == {64} and {s.rows for s in sizes} <= {16, 24}
    for x in (w, plain):
        x.learner.update(batch(x, sums(3), 8, tokens=4), pull, lr=3e-3)
        asyncio.run(x.engine.load(x.learner.weights()))
    captures = recorder.captures
    for wave, sampling in enumerate((Sampling(), Sampling(0.7)), start=1):
        one, other = (asyncio.run(say(x, "1+2=", range(24), wave=wave, tokens=24, sampling=sampling))
                      for x in (w, plain))
        assert bits(one) == bits(other) and one[0].version[0] == 1
    assert at == [x.data_ptr() for x in held] and recorder.captures == captures


def test_loading_and_halting_in_mid_flight_do_what_they_do_without_graphs():
    source, other = model(0, sharp=1.5), model(1, sharp=1.5)

    async def go(w):
        w.engine.burst = 1          # the same ticks before each event
        slow = asyncio.ensure_future(say(w, "1+2=", range(6), 0, tokens=40))
        halted = asyncio.ensure_future(say(w, "3+4=", range(5), 0, tokens=40, wave=1))
        for _ in range(5):
            await asyncio.sleep(0)
        await w.engine.load(other.weights)
        for _ in range(3):
            await asyncio.sleep(0)
        w.engine.halt(Place(7, 1, 0))
        return bits(await halted), bits(await slow)

    (halted, slow), plain = asyncio.run(go(recorded(source)[0])), asyncio.run(go(world(source, kernels="torch")))
    assert (halted, slow) == plain
    assert Stop.CANCELLED in {s[3] for s in halted} and any(len(set(np.frombuffer(s[2], np.int64))) == 2 for s in slow)


def test_a_text_that_goes_on_is_read_as_a_whole(monkeypatch):
    monkeypatch.setattr(static, "CHUNK", 1)         # fewer ticks than passes before a capture
    source, found = model(), []
    for w in (recorded(source)[0], world(source, kernels="torch")):
        (first,) = asyncio.run(say(w, "47+38=", [2], tokens=12))
        text = start(w, "47+38=").wrote(first).cut(11)
        more = asyncio.run(w.engine.generate(text, [2, 3], place=Place(7, 0, 0), turn=0, max_tokens=8))
        found.append(bits([first, *more]))
        assert w.about.kernels == "torch" or not w.engine.cache.why
    assert found[0] == found[1]


def test_where_a_capture_fails_decoding_goes_on_and_says_so_once(caplog):
    source = model()
    w = world(source, kernels="graphs")

    def fails(work):
        work()                      # as a warm-up would, which changes the inputs
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore lines")

    w.engine.cache._capture = fails
    with caplog.at_level(logging.WARNING, "isocost"):
        said = asyncio.run(company(w))
    assert said == asyncio.run(company(world(source, kernels="torch")))
    (line,) = [r.getMessage() for r in caplog.records]
    assert "could not be captured (RuntimeError: CUDA error: operation not permitted" in line and "more" not in line
    assert w.engine.cache.captured == 0 and w.engine.cache.why.startswith("RuntimeError")


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_ticks_of_one_row_are_right_too(dtype):
    """A GPU's sizes begin at one row, where a processor's products round otherwise."""
    source = model(max_len=600)
    w, _ = recorded(source, dtype=dtype)
    w.engine.cache.least_rows = 1
    plain = world(source, kernels="torch", dtype=dtype)
    sizes = set()
    for prompt, rows in (("1" * 300, 1), ("47+38=", 3), ("5", 7)):
        one, other = (asyncio.run(say(x, prompt, range(rows), tokens=24)) for x in (w, plain))
        sizes |= set(w.engine.cache._ticks)
        if dtype == "fp32":
            assert [s.tokens.tolist() for s in one] == [s.tokens.tolist() for s in other]
        for a, b in zip(one, other, strict=True):
            same = np.cumprod(a.tokens[:24] == b.tokens[:24]).astype(bool) if len(a.tokens) == len(b.tokens) else [0]
            # Logits near 10 in float32, whose spacing is 1e-6, after sums in another order.
            np.testing.assert_allclose(a.logp[: sum(same)], b.logp[: sum(same)], atol=2e-5 if dtype == "fp32" else 0.1)
    assert {s.rows for s in sizes} >= {1, 4}


def test_memory_grows_in_steps_and_within_its_limit():
    w, recorder = recorded(model(max_len=600))
    cache = w.engine.cache
    one = cache.bytes(64)
    cache.memory = 40 * one
    asyncio.run(say(w, "5", range(17), tokens=8))
    assert cache._cache.shape[2] == 24 and cache._cache.shape[4] == 64
    few = recorder.captures
    asyncio.run(say(w, "5", range(17), tokens=8))
    assert recorder.captures == few
    asyncio.run(say(w, "1" * 200, range(2), tokens=50))         # 251 tokens a row: 16 rows would not fit into the limit
    assert cache._cache.shape[4] == 256 and cache._cache.nbytes == 16 * cache.bytes(256) and recorder.captures > few
    asyncio.run(say(w, "5", range(20), tokens=8))               # nor would 20 rows as long as those
    assert cache._cache.shape[4] == 64 and cache._cache.nbytes <= cache.memory


def test_sizes_by_hand(monkeypatch):
    assert [bucket(n) for n in (1, 2, 3, 5, 9, 16, 17, 24, 25, 33, 48, 49, 65, 257, 385)] == [
        1, 2, 4, 8, 16, 16, 24, 24, 32, 48, 48, 64, 96, 384, 512]
    monkeypatch.setattr(static, "MOST", 1)
    w, recorder = recorded(model(sharp=1.0))
    for rows in (30, 4, 30):
        asyncio.run(say(w, "1+2=", range(rows), tokens=3))
    assert recorder.captures == 3 and len(w.engine.cache._ticks) == 1


def test_on_a_processor_work_is_not_captured():
    work = torch.zeros
    assert graphs.uncaptured(work) is work
    assert world(kernels="graphs").engine.cache._capture is graphs.uncaptured
    assert world(kernels="torch").about.kernels == "torch" and world(kernels="graphs").about.kernels == "graphs"
