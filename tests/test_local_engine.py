"""The engine writes the same whatever else is in flight, charges what it wrote, and agrees with the learner."""

import asyncio
import itertools
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import local_world
from isocost import chance, meter
from isocost.errors import UserError
from isocost.local.decoder import Decoder
from isocost.local.native import Kernel
from isocost.local.sampling import draw, truncate
from isocost.meter import Meter
from isocost.types import Place, Role, Sampling, Stop
from local_world import (
    LONG,
    SETTINGS,
    batch,
    lone_and_together,
    model,
    promised,
    pull,
    say,
    start,
    sums,
    teach,
    world,
)


@pytest.fixture(autouse=True, params=["native", "torch", pytest.param("graphs", marks=pytest.mark.slow)])
def kernels(request, monkeypatch):
    """Every test here holds for all ways to compute."""
    monkeypatch.setattr(local_world, "KERNELS", request.param)
    monkeypatch.setattr("isocost.local.static.CHUNK", 1)        # ticks end with a request, as those of the others
    return request.param


def same(a, b) -> bool:
    return a.tokens.tobytes() == b.tokens.tobytes() and a.logp.tobytes() == b.logp.tobytes() and a.stop is b.stop


def test_sampler_and_learner_agree_after_updates_within_the_learners_own_rounding():
    w = world("tiny")
    teach(w, 4, lr=2e-3)
    exact = world(w.about.model.but(weights=w.learner.weights()), dtype="fp64").learner
    for sampling in SETTINGS:
        b = batch(w, sums(24, 9), 8, sampling=sampling)
        ours, true = w.learner.score(b).logp, exact.score(b).logp
        gap, own = (ours - b.logp)[b.mask].abs(), float((ours - true)[b.mask].abs().max())
        print(f"{sampling}: mean {gap.mean():.1e} max {gap.max():.1e}; fp32 against fp64 {own:.1e}")
        assert gap.mean() <= 1e-6
        assert gap.max() <= 1e-5 / min(sampling.temperature, 1.0) + 4 * own


@pytest.mark.parametrize("fault", ["shift", "temperature", "stale", "position", "kept"])
def test_planted_faults_exceed_the_bar_a_hundred_times(fault):
    w = world("tiny")
    sampling = Sampling(1.3, 0.8, 0) if fault == "kept" else Sampling(0.5)
    b = batch(w, sums(24, 9), 8, sampling=sampling)
    if fault == "stale":
        w.learner.update(b, pull, lr=5e-3)
    if fault == "temperature":
        b = b.but(temperature=torch.ones_like(b.temperature))
    if fault == "kept":
        b = b.but(kept=())
    if fault == "position":
        w.learner.decoder.turns[6] = w.learner.decoder.turns[7]
        if w.learner._kernel is not None:
            elsewhere = Decoder(replace(w.learner.config, rope_theta=9_000.0))
            w.learner._kernel, w.learner._loaded = Kernel(elsewhere, torch.float32, 1), -1
    seen = b.logp.roll(1, 1) if fault == "shift" else b.logp
    gap = (w.learner.score(b).logp - seen)[b.mask].abs()
    assert gap.max() > 100 * 1e-5 / min(sampling.temperature, 1.0)
    assert gap.mean() > 100 * 1e-6


