"""Dialogues in the real engine: keys are kept between turns, results are equal, the learner agrees in every turn."""

import asyncio
from functools import cache

import numpy as np
import pytest
import torch

from isocost.local.cache import NativeCache
from isocost.local.sessions import Sessions, Waiting
from isocost.pack import pack
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.steps.settings import setting_with
from isocost.types import Group, Place, Role, Sampling, Score, Segment
from isocost.worlds.setting import open_setting

PLACE = Place(3, 1, 0)


@cache
def opened(kernels="native", spec="rooms:slip=0.2", max_turns=12):
    return open_setting(setting_with(env=spec, kernels=kernels, max_turns=max_turns))


def played(world, problems, attempts=range(4), *, sampling=Sampling(), start=None, turns=12, place=PLACE, most=2):
    pace = Pace(lr=0.0, max_tokens=most, sampling=sampling, max_turns=turns)

    async def go():
        return await asyncio.gather(*(
            sample(p, attempts, world, pace, Place(place.seed, place.wave, place.slot + i), start)
            for i, p in enumerate(problems)))

    return asyncio.run(go())


def groups(problems, found):
    return [Group(p, tuple(r.but(score=Score(0.0)) for r in rs), Place(0, 0, i))
            for i, (p, rs) in enumerate(zip(problems, found, strict=True))]


def tokens_and_logp(found):
    return [[(s.tokens.tobytes(), s.logp.tobytes(), s.turn.tobytes()) for s in r.segments] for rs in found for r in rs]


def without(engine, sessions):
    """The engine with other sessions, as a context."""
    class Other:
        def __enter__(self):
            self.before, engine.sessions = engine.sessions, sessions

        def __exit__(self, *_):
            engine.sessions = self.before
    return Other()


def test_keys_are_kept_between_turns_and_results_are_equal_to_the_last_bit():
    world, problems = opened().world, opened().sides.train[:6]
    world.meter.physical.clear(), world.meter.logical.clear()
    kept = played(world, problems)
    physical, logical = world.meter.physical["train"], world.meter.of()
    world.meter.physical.clear(), world.meter.logical.clear()
    with without(world.engine, Sessions(0)):        # every row is dropped at once
        read_again = played(world, problems)
    assert tokens_and_logp(kept) == tokens_and_logp(read_again)
    assert world.meter.of().counts() == logical.counts(), "what was requested is the same"
    before = world.meter.physical["train"]
    assert physical.prefill < 0.25 * before.prefill and physical.decode == before.decode
    fresh = logical.fresh + sum(len(r.turns) - 1 for rs in kept for r in rs)    # and the last token of each turn before
    shared = sum(3 * int(np.argmax(rs[0].segments[0].own)) for rs in kept)      # a prompt is read once for its group
    assert physical.prefill == fresh - shared


@pytest.mark.parametrize(("sampling", "bound"), [
    (Sampling(), 0.0), (Sampling(0.5), 0.0), (Sampling(1.3), 0.0), (Sampling(top_p=0.9), 5e-6),
], ids=str)
def test_sampler_and_learner_agree_to_the_last_bit_in_every_turn_or_within_a_bound_where_sampling_is_cut(
    sampling, bound
):
    world, problems = opened().world, opened().sides.train[:8]
    found = played(world, problems, sampling=sampling)
    batch = pack(groups(problems, found), world.engine.version)
    out = world.learner.score(batch)
    assert int(batch.turn.max()) == 11 and int(batch.mask.sum()) > 300
    assert float((out.logp - batch.logp)[batch.mask].abs().max()) <= bound


def test_in_torch_sampler_and_learner_agree_within_a_bound_in_every_turn():
    world, problems = opened("torch").world, opened("torch").sides.train[:4]
    found = played(world, problems)
    batch = pack(groups(problems, found), world.engine.version)
    out = world.learner.score(batch)
    assert float((out.logp - batch.logp)[batch.mask].abs().max()) <= 5e-6


def test_a_dialogue_resumed_at_any_turn_and_inside_one_is_equal_with_noisy_moves():
    world, problems = opened().world, opened().sides.train[:5]
    tried = 0
    for i, (problem, whole) in enumerate(zip(problems, played(world, problems), strict=True)):
        for r in (x for x in whole if len(x.turns) > 3):
            (text,) = r.segments
            for turn in range(1, len(r.turns)):
                own = np.flatnonzero(text.turn == turn)
                for at in (int(own[0]), int(own[0]) + 1)[: len(own)]:
                    start, place = r.cut(at), Place(PLACE.seed, PLACE.wave, PLACE.slot + i)
                    ((again,),) = played(world, [problem], [r.attempt], start=start, place=place)
                    assert tokens_and_logp([[again]]) == tokens_and_logp([[r]]) and again.turns == r.turns
                    tried += 1
    assert tried > 30


