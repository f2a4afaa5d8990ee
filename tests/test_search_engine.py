"""What a search needs of an engine: texts are the same however it is run, and little more is read than is new."""

import asyncio
from collections import Counter
from dataclasses import replace
from functools import cache
from zlib import crc32

import numpy as np
import pytest

from isocost import chance
from isocost.local import engine as local_engine
from isocost.local.sessions import Sessions
from isocost.local.world import Compute, open_world
from isocost.types import Place, Role, Sampling, Segment, Stop
from isocost.world import Start, generate_many
from isocost.worlds import toy
from local_world import no_grade

MARK, ROUNDS = (17,), 5         # ";"
OTHERS = "9*9*3+5-6%36>", "8627+9215>", "5,5,2,9=48>"
PLACE = Place(5, 2, 0, int(chance.Purpose.EVALUATION))


@cache
def opened(kernels="native"):
    return open_world("tiny-puzzles", (), no_grade, compute=Compute(device="cpu", kernels=kernels))


@pytest.fixture(params=["native", "torch", "graphs"])
def world(request):
    made = opened(request.param)
    made.engine.restore(made.learner.weights(), 0)      # and no rows are kept
    return made


def prompt(world, words="2,2,5,3,2=10>"):
    return Segment.given(world.text.encode(words), Role.PROMPT, Sampling(1.3))