@pytest.mark.parametrize("heads, kv_heads, head_dim", [(4, 2, 32), (4, 4, 16), (1, 1, 16)])
def test_what_else_is_in_flight_cannot_change_a_byte(heads, kv_heads, head_dim):
    source = model(heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    promised(world(source).about.batch_dependent)
    prompts = ["1+2=", "47+38=", "1" * 17, "9=" * 20, "5"]
    limits = [4, 30, 9, 40, 20]

    async def company(apart):       # ticks between arrivals
        w = world(source, max_slots=37)
        async def late(i):
            for _ in range(apart * i):
                await asyncio.sleep(0)
            return await say(w, prompts[i], range(5, 5 + 3 * i + 1), i, tokens=limits[i], sampling=SETTINGS[i])
        return await asyncio.gather(*(late(i) for i in (3, 0, 4, 1, 2)))

    companies = [dict(zip((3, 0, 4, 1, 2), asyncio.run(company(apart)), strict=True)) for apart in (0, 3)]
    for i, said in companies[0].items():
        for j in range(len(said)):
            w = world(source)
            (alone,) = asyncio.run(say(w, prompts[i], [5 + j], i, tokens=limits[i], sampling=SETTINGS[i]))
            for one in (together[i][j] for together in companies):
                assert same(one, alone), (i, j)
                assert [k.tolist() for k in one.kept] == [k.tolist() for k in alone.kept]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_rows_of_several_blocks_of_keys_are_the_same_in_company_and_are_right(dtype, kernels):
    """Where keys are many, torch sums them in several products."""
    source = model(heads=4, kv_heads=2, head_dim=32, max_len=600)
    w = world(source, dtype=dtype)
    promised(w.about.batch_dependent)
    assert lone_and_together(kernels, dtype, source) == (0, 24)
    b = batch(w, LONG, 4, tokens=12)
    true = world(source, dtype="fp64").learner.score(b).logp
    for ours in (b.logp, w.learner.score(b).logp):
        assert float((ours - true)[b.mask].abs().mean()) < (1e-6 if dtype == "fp32" else 0.05)


def lone_rows_differ() -> bool:
    """Whether a product of one row has other bits here than that row has among many."""
    g = torch.Generator().manual_seed(0)
    for k, n in itertools.product((32, 64, 128, 256), repeat=2):
        x, w = (torch.randn(m, k, generator=g) for m in (20, n))
        if any(not torch.equal(torch.nn.functional.linear(x[i : i + 1], w)[0], row)
               for i, row in enumerate(torch.nn.functional.linear(x, w))):
            return True
    return False


def test_shrinking_a_tile_to_one_row_is_what_the_test_of_company_notices(monkeypatch, kernels):
    """The witness of the test above: without padding, lone rows take another matrix kernel."""
    if kernels == "native":
        pytest.skip("only torch pads")
    if not lone_rows_differ():
        pytest.skip("this machine's products do not depend on the number of rows")
    monkeypatch.setattr("isocost.local.cache._padded", lambda n: n)
    monkeypatch.setattr("isocost.local.cache.SMALL", 1)
    w, many = world("tiny"), []
    prompts = sums(20, 3)

    async def crowd():
        return await asyncio.gather(*(say(w, p, range(8), i, tokens=4) for i, p in enumerate(prompts)))

    for said in asyncio.run(crowd()):
        many += said[:1]
    lone = [asyncio.run(say(w, p, [0], i, tokens=4))[0] for i, p in enumerate(prompts)]
    assert not all(same(a, b) for a, b in zip(many, lone, strict=True))


def test_draws_are_addressed_so_a_resumed_rollout_says_what_it_would_have_said():
    w = world()
    for sampling in SETTINGS:
        whole = asyncio.run(say(w, "47+38=", range(3), tokens=40, sampling=sampling))
        for attempt, said in enumerate(whole):
            if len(said.tokens) < 4:
                continue
            first = start(w, "47+38=", sampling).wrote(said)
            for cut in {1, 3, len(said.tokens) - 1}:
                prefix, left = first.cut(6 + cut), len(said.tokens) - cut
                (more,) = asyncio.run(
                    w.engine.generate(prefix, [attempt], place=Place(7, 0, 0), turn=0, max_tokens=left)
                )
                assert more.tokens.tolist() == said.tokens[cut:].tolist()
                np.testing.assert_allclose(more.logp, said.logp[cut:], atol=1e-5)
                assert more.stop is said.stop


def test_tokens_are_read_again_by_every_attempt_that_goes_on_under_the_weights_that_wrote_them():
    w = world()
    (said,) = asyncio.run(say(w, "47+38=", [1], tokens=3))
    text = start(w, "47+38=").wrote(said).read([2, 4])

    def cost():
        before = w.meter.of()
        asyncio.run(w.engine.generate(text, [0, 1, 5], place=Place(7, 0, 0), turn=1, max_tokens=2))
        spent = w.meter.of() - before
        return spent.rollouts, spent.prefill, spent.reread

    assert cost() == (0, 3 * len(text), 3 * (len(text) - 2))
    asyncio.run(w.engine.load(w.learner.weights()))
    assert cost() == (0, 3 * len(text), 0)


def test_forked_attempts_share_the_prefix_and_draw_for_themselves():
    w = world()
    said = next(s for s in asyncio.run(say(w, "1+2=", range(20), tokens=12)) if len(s.tokens) > 6)
    prefix = start(w, "1+2=").wrote(said).cut(4 + 3)
    forks = asyncio.run(w.engine.generate(prefix, range(100, 120), place=Place(7, 0, 0), turn=0, max_tokens=9))
    assert len({tuple(s.tokens.tolist()) for s in forks}) > 10


def test_group_attempts_differ_and_places_differ():
    w = world()
    a, b = (asyncio.run(say(w, "1+2=", range(30), slot)) for slot in (0, 1))
    assert len({s.tokens.tobytes() for s in a}) > 10
    assert [s.tokens.tobytes() for s in a] != [s.tokens.tobytes() for s in b]


def test_frequencies_of_first_tokens_are_the_models_own():
    w, n = world("tiny"), 4000
    said = asyncio.run(say(w, "47+38=", range(n), tokens=1))
    counts = np.bincount([int(s.tokens[0]) for s in said], minlength=16)
    tokens = torch.tensor([w.text.encode("47+38=")])
    p = torch.softmax(w.learner.decoder.logits(w.learner.decoder(tokens)[0, -1]), -1).detach().double().numpy()
    often = n * p > 5
    chi2 = ((counts - n * p)[often] ** 2 / (n * p)[often]).sum()
    assert chi2 < often.sum() + 5 * np.sqrt(2 * often.sum())


# stopping -------------------------------------------------------------------------------------------------------


def test_the_end_is_written_once_and_a_truncated_row_has_none():
    w = world()
    said = asyncio.run(say(w, "1+2=", range(60), tokens=6))
    done = [s for s in said if s.stop is Stop.DONE]
    cut = [s for s in said if s.stop is Stop.LENGTH]
    assert done and cut
    assert all(s.tokens[-1] == 15 and (s.tokens == 15).sum() == 1 for s in done)
    assert all(15 not in s.tokens and len(s.tokens) == 6 for s in cut)
    assert "" not in {w.text.decode(s.tokens.tolist()) for s in cut}


def test_any_of_several_end_ids_ends_a_row():
    source = model()
    source.text.ends = (15, 3)
    w = world(source)
    for s in asyncio.run(say(w, "1+2=", range(60), tokens=12)):
        assert not set(s.tokens[:-1].tolist()) & {3, 15}
        assert (s.stop is Stop.DONE) == (int(s.tokens[-1]) in (3, 15))


def test_a_stop_string_ends_a_row_though_it_spans_tokens():
    w = world()
    free = asyncio.run(say(w, "1+2=", range(40), tokens=12))
    texts = [w.text.decode(s.tokens.tolist()) for s in free]
    string = next(t[2:4] for t in texts if len(t) > 6)
    for text, s in zip(texts, asyncio.run(say(w, "1+2=", range(40), tokens=12, stop=("zz", string))), strict=True):
        heard = w.text.decode(s.tokens.tolist())
        assert text.startswith(heard)
        if string in text:
            assert heard.endswith(string) and heard.count(string) == 1 and s.stop is Stop.DONE


def test_a_stop_string_ends_a_resumed_turn_though_it_begins_before_the_cut():
    w = world()
    whole = asyncio.run(say(w, "1+2=", range(40), tokens=12))
    attempt, text = next((k, x) for k, s in enumerate(whole) if len(x := w.text.decode(s.tokens.tolist())) > 6)
    first, string = start(w, "1+2=").wrote(whole[attempt]), text[2:4]
    at = text.index(string)
    (more,) = asyncio.run(w.engine.generate(
        first.cut(4 + at + 1), [attempt], place=Place(7, 0, 0), turn=0, max_tokens=9, stop=(string,)))
    assert w.text.decode(more.tokens.tolist()) == string[1] and more.stop is Stop.DONE


def test_the_context_cuts_a_row_off_and_a_prompt_that_fills_it_is_an_error():
    w = world()
    (said,) = asyncio.run(say(w, "1" * 94, [0], tokens=50))
    assert len(said.tokens) == 2 and said.stop is Stop.LENGTH
    with pytest.raises(UserError, match="96 tokens"):
        asyncio.run(say(w, "1" * 96, [0]))
    for bad in (Sampling(0.0), Sampling(1.0, 0.0), Sampling(1.0, 1.0, -1)):
        with pytest.raises(UserError):
            asyncio.run(say(w, "1", [0], sampling=bad))


@pytest.mark.parametrize("role", [Role.OWN, Role.HINT, Role.TEACHER])
def test_a_full_context_of_words_after_the_prompt_is_length_and_billed(role):
    """A start that was continued: by the policy itself, or from words that are given as its own."""
    w = world()
    full = start(w, "1+2=").read([3] * 92, role)
    with meter.begins(True):
        said = asyncio.run(w.engine.generate(full, range(3), place=Place(7, 0, 0), turn=0, max_tokens=8))
    assert [(len(s.tokens), s.stop) for s in said] == [(0, Stop.LENGTH)] * 3
    assert w.meter.of().rollouts == 3


def test_a_dialogue_that_fills_the_context_is_length():
    w = world()
    full = start(w, "1+2=").read([3] * 2, Role.OWN).read([4] * 90)
    (said,) = asyncio.run(w.engine.generate(full, [0], place=Place(7, 0, 0), turn=1, max_tokens=8))
    assert said.stop is Stop.LENGTH and not len(said.tokens) and w.meter.of().rollouts == 0


# paying ---------------------------------------------------------------------------------------------------------


def test_every_token_is_charged_to_the_account_that_asked():
    w = world()
    said = asyncio.run(say(w, "1+2=", range(9), tokens=10))
    seen = w.meter.of("train").counts()
    assert (seen["rollouts"], seen["prefill"], seen["decode"]) == (9, 36, sum(len(s.tokens) for s in said))
    assert w.meter.physical["train"].prefill == 4

    async def two():
        with meter.on("evaluation"):
            a = asyncio.ensure_future(say(w, "1+2=", range(3), 1, tokens=10))
        with meter.on("probe"):
            b = asyncio.ensure_future(say(w, "1+2=", range(2), 2, tokens=10))
        return await a, await b

    a, b = asyncio.run(two())
    for account, some in (("evaluation", a), ("probe", b)):
        cost = w.meter.of(account)
        assert (cost.rollouts, cost.decode) == (len(some), sum(len(s.tokens) for s in some))
        assert cost.seconds > 0
    assert w.meter.physical["evaluation"].prefill + w.meter.physical["probe"].prefill == 4
    assert w.meter.of("train").counts() == seen


def test_shared_out_seconds_sum_to_those_that_passed(monkeypatch):
    """By a clock that ticks once per look: every stretch that is timed lasts one second."""
    looks = itertools.count()
    monkeypatch.setattr("isocost.local.engine.time", SimpleNamespace(perf_counter=lambda: float(next(looks))))
    w = world()

    async def every():
        late = asyncio.ensure_future(say(w, "1+2=", range(3), 9, tokens=60))
        await asyncio.sleep(0)
        return await asyncio.gather(late, *(say(w, p, range(7), i, tokens=60) for i, p in enumerate(sums(6))))

    asyncio.run(every())
    assert w.meter.of().seconds == pytest.approx(next(looks) / 2)


def test_reading_again_under_new_weights_takes_seconds_of_those_who_were_read(monkeypatch):
    """By such a clock, of which only the second reading takes long: 100 looks."""
    looks = itertools.count()
    monkeypatch.setattr("isocost.local.engine.time", SimpleNamespace(perf_counter=lambda: float(next(looks))))
    w = world(model(sharp=1.0))
    w.engine.burst = 1
    again = w.engine.cache.read_again

    def slow(*rows):
        for _ in range(100):
            next(looks)
        again(*rows)

    monkeypatch.setattr(w.engine.cache, "read_again", slow)

    async def swap():
        with meter.on("probe"):
            one = asyncio.ensure_future(say(w, "1+2=", range(6), tokens=60))
        other = asyncio.ensure_future(say(w, "3+4=", range(2), tokens=60))
        while not w.engine._slots.live:
            await asyncio.sleep(0)
        read = [len(r.attempts) for r, _ in w.engine._slots.owner]     # 6 of one, 2 of the other, while all live
        await w.engine.load(w.learner.weights())
        await asyncio.gather(one, other)
        return [101 * read.count(k) / len(read) for k in (6, 2)]

    shares = asyncio.run(swap())
    seconds = [w.meter.seconds(meter.SAMPLE, account) for account in ("probe", "train")]
    assert sum(seconds) == pytest.approx((next(looks) - 102) / 2 + 101)
    assert all(s > share > 0 for s, share in zip(seconds, shares, strict=True))


def test_a_turn_that_goes_on_is_no_new_rollout():
    w = world()
    (said,) = asyncio.run(say(w, "1+2=", [0], tokens=2))
    text = start(w, "1+2=").wrote(said)
    asyncio.run(w.engine.generate(text, [0], place=Place(7, 0, 0), turn=0, max_tokens=3))
    text = text.read(w.text.encode("?"), Role.SEEN)
    asyncio.run(w.engine.generate(text, [0], place=Place(7, 0, 0), turn=1, max_tokens=3))
    assert w.meter.of().rollouts == 1


def test_cancelling_stops_decoding_and_pays_for_what_was_decoded():
    w = world(model(sharp=1.0))

    async def race():
        slow = asyncio.ensure_future(say(w, "1+2=", range(8), 0, tokens=80))
        quick = asyncio.ensure_future(say(w, "3+4=", range(4), 1, tokens=5))
        unborn = asyncio.ensure_future(say(w, "5+5=", range(4), 2, tokens=5))
        await asyncio.sleep(0)
        unborn.cancel()
        said = await quick
        slow.cancel()
        results = await asyncio.gather(slow, unborn, return_exceptions=True)
        assert all(isinstance(r, asyncio.CancelledError) for r in results)
        return said

    said = asyncio.run(race())
    cost, quick = w.meter.of(), sum(len(s.tokens) for s in said)
    assert cost.rollouts == 12
    whole = [len(s.tokens) for s in asyncio.run(say(world(model(sharp=1.0)), "1+2=", range(8), 0, tokens=80))]
    longest = max(len(s.tokens) for s in said)
    ticks = [k for k in range(longest, longest + 3) if cost.decode == quick + sum(min(n, k) for n in whole)]
    assert ticks and sum(n > ticks[-1] for n in whole) > 1
    assert w.engine._slots.live == 0 and not w.engine._waiting
    again = asyncio.run(say(w, "3+4=", range(4), 1, tokens=5))
    assert all(same(a, b) for a, b in zip(again, said, strict=True))


def test_more_rows_than_slots_wait_their_turn():
    source = model()
    free, tight = world(source), world(source, max_slots=3)
    small = world(source, cache_bytes=1)
    want = asyncio.run(say(free, "1+2=", range(11), tokens=7))
    for w in (tight, small):
        got = asyncio.run(say(w, "1+2=", range(11), tokens=7))
        assert all(same(a, b) for a, b in zip(want, got, strict=True))
        assert w.meter.of().counts() == free.meter.of().counts()


def test_an_error_inside_reaches_everybody_who_waits(monkeypatch):
    w = world()
    monkeypatch.setattr(w.engine, "_advance", lambda: 1 / 0)

    async def two():
        return await asyncio.wait_for(
            asyncio.gather(*(say(w, p, range(4)) for p in ("1+2=", "2+3=")), return_exceptions=True), 5
        )

    assert all(isinstance(r, ZeroDivisionError) for r in asyncio.run(two()))


def test_an_error_in_a_prompt_reaches_a_turn_that_was_to_go_on_in_the_same_tick():
    w = world()
    (said,) = asyncio.run(say(w, "1+2=", [0], tokens=2))
    text = start(w, "1+2=").wrote(said).read(w.text.encode("?"), Role.SEEN)
    asyncio.run(w.engine.load({k: torch.full_like(v, torch.nan) for k, v in w.learner.weights().items()}))

    async def both():
        going_on = w.engine.generate(text, [0], place=Place(7, 0, 1), turn=1, max_tokens=3)
        return await asyncio.wait_for(asyncio.gather(say(w, "2+3=", [0]), going_on, return_exceptions=True), 5)

    assert [type(e) for e in asyncio.run(both())] == [FloatingPointError] * 2


@pytest.mark.parametrize("late", [False, True])      # bad from the start, or loaded in mid-flight
def test_logits_that_are_not_finite_are_an_error_and_what_was_decoded_is_paid_for(late):
    """By weights that are fine until somebody has written a 3, which poisons the token after it."""
    good = model(tied=False)
    embed = good.weights["embed"].clone()
    embed[3] = torch.nan
    bad = good.but(weights={**good.weights, "embed": embed})
    whole = [s.tokens for s in asyncio.run(say(world(good), "1+2=", range(12), tokens=40))]
    w, ticks = world(good if late else bad), 0
    if late:
        w.engine.burst = 1

    async def go():
        nonlocal ticks
        task = asyncio.ensure_future(say(w, "1+2=", range(12), tokens=40))
        if late:
            for _ in range(6):
                await asyncio.sleep(0)
            ticks = int(w.engine._slots.wrote.max())
            await w.engine.load(bad.weights)
        await task

    with pytest.raises(FloatingPointError, match=f"not finite at version {int(late)}"):
        asyncio.run(go())
    assert ticks > 2 or not late

    def poisoned(at):
        return [len(t) > at and 3 in t[:at].tolist() for t in whole]

    fatal = next(at for at in range(ticks, 40) if any(poisoned(at)))
    assert sum(len(t) > fatal for t in whole) > sum(poisoned(fatal))          # some rows were well to the end
    paid = sum(min(len(t), fatal + 1) for t in whole) - sum(poisoned(fatal))
    assert (w.meter.of().rollouts, w.meter.of().decode) == (12, paid)
    assert w.meter.physical["train"].decode == paid and w.meter.of().seconds > 0
    asyncio.run(w.engine.load(good.weights))
    again = asyncio.run(say(w, "1+2=", range(12), tokens=40))
    assert [s.tokens.tolist() for s in again] == [t.tolist() for t in whole]
    assert w.meter.of().decode == paid + sum(map(len, whole))


# weights --------------------------------------------------------------------------------------------------------


def test_the_engine_holds_the_learners_weights_after_each_sync():
    w = world("tiny")
    before = w.engine.checksum()
    assert before == w.engine.checksum(w.learner.weights())
    w.learner.update(batch(w, sums(4), 8), pull, lr=1e-3)
    assert w.engine.checksum() == before != w.engine.checksum(w.learner.weights())
    asyncio.run(w.engine.load(w.learner.weights()))
    assert w.engine.version == 1
    assert w.engine.checksum() == w.engine.checksum(w.learner.weights()) != before


def test_new_weights_in_mid_flight_drop_what_was_read_under_the_old():
    w, other = world(model(0, sharp=1.5)), model(1, sharp=1.5)
    w.engine.burst = 1

    async def swap(slot):
        task = asyncio.ensure_future(say(w, "47+38=", range(24), slot, tokens=60))
        for _ in range(4):
            await asyncio.sleep(0)
        await w.engine.load(other.weights)
        return await task

    said = asyncio.run(swap(0))
    new = Decoder(other.config)
    new.load_state_dict(other.weights, strict=False)
    checked = 0
    for s in said:
        row = torch.from_numpy(np.concatenate((w.text.encode("47+38="), s.tokens)))[None]
        logp = torch.log_softmax(new.logits(new(row))[0], -1)[:-1].gather(-1, row[0, 1:, None])[5:, 0].detach().numpy()
        fresh = s.version == 1
        assert (np.diff(s.version) >= 0).all()
        np.testing.assert_allclose(s.logp[fresh], logp[fresh], atol=1e-4)
        checked += fresh.sum()
        if (~fresh).any():
            assert np.abs(s.logp[~fresh] - logp[~fresh]).max() > 1e-3
    assert checked > 10


def test_weights_of_another_shape_are_refused():
    w = world()
    with pytest.raises(ValueError, match="embed"):
        asyncio.run(w.engine.load({"norm": torch.zeros(3)}))


# drawing --------------------------------------------------------------------------------------------------------


def test_truncation_by_hand():
    p = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).repeat(4, 1)
    kept = truncate(p.log(), torch.tensor([1.0, 0.7, 0.71, 0.6]), torch.tensor([2, 0, 0, 3])) > -torch.inf
    assert kept.tolist() == [
        [False, True, False, True],     # the two likeliest
        [False, True, False, True],     # .4 + .3 holds .7
        [False, True, True, True],      # .71 needs one more
        [False, True, False, True],     # of three, renormalised to .44 .22 .33, two hold .6
    ]