def test_forks_of_one_trunk_read_it_once_and_say_what_each_would_say_alone():
    world, problems = opened().world, opened().sides.train[:1]
    trunk = next(r for r in played(world, problems, range(12))[0] if len(r.turns) > 5)
    at = int(np.flatnonzero(trunk.segments[0].turn == 3)[0])
    world.meter.physical.clear()
    world.engine.sessions.clear()
    together = played(world, problems, range(50, 58), start=trunk.cut(at), turns=4)
    assert world.meter.physical["train"].prefill == at
    alone = [played(world, problems, [a], start=trunk.cut(at), turns=4)[0] for a in range(50, 58)]
    assert tokens_and_logp(together) == tokens_and_logp(alone)
    assert len({r.segments[0].tokens.tobytes() for r in together[0]}) > 2


def test_new_weights_drop_what_was_kept_and_rows_in_flight_are_read_again():
    o = opened()
    world, problems = o.world, o.sides.train[:3]
    first = played(world, problems, turns=6)
    assert len(world.engine.sessions)

    async def loaded():
        pace = Pace(lr=0.0, max_tokens=2, max_turns=6)
        play = asyncio.create_task(sample(problems[0], range(4), world, pace, PLACE, None))
        for _ in range(12):
            await asyncio.sleep(0)
        await world.engine.load(world.learner.weights())        # the same weights, under a new version
        return await play

    again = asyncio.run(loaded())
    assert tokens_and_logp([again]) == tokens_and_logp([first[0]]), "read again with equal weights: equal"
    assert {int(v) for r in again for v in r.segments[0].version} - {-1} != {world.engine.version - 1}
    world.engine.restore(world.learner.weights(), 0)
    assert not len(world.engine.sessions)


def test_rows_are_found_by_group_and_text_in_any_round_and_the_oldest_are_dropped_when_memory_is_short():
    gone = []
    rows = Sessions(100, gone.append)
    for i in range(5):
        rows.put(PLACE, Waiting(np.array([1, 2, i]), None, torch.full((8,), float(i)), 8))
    assert len(rows) == 3 and rows.bytes == 96 and [int(x.tokens[2]) for x in gone] == [0, 1]
    assert rows.take(PLACE, np.array([1, 2, 0])) is None and rows.take(Place(3, 1, 1), np.array([1, 2, 3])) is None
    copy = rows.take(PLACE, np.array([1, 2, 3]), copied=True)
    own = rows.take(PLACE, np.array([1, 2, 3]))
    assert copy.own.tolist() == own.own.tolist() and copy.own is not own.own and len(rows) == 2
    assert rows.take(PLACE, np.array([1, 2])) is None and rows.take(PLACE, np.array([1, 2, 4, 0])) is None
    rows.put(PLACE, Waiting(np.array([1, 2, 4]), None, torch.zeros(8), 8))
    assert len(rows) == 3 and rows.take(PLACE, np.array([1, 2, 4])) and rows.take(PLACE, np.array([1, 2, 4]))
    assert rows.bytes == 32, "attempts with equal texts have a row each"


@pytest.mark.parametrize("became", ["hint", "own"])
def test_own_words_that_became_a_hint_or_were_one_are_read_again(became):
    """The row that waits then has another lead than the text that goes on."""
    world = opened().world
    prompt, seen = Segment.given(world.text.encode("A DOOR EAST:"), Role.PROMPT), world.text.encode("A WALL:")

    def said(text, turn):
        return asyncio.run(world.engine.generate(text, [0], place=PLACE, turn=turn, max_tokens=6))[0]

    own = prompt.wrote(said(prompt, 0)).read(seen)
    hint = Segment.given(own.tokens, Role.HINT)         # the same tokens, none of them the policy's
    before, after = (own, hint) if became == "hint" else (hint, own)
    words = said(before, 1)
    second, third = (text.wrote(words).read(seen) for text in (before, after))
    text = third.wrote(said(second, 2)).read(seen)
    resumed = said(text, 3)
    world.engine.sessions.clear()
    fresh = said(text, 3)
    assert resumed.tokens.tolist() == fresh.tokens.tolist() and resumed.logp.tobytes() == fresh.logp.tobytes()


def test_memory_put_aside_is_not_used_when_rows_have_got_more_room():
    engine = opened().world.engine
    cache = NativeCache(engine.cache.config, torch.float32, 1, 0)
    cache.load(opened().world.learner.weights())
    start, text = np.array([1, 2, 3]), np.array([1, 2, 3, 4, 5])
    cache.read([start], [1], 0, 4)
    row = cache.release(0, start)
    cache.free(0)
    cache.resume([text], [3], [row], 0, 4)          # the slot's own memory is put aside for the next row
    cache.read([start], [1], 1, 400)                # a longer row
    cache.release(0, text)
    assert {len(x) for x in cache._memory} == {cache.kernel.memory(400)}