def search(world, first, place=PLACE, *, n=6, kept=3, strings=False, begun=None, until=ROUNDS, most=80):
    """The best `kept` of n texts go on, n / kept times each, by a score that depends on the text alone.

    Returns (text, slot, stop) of each path after round `until`, and how many distinct texts went on.
    """
    async def go():
        how = {"stop": (";",)} if strings else {"ends": MARK}
        paths, k, went_on = begun or [(first, j, None) for j in range(n)], 0, 0
        while k < until and any(stop is None for *_, stop in paths):
            starts = {}
            for text, slot, stop in paths:
                if stop is None:
                    starts.setdefault(text.tokens.tobytes(), (text, []))[1].append(slot)
            asked = [Start(text, slots, most - text.written) for text, slots in starts.values()]
            found = await generate_many(world.engine, asked, place=place, turn=0, **how)
            went_on += len(asked) if k or begun else 0
            for (text, slots), each in zip(starts.values(), found, strict=True):
                for slot, s in zip(slots, each, strict=True):
                    over = int(s.tokens[-1]) in world.text.ends or s.stop is Stop.LENGTH
                    i = next(i for i, p in enumerate(paths) if p[1] == slot)
                    paths[i] = text.wrote(s), slot, s.stop if over else None
            k += 1
            best = sorted(paths, key=lambda p: (crc32(p[0].tokens.tobytes()), p[1]))[:kept]
            if k < until and any(stop is None for *_, stop in paths):
                paths = [(best[j * kept // n][0], j, best[j * kept // n][2]) for j in range(n)]
        return paths, went_on

    return go()


def test_torch_writes_what_the_kernel_writes():
    native, torch = (words(asyncio.run(search(opened(x), prompt(opened(x))))) for x in ("native", "torch"))
    assert [x[0] for x in native] == [x[0] for x in torch]


def words(found):
    return [(p.tokens.tobytes(), p.logp.tobytes(), slot, stop) for p, slot, stop in found[0]]


# random numbers -------------------------------------------------------------------------------------------------------


def test_the_kernel_draws_the_numbers_of_chance():
    rng = np.random.default_rng(0)
    places = [Place(int(s), int(w), int(x), 1) for s, w, x in rng.integers(0, 4096, (50, 3))]
    at = chance.addresses(places, rng.integers(0, 65_536, 50), rng.integers(0, 2**16, 50))
    wide = chance.addresses([PLACE] * 3, [65_536, 2**24 + 5, 2**32 - 1], [0, 1, 2])
    for some in (at, wide):
        assert opened().engine.cache.kernel.uniforms(some, 3).tolist() == chance.numbers(some, 3).tolist()
    one = chance.numbers(at[7:8], 2)[0].tolist()
    turn, attempt = divmod(int(at[7, 1]), 1 << 16)
    assert one == chance.uniforms(places[7], [attempt], turn, 0, 8)[0].tolist()


# ids that end a row ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["native", "torch", "graphs", "toy"])
def test_a_text_that_is_written_in_steps_is_the_one_that_is_written_at_once(engine):
    w = toy.world() if engine == "toy" else opened(engine)
    first = Segment.given(w.text.encode("1?"), Role.PROMPT) if engine == "toy" else prompt(w)
    ends = w.text.encode("ab" if engine == "toy" else ";!")
    most, count = (8, 12) if engine == "toy" else (16, 3)
    whole = asyncio.run(w.engine.generate(first, range(count), place=PLACE, turn=0, max_tokens=most))
    steps = Counter()
    for attempt, once in enumerate(whole):
        text, stop = first, Stop.STEP
        while stop is Stop.STEP:
            (said,) = asyncio.run(w.engine.generate(
                text, [attempt], place=PLACE, turn=0, max_tokens=most - text.written, ends=ends))
            assert not set(said.tokens[:-1].tolist()) & set(ends)
            assert (said.stop is Stop.STEP) == (int(said.tokens[-1]) in ends)
            text, stop, steps[attempt] = text.wrote(said), said.stop, steps[attempt] + 1
            if text.written == most:        # its last token may be one that ends a step
                break
        assert text.reply().tolist() == once.tokens.tolist()
        np.testing.assert_allclose(text.logp[len(first) :], once.logp, atol=0 if engine in ("native", "toy") else 1e-5)
        assert stop is once.stop or (text.written == most and once.stop is Stop.LENGTH)
    assert max(steps.values()) > 2


def test_ids_end_the_rows_of_the_request_that_named_them(world):
    """Three requests in flight together, two of which name ids; each is as alone."""
    first, asked = prompt(world), [(), world.text.encode(";"), world.text.encode("=")]

    async def together():
        return await asyncio.gather(*(world.engine.generate(
            first, range(8), place=replace(PLACE, slot=i), turn=0, max_tokens=12, ends=ends)
            for i, ends in enumerate(asked)))

    for i, (ends, found) in enumerate(zip(asked, asyncio.run(together()), strict=True)):
        alone = asyncio.run(world.engine.generate(
            first, range(8), place=replace(PLACE, slot=i), turn=0, max_tokens=12, ends=ends))
        assert [(s.tokens.tolist(), s.stop) for s in found] == [(s.tokens.tolist(), s.stop) for s in alone]
        assert any(s.stop is Stop.STEP for s in found) == bool(ends)
        assert all((int(s.tokens[-1]) in ends) == (s.stop is Stop.STEP) for s in found)


def test_many_sets_of_ids_one_after_the_other_leave_a_table_that_is_bounded(world, monkeypatch):
    monkeypatch.setattr(local_engine, "LINES", 3)
    found = [asyncio.run(world.engine.generate(
        prompt(world), range(4), place=PLACE, turn=0, max_tokens=6, ends=[i])) for i in (1, 2, 3, 4, 1)]
    assert len(world.engine._is_end) <= 4
    assert [s.tokens.tolist() for s in found[0]] == [s.tokens.tolist() for s in found[4]]


# texts do not depend on how they are computed -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["none", "few", "all"])
@pytest.mark.parametrize("strings", [False, True], ids=["ids", "strings"])
def test_a_search_writes_the_same_with_rows_kept_or_not_and_steps_ended_by_ids_or_strings(rows, strings, monkeypatch):
    world = opened()
    most = {"none": 0, "few": 3 * world.engine.cache.bytes(40), "all": 2**28}[rows]
    monkeypatch.setattr(world.engine, "sessions", Sessions(most, world.engine.cache.recycle))
    monkeypatch.setattr(world.engine, "dialogues", True)        # rows that strings end are kept, too
    found = asyncio.run(search(world, prompt(world), strings=strings))
    monkeypatch.undo()
    assert words(found) == words(asyncio.run(search(world, prompt(world))))
    assert len({p.tokens.tobytes() for p, *_ in found[0]}) > 1


def test_a_search_writes_the_same_among_others_and_in_an_engine_that_goes_on_where_another_was_killed():
    world = opened()
    alone = asyncio.run(search(world, prompt(world), until=2 * ROUNDS))

    async def crowd():
        others = [search(world, prompt(world, p), replace(PLACE, slot=i + 1)) for i, p in enumerate(OTHERS)]
        return (await asyncio.gather(search(world, prompt(world), until=2 * ROUNDS), *others))[0]

    assert words(asyncio.run(crowd())) == words(alone)
    paths, _ = asyncio.run(search(world, prompt(world), until=ROUNDS))
    best = sorted(paths, key=lambda p: (crc32(p[0].tokens.tobytes()), p[1]))[:3]
    begun = [(best[j // 2][0], j, best[j // 2][2]) for j in range(6)]
    another = open_world("tiny-puzzles", (), no_grade, compute=Compute(device="cpu", kernels="native"))
    assert words(asyncio.run(search(another, prompt(world), begun=begun))) == words(alone)


def test_one_call_of_many_starts_is_each_alone_and_one_charge(world):
    first = prompt(world)
    (a, b) = asyncio.run(world.engine.generate(first, range(2), place=PLACE, turn=0, max_tokens=40, ends=MARK))
    starts = [
        Start(first.wrote(a), [4, 5], 6), Start(first.wrote(b), [6], 4), Start(first, [7], 0), Start(first, [], 5)]
    charges, before = [], world.meter.of()
    world.meter.observer = lambda account, cost: charges.append(cost)
    many = asyncio.run(generate_many(world.engine, starts, place=PLACE, turn=0, ends=MARK))
    world.meter.observer, cost = None, world.meter.of() - before
    alone = [asyncio.run(world.engine.generate(
        text, attempts, place=PLACE, turn=0, max_tokens=most, ends=MARK)) for text, attempts, most in starts]
    assert [[s.tokens.tolist() for s in x] for x in many] == [[s.tokens.tolist() for s in x] for x in alone]
    assert [len(x) for x in many] == [2, 1, 1, 0] and many[2][0].stop is Stop.LENGTH
    assert len(charges) == 1 and (world.meter.of() - before).counts() == (cost + cost).counts()
    assert cost.prefill == 2 * len(starts[0].text) + len(starts[1].text) and cost.reread == cost.prefill


# what is read -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [6, 3, 1], ids=["as many as paths", "half", "one"])
def test_a_search_reads_the_prompt_once_and_then_one_token_for_each_text_that_goes_on(kept):
    """The last token of each step is read with the next one. Without kept rows whole texts are read."""
    world = opened()
    world.engine.sessions.clear()
    world.meter.physical.clear()
    _, went_on = asyncio.run(search(world, prompt(world), kept=kept))
    assert went_on >= 4 and world.meter.physical["train"].prefill == len(prompt(world)) + went_on
    world.meter.physical.clear()
    before, world.engine.sessions = world.engine.sessions, Sessions(0)
    _, again = asyncio.run(search(world, prompt(world), kept=kept))
    world.engine.sessions = before
    assert again == went_on and world.meter.physical["train"].prefill > len(prompt(world)) + 4 * went_on


def test_a_text_that_goes_on_a_second_time_is_read_again_with_the_same_result():
    """The last who asks for a row takes it."""
    world, first = opened(), prompt(opened())
    world.engine.sessions.clear()
    (said,) = asyncio.run(world.engine.generate(first, [0], place=PLACE, turn=0, max_tokens=40, ends=MARK))
    assert said.stop is Stop.STEP and len(world.engine.sessions) == 1
    text, reads = first.wrote(said), []
    for _ in range(2):
        world.meter.physical.clear()
        found = asyncio.run(world.engine.generate(text, [3, 4], place=PLACE, turn=0, max_tokens=5))
        reads.append((world.meter.physical["train"].prefill, [s.logp.tobytes() for s in found]))
    assert [x for x, _ in reads] == [1, len(text)] and reads[0][1] == reads[1][1]


def test_a_search_keeps_a_row_while_its_other_attempts_wait_for_slots(monkeypatch):
    world, first = opened(), prompt(opened())
    world.engine.sessions.clear()
    (said,) = asyncio.run(world.engine.generate(first, [0], place=PLACE, turn=0, max_tokens=40, ends=MARK))
    monkeypatch.setattr(world.engine, "max_slots", 2)
    world.meter.physical.clear()
    some = asyncio.run(world.engine.generate(first.wrote(said), range(5), place=PLACE, turn=0, max_tokens=5))
    assert world.meter.physical["train"].prefill == 3, "one for each time that slots are given"
    monkeypatch.undo()
    every = asyncio.run(world.engine.generate(first.wrote(said), range(5), place=PLACE, turn=0, max_tokens=5))
    assert [s.logp.tobytes() for s in some] == [s.logp.tobytes() for s in every]


def test_rows_that_write_the_same_are_read_once_in_any_burst_and_have_the_bits_that_each_has_alone(monkeypatch):
    """Attempts share beginnings, across bursts of 3 ticks."""
    world = opened()
    monkeypatch.setattr(world.engine, "burst", 3)

    def said(attempts):
        return asyncio.run(world.engine.generate(prompt(world), attempts, place=PLACE, turn=0, max_tokens=30))

    together, alone = said(range(16)), [said([k])[0] for k in range(16)]
    assert [(s.tokens.tobytes(), s.logp.tobytes()) for s in together] == [
        (s.tokens.tobytes(), s.logp.tobytes()) for s in alone]
    assert 1 < len({s.tokens.tobytes() for s in together}) < 16


# what comes, and what does not fit ------------------------------------------------------------------------------------


def test_tokens_are_passed_on_as_they_come_and_are_those_of_the_answer(world):
    heard, sizes = {}, []

    def on_tokens(attempt, tokens):
        heard.setdefault(attempt, []).extend(tokens)
        sizes.append(len(tokens))

    async def go():
        quiet = world.engine.generate(prompt(world), range(4), place=replace(PLACE, slot=1), turn=0, max_tokens=12)
        loud = world.engine.generate(prompt(world), [2, 9], place=PLACE, turn=0, max_tokens=12, on_tokens=on_tokens)
        return (await asyncio.gather(quiet, loud))[1]

    found = asyncio.run(go())
    assert heard == {2: found[0].tokens.tolist(), 9: found[1].tokens.tolist()}
    assert max(sizes) <= max(local_engine.STREAM, world.engine.cache.chunk) and len(sizes) > 2