def test_inverse_cdf_by_hand_and_impossible_tokens_never_come():
    logp = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).log().repeat(5, 1)
    u = torch.tensor([2.0**-33, 0.2, 0.25, 0.9, 1 - 2.0**-33], dtype=torch.float64)
    assert draw(logp, u).tolist() == [1, 1, 3, 3, 3]


def test_batched_random_numbers_are_those_of_each_place():
    place = Place(3, 5, 7)
    one = chance.uniforms(place, [2, 9], 1, 0, 24)
    wave, slot, attempt, turn, first = (np.array(x) for x in ((5, 5), (7, 7), (2, 9), (1, 1), (1, 3)))
    many = chance.blocks(chance.key(place), wave, slot, attempt, turn, first, 2)
    assert (many[0] == one[0, 4:12]).all() and (many[1] == one[1, 12:20]).all()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_any_device_writes_what_it_scores(device):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    from isocost.local.world import Compute, open_world

    w = open_world(model(), (), None, meter=Meter(), exact=True, compute=Compute(device=device, dtype="fp32"))
    b = batch(w, sums(6), 4)
    assert float((w.learner.score(b).logp - b.logp)[b.mask].abs().max()) < 1e-4
    assert np.isfinite(w.learner.update(b, pull, lr=1e-3)["grad_norm"])
