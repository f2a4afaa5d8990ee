"""Dialogues of several turns: resuming and forking replay luck, faults cost one rollout, and every step is charged."""

import asyncio
import dataclasses
import itertools
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from isocost import chance, ops
from isocost.envs.opening import open_environment
from isocost.envs.tiny import rooms
from isocost.errors import UserError
from isocost.ledger import Ledger
from isocost.meter import TRAIN
from isocost.pack import pack
from isocost.parts import view as views
from isocost.parts.play import sample, viewed
from isocost.runs import shelf
from isocost.seams import Pace
from isocost.tasks.verify.grade import Grader
from isocost.types import (
    Cost,
    Fault,
    FaultSource,
    Group,
    Message,
    Place,
    Problem,
    Role,
    Rollout,
    Said,
    Score,
    Segment,
    Shown,
    Stop,
    Turn,
)
from isocost.worlds import toy

PLACE, PACE = Place(7, 2, 3), Pace(lr=0.0, max_tokens=4, max_turns=6)


class Noisy:
    """Answers "?" or "!" by luck; a right answer pays 1 and ends it. Keys are what was shown last."""

    closed = 0

    def __init__(self, problem):
        self.problem, self.said = problem, ""

    async def open(self):
        return Shown(self.problem.prompt, key="start")

    async def step(self, said, luck):
        await asyncio.sleep(0)
        self.said, shown = said, "!?"[int(luck().random() < 0.5)]
        right = said == self.problem.answer
        fault = Fault.model("empty") if not said else None
        return Shown((Message("tool", shown),), right, float(right), shown, fault)

    def final(self):
        return self.said

    async def close(self):
        type(self).closed += 1


def played(world, attempts, start=None, pace=PACE, place=PLACE, problem=0, view=None):
    play = sample if view is None else partial(viewed, view=view)
    return asyncio.run(play(world.problems[problem], attempts, world, pace, place, start))


def noisy_world(env=Noisy):
    world = toy.world()
    world.env = env
    return world


def same(a: Rollout, b: Rollout) -> bool:
    texts = zip(a.segments, b.segments, strict=True)
    return a.turns == b.turns and a.final == b.final and a.stop == b.stop and all(
        all(np.array_equal(getattr(x, k), getattr(y, k)) for k in ("tokens", "role", "logp", "turn", "version"))
        for x, y in texts)


def starts(rollout):
    """Where a dialogue can be resumed: inside each turn, and after each answer of the environment."""
    (text,) = rollout.segments
    turns = int(text.turn.max())
    inside = [int(np.flatnonzero(text.turn == t)[0]) + 1 for t in range(turns + 1) if (text.turn == t).sum() > 1]
    after = [int(np.flatnonzero(text.turn == t)[0]) for t in range(1, turns + 1)]
    return [*inside, *after]


def test_200_of_200_dialogues_resumed_from_the_middle_are_equal_with_a_noisy_environment():
    world, equal, tried = noisy_world(), 0, 0
    rng = np.random.default_rng(0)
    for problem in range(3):
        for whole in played(world, range(80), problem=problem):
            places = starts(whole)
            if not places or tried == 200:
                continue
            at = places[int(rng.integers(len(places)))]
            (again,) = played(world, [whole.attempt], whole.cut(at), problem=problem)
            tried, equal = tried + 1, equal + same(again, whole)
    assert (equal, tried) == (200, 200)


def test_a_fork_replays_the_luck_of_its_trunk_also_in_another_wave_and_under_another_number():
    world = noisy_world()
    trunk = next(r for r in played(world, range(60)) if len(r.turns) == 6)
    at = int(np.flatnonzero(trunk.segments[0].turn == 3)[0])
    before, taken = world.meter.of().env_steps, world.meter.physical[TRAIN].env_steps
    branches = played(world, range(100, 140), trunk.cut(at), place=Place(7, 9, 1))
    assert all(b.turns[:3] == trunk.turns[:3] for b in branches), "shown, paid and lucky as the trunk was"
    assert len({tuple(t.luck for t in b.turns[3:]) for b in branches}) == 40, "and then luck of its own"
    assert len({tuple(t.key for t in b.turns) for b in branches}) > 5
    assert world.meter.of().env_steps - before == sum(len(b.turns) - 3 for b in branches), "replays are not charged"
    assert world.meter.physical[TRAIN].env_steps - taken == sum(len(b.turns) for b in branches), "but they were taken"
    bare = played(world, [100], trunk.cut(at).segments[0], place=Place(7, 9, 1))[0]
    differs = bare.stop is Stop.ERROR
    assert differs or bare.turns[0].luck != trunk.turns[0].luck, "of the words alone the luck is not known"


def test_luck_depends_on_seed_purpose_wave_slot_attempt_and_turn_and_on_nothing_else():
    world, other = noisy_world(), noisy_world()
    both = played(world, range(8)), [played(other, [a])[0] for a in reversed(range(8))][::-1]
    assert all(map(same, *both))
    addresses = {t.luck for r in played(noisy_world(), range(8)) for t in r.turns}
    assert len(addresses) == sum(len(r.turns) for r in both[0])
    for place in (Place(7, 3, 3), Place(7, 2, 4), Place(7, 2, 3, 1)):
        assert not addresses & {t.luck for r in played(noisy_world(), range(8), place=place) for t in r.turns}
    drawn = [chance.generator(s, chance.Purpose.ENVIRONMENT, *chance.luck(PLACE, 1, 2)).random() for s in (7, 8)]
    assert drawn[0] != drawn[1]


def test_overlapping_calls_of_environments_are_charged_the_time_that_passed_and_no_more(monkeypatch):
    """Each step takes a second of a clock of our own, during which the other attempts take theirs."""
    now = 0.0

    class Slow(Noisy):
        async def step(self, said, luck):
            nonlocal now
            now += 1.0
            return await super().step(said, luck)

    monkeypatch.setattr("isocost.parts.episode.time", SimpleNamespace(perf_counter=lambda: now))
    world = noisy_world(Slow)
    played(world, range(5))
    assert world.meter.of().seconds == now == world.meter.of().env_steps > 5


def test_turns_are_what_was_charged_and_tokens_read_again_are_told_apart():
    world = noisy_world()
    found = played(world, range(40))
    cost = world.meter.of()
    assert cost.env_steps == sum(len(r.turns) for r in found) and cost.rollouts == 40
    assert cost.decode == sum(r.segments[0].written for r in found)
    again = sum(int(np.flatnonzero(s.turn == t)[-1]) + 1 for r in found for s in r.segments
                for t in range(len(r.turns) - 1))      # at each later turn all up to the end of the turn before
    assert cost.reread == again and cost.fresh == sum(len(r.segments[0]) - r.segments[0].written for r in found)
    assert cost.flops(10) == 20 * (cost.fresh + cost.decode)


def test_costs_of_earlier_versions_load_and_a_cost_without_rereading_is_written_as_before():
    assert Cost.of({"rollouts": 3, "seconds": 1.0}) == Cost(3, seconds=1.0)
    assert "reread" not in Cost(3).data() and Cost.of(Cost(3, reread=2).data()) == Cost(3, reread=2)
    assert Cost(*Cost(1, 2, 3, 4, 5, 6, 7, 8, 9.0)[:9]) == Cost(1, 2, 3, 4, 5, 6, 7, 8, 9.0)
    assert (Cost(5, 9, reread=4) - Cost(1, 2, reread=1)).fresh == 4


# faults ------------------------------------------------------------------------------------------------------------


class GoneError(Exception):
    pass


def failing(at):
    class Failing(Noisy):
        made = closed = 0

        def __init__(self, problem):
            type(self).made += 1
            self.number = type(self).made
            super().__init__(problem)
            if at == "init" and self.number == 2:
                raise GoneError

        async def open(self):
            if at == "open" and self.number == 2:
                raise GoneError
            if at == "hangs open" and self.number == 2:
                await asyncio.Event().wait()
            return await super().open()

        async def step(self, said, luck):
            if at == "hangs" and self.number == 2:
                await asyncio.Event().wait()
            if at == "exits" and self.number == 2:
                raise SystemExit(3)
            if at == "reports" and self.number == 2:
                return Shown((), True, 1.0, fault=Fault.environment("page not loaded"))
            return await super().step(said, luck)

        async def close(self):
            await super().close()
            if at == "close":
                raise GoneError

    return Failing


@pytest.mark.parametrize("at", ["init", "open", "hangs open", "hangs", "exits", "reports"])
def test_an_environment_that_fails_costs_one_rollout_and_no_score(at, caplog):
    world = noisy_world(env := failing(at))
    world.env_seconds = 0.05
    found = played(world, range(4))
    assert [r.stop is Stop.ERROR for r in found] == [False, True, False, False]
    assert world.meter.of().rollouts == 4, "also one that never began is paid for"
    assert env.closed == (3 if at == "init" else 4), "closed, however it ended"
    if at in ("hangs", "exits", "reports"):
        assert found[1].turns[-1].fault.source is FaultSource.ENVIRONMENT
        assert world.meter.of().env_steps == sum(len(r.turns) for r in found)
    assert "failed" in caplog.text


def test_failures_of_one_cause_are_printed_three_times_at_most(caplog):
    class Gone(failing("nowhere")):
        async def open(self):
            raise OSError("no server")
    world = noisy_world(Gone)
    assert {r.stop for r in played(world, range(8))} == {Stop.ERROR}
    assert world.failures == {"OSError('no server')": 8}
    lines = [x for x in caplog.messages if "no server" in x]
    assert len(lines) == 3 and lines[-1].endswith("more failures like this one are counted and not printed")


def untyped(what, **fields):
    """One with other types: tests check the types of fields where a user's process does not."""
    for name, value in fields.items():
        object.__setattr__(what, name, value)
    return what


@pytest.mark.parametrize(("call", "made", "says"), [
    ("open", None, "open returned None; return isocost.types.Shown(messages)"),
    ("open", untyped(Shown(), messages="hello"), "open returned messages of type str"),
    ("open", untyped(Shown(), messages=({"role": "user"},)), "a message of type dict; write isocost.types.Message"),
    ("step", ((), 0.0), "step returned a value of type tuple; return isocost.types.Shown"),
    ("step", Shown((untyped(Message("tool", ""), content=3),)), "step returned a message with content of type int"),
    ("step", untyped(Shown(), reward="1.0"), "step returned a reward of type str; it must be a number"),
    ("step", untyped(Shown(), fault="no door"), "step returned a fault of type str; use Fault.model"),
    ("final", None, "final returned None; return a text"),
], ids=str)
def test_an_environment_that_returns_other_types_is_a_fault_that_says_what_is_right(call, made, says, caplog):
    class Wrong(Noisy):
        async def open(self):
            return made if call == "open" else await super().open()

        async def step(self, said, luck):
            return made if call == "step" else await super().step(said, luck)

        def final(self):
            return made if call == "final" else super().final()

    assert {r.stop for r in played(noisy_world(Wrong), range(3))} == {Stop.ERROR} and says in caplog.text


def test_an_attempt_that_opens_slowly_delays_no_other_of_its_group():
    """The second opens only once the three others have ended, and all are as where they open at once."""
    left, over, numbers = [3], asyncio.Event(), itertools.count()

    class Slow(Noisy):
        async def open(self):
            if next(numbers) == 1:
                await over.wait()
            return await super().open()

        async def close(self):
            left[0] -= 1
            if not left[0]:
                over.set()

    world, usual = noisy_world(Slow), noisy_world()
    world.env_seconds = 5.0
    found, expected = played(world, range(4)), played(usual, range(4))
    assert [r.stop for r in found] == [r.stop for r in expected] and Stop.ERROR not in {r.stop for r in found}
    assert all((a.segments[-1].tokens == b.segments[-1].tokens).all() for a, b in zip(found, expected, strict=True))
    assert world.meter.of()._replace(seconds=0.0) == usual.meter.of()._replace(seconds=0.0)


def test_all_environments_of_a_group_may_fail_and_closing_may_raise(caplog):
    class Shut(Noisy):
        async def open(self):
            raise GoneError

    world = noisy_world(Shut)
    found = played(world, range(3))
    paid = world.meter.of()._replace(seconds=0.0)
    assert {r.stop for r in found} == {Stop.ERROR} and paid == Cost(rollouts=3)
    group = Group(found[0].problem, tuple(found), PLACE)
    assert group.lengths == [0, 0, 0] and group.version == 0
    world = noisy_world(failing("close"))
    assert all(r.stop is not Stop.ERROR for r in played(world, range(3))) and "did not close" in caplog.text


def test_environments_are_closed_when_the_run_is_stopped():
    async def stopped():
        world = noisy_world(env := failing("hangs"))
        task = asyncio.create_task(sample(world.problems[0], range(4), world, PACE, PLACE))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return env.closed

    assert asyncio.run(stopped()) == 4


def test_attempts_that_open_differently_or_answer_a_replay_differently_have_no_score(caplog):
    class Counts(Noisy):
        made = 0

        async def open(self):
            type(self).made += 1
            return Shown((*self.problem.prompt, Message("user", "!" * (type(self).made == 2))))

    world = noisy_world(Counts)
    assert [r.stop is Stop.ERROR for r in played(world, range(3))] == [False, True, False]
    assert "opened differently" in caplog.text

    class Forgets(Noisy):
        answers = 0

        async def step(self, said, luck):
            type(self).answers += 1
            return Shown((Message("tool", "?" if type(self).answers < 9 else "!"),))

    world = noisy_world(Forgets)
    (whole,) = played(world, [0])
    at = int(np.flatnonzero(whole.segments[0].turn == 4)[0])
    (again,) = played(world, [0], whole.cut(at))
    assert again.stop is Stop.ERROR and "answered a turn differently" in caplog.text


# views -------------------------------------------------------------------------------------------------------------


def test_a_view_makes_segments_whose_own_words_are_trained_on_once_and_resumes_as_it_was():
    world, pace = noisy_world(), dataclasses.replace(PACE, max_turns=5)
    found = played(world, range(30), pace=pace, view=partial(views.window, rounds=1))
    long = [r for r in found if len(r.turns) == 5]
    assert long and all([s.first for s in r.segments] == list(range(5)) for r in long)
    for r in found:
        turns = np.concatenate([s.turn[s.own] for s in r.segments])
        assert sorted(set(turns.tolist())) == list(range(len(r.turns))), "every turn is the policy's in one segment"
        for s in r.segments:
            assert not s.own[: np.flatnonzero(s.role == Role.PROMPT)[-1] + 1].any()
    whole = long[0]
    start = whole.but(segments=(*whole.segments[:3], whole.segments[3].cut(int(np.argmax(whole.segments[3].own)))))
    (again,) = played(world, [whole.attempt], start, pace=pace, view=partial(views.window, rounds=1))
    assert same(again, whole)
    whole_view = played(world, range(6), view=lambda messages, turns: messages)
    assert {len(r.segments) for r in whole_view if len(r.turns) > 1} != {1}, "an end token is no part of a message"


def test_views_keep_the_last_turns_replace_old_results_or_keep_what_led_to_new_states():
    said = [Message("assistant", c) for c in "abcd"]
    shown = [Message("tool", c) for c in "wxyz"]
    log = [Message("user", "?"), *(m for pair in zip(said, shown, strict=True) for m in pair)]
    turns = [Turn(k) for k in ("s", "s", "t", "s")]

    def read(view):
        return "".join(m.content for m in view(log, turns))

    assert read(partial(views.window, rounds=2)) == "?cydz" and read(partial(views.window, rounds=9)) == "?awbxcydz"
    assert read(partial(views.placeholders, keep=1, words="-")) == "?a-b-c-dz"
    assert [m.content for m in views.window(log[:1], [], rounds=2)] == ["?"]


# credit ------------------------------------------------------------------------------------------------------------


def rolled(attempt, keys, rewards, total, *, segments=False):
    """A rollout of turns of two tokens each, in these states and with these rewards, and this score."""
    said = lambda: Said(np.array([1, 2]), np.zeros(2, np.float32), np.zeros(2, np.int64), Stop.DONE)  # noqa: E731
    texts = [Segment.empty().read([1, 2], Role.PROMPT)]
    for i in range(len(keys)):
        texts[-1] = texts[-1].wrote(said())
        if i < len(keys) - 1:
            if segments:
                texts.append(Segment.empty(first=i + 1).read([1, 5], Role.PROMPT))
            else:
                texts[-1] = texts[-1].read([4, 5])
    turns = tuple(Turn(k, r) for k, r in zip(keys, rewards, strict=True))
    return Rollout(Problem("p", ()), tuple(texts), "", attempt=attempt, score=None if total is None else Score(total),
                   turns=turns)


def packed(*groups):
    return pack([Group(g[0].problem, tuple(g), Place(0, 0, i)) for i, g in enumerate(groups)], 0)


def test_turns_of_a_batch_have_their_rewards_and_share_keys_within_a_group_only():
    batch = packed(
        [rolled(0, ["a", "b"], [0.0, 1.0], 1.0), rolled(1, ["a", "d", ""], [0.5, 0.0, 0.0], 0.75)],
        [rolled(0, ["a"], [0.0], 1.0), rolled(1, ["a", "", ""], [0.0, 0.0, 0.0], 0.0, segments=True)])
    turns = ops.turns_of(batch)
    assert turns.rollout.tolist() == [0, 0, 1, 1, 1, 2, 3, 3, 3]
    assert turns.number.tolist() == [0, 1, 0, 1, 2, 0, 0, 1, 2]
    assert turns.reward.tolist() == [0, 1, 0.5, 0, 0.25, 1, 0, 0, 0], "what no turn was given comes with the last"
    assert turns.row.tolist() == [0, 0, 1, 1, 1, 2, 3, 4, 5]
    a, b, a2, d, none, c, c2, e, f = turns.key.tolist()
    assert a == a2 and c == c2 and len({a, b, d, none, c, e, f}) == 7
    assert ops.to_go(turns, gamma=0.5).tolist() == [0.5, 1, 0.5625, 0.125, 0.25, 1, 0, 0, 0]
    spread = ops.spread_turns(torch.arange(9.0) + 1, turns, batch)
    assert spread[batch.mask].tolist() == [x for x in range(1, 10) for _ in range(2)]
    assert (spread[~batch.mask] == 0).all()


def test_turns_of_single_answers_and_of_no_rollout():
    batch = packed([rolled(0, ["a"], [0.0], 1.0).but(turns=()), rolled(1, ["a"], [0.0], 0.0).but(turns=())])
    turns = ops.turns_of(batch)
    assert turns.reward.tolist() == [1.0, 0.0] and len(set(turns.key.tolist())) == 2
    assert ops.to_go(turns, gamma=0.9).tolist() == [1.0, 0.0]


# records -----------------------------------------------------------------------------------------------------------


def test_the_shelf_keeps_turns_faults_and_luck():
    world = noisy_world()
    found = played(world, range(12))
    group = Group(found[0].problem, tuple(found), PLACE)
    (back,) = shelf.groups(shelf.data([group]), world.problems)
    assert [r.turns for r in back.rollouts] == [r.turns for r in found]
    viewed = played(noisy_world(), range(12), view=partial(views.window, rounds=1))
    (back,) = shelf.groups(shelf.data([Group(viewed[0].problem, tuple(viewed), PLACE)]), world.problems)
    assert [[s.first for s in r.segments] for r in back.rollouts] == [[s.first for s in r.segments] for r in viewed]
    old = shelf.data([Group(found[0].problem, (rolled(0, ["a"], [0.0], 1.0).but(problem=found[0].problem, turns=()),))])
    assert "turns" not in old[0]["rollouts"][0] and "first" not in old[0]["rollouts"][0]["segments"][0]


def test_the_journal_counts_turns_and_faults_by_source_and_a_step_has_their_means():
    ledger = Ledger()
    faulty = rolled(1, ["a", "b"], [0.0, 0.0], 0.0)
    faulty = faulty.but(turns=(Turn("a", 0.0, Fault.tool("down")), Turn("b", 0.0, Fault.model("no call"))))
    group = Group(faulty.problem, (rolled(0, ["a", "b", "c"], [0.0] * 3, 1.0), faulty), PLACE)
    ledger.saw(group)
    ledger.settle(group, [], 0)
    assert ledger.fresh[0]["turns"] == [3, 2] and ledger.fresh[0]["faults"] == [{}, {"model": 1, "tool": 1}]
    line = ledger.close(Cost(), 1, {})
    assert line["turns"] == 2.5 and [line[f"faults/{s}"] for s in FaultSource] == [0.0, 0.2, 0.2]
    single = Group(faulty.problem, (faulty.but(turns=()),), PLACE)
    ledger.settle(single, [], 0)
    assert "turns" not in ledger.fresh[1]


def test_the_verifier_environment_pays_what_the_turns_paid_and_gives_no_score_without_turns():
    grader = Grader("environment")
    found = asyncio.run(grader([rolled(0, ["a", "b"], [0.25, 0.5], None), rolled(1, ["a"], [0.0], None).but(turns=())]))
    assert found[0] == Score(0.75, turns=(0.25, 0.5)) and found[1] is None and grader.failures["exception"] == 1
    assert grader.texts(["x"], [Problem("p", ())]) is None and grader.meter.of().verify == 2


# rooms -------------------------------------------------------------------------------------------------------------


def test_rooms_have_a_known_shortest_route_and_the_best_walker_takes_it():
    which = rooms.Rooms()
    every = list(rooms.problems(which))
    assert len(every) > 100 and len({p.text for p in every}) == len(every) == len({p.id for p in every})

    async def walked(problem):
        env = rooms.Walk(problem)
        shown = await env.open()
        for turn in range(1, 30):
            to = rooms.route(which, (env.room, env.has_key), env.goal)[0][0]
            shown = await env.step(rooms.NAMES[to], None)
            assert shown.fault is None
            if shown.over:
                return turn
        return 0

    for p in every:
        assert asyncio.run(walked(p)) == p.meta["level"]
    assert {p.meta["level"] for p in rooms.problems(rooms.Rooms(level=4))} == {4}
    behind = [p for p in every if p.meta["start"] < 8 <= p.meta["goal"]]
    assert min(p.meta["level"] for p in behind if p.meta["start"] != which.house.key) >= 2, "the key first"


def test_the_distance_is_that_of_a_breadth_first_walk_forwards():
    for which in (rooms.Rooms(), rooms.Rooms(size=9, keys=0, seed=5), rooms.Rooms(size=20, degree=4, seed=2)):
        for p in list(rooms.problems(which))[:40]:
            front, steps = {which.house.start(p.meta["start"])}, 0
            while all(room != p.meta["goal"] for room, _ in front):
                front, steps = {t for s in front for t in which.house.moves(*s)}, steps + 1
            assert steps == p.meta["level"]


def test_a_bad_move_stays_and_is_the_models_fault_and_a_slip_is_no_fault():
    which = rooms.Rooms()
    problem = next(p for p in rooms.problems(which) if p.meta["start"] == which.house.locked[0] != which.house.key)

    async def said(words, luck=None, slip=0.0):
        env = rooms.Walk(dataclasses.replace(problem, meta={**problem.meta, "rooms": rooms.Rooms(slip=slip)}))
        await env.open()
        return env, await env.step(words, luck)

    locked = rooms.NAMES[which.house.locked[1]]
    for words, what in (("", "no such door"), ("AB", "no such door"), (locked, "locked door")):
        env, shown = asyncio.run(said(words))
        assert env.room == problem.meta["start"] and shown.fault == Fault.model(what)
        assert shown.messages[0].content.startswith("!") and not shown.over
    free = [to for to, _ in which.house.moves(problem.meta["start"], False)]
    lucks = [partial(np.random.default_rng, s) for s in range(400)]
    went = [asyncio.run(said(rooms.NAMES[free[0]], luck, 0.5))[0].room for luck in lucks]
    share = 0.5 + 0.5 / len(free)
    assert abs(went.count(free[0]) / 400 - share) < 3 * (share * (1 - share) / 400) ** 0.5


def test_specs_of_environments():
    made = open_environment("rooms:size=20,slip=0.1,keys=0")
    assert next(iter(made.problems())).meta["rooms"] == rooms.Rooms(size=20, slip=0.1, keys=0)
    for spec, said in (("maze", "no environment 'maze'"), ("rooms:walls=2", "no option 'walls'"),
                       ("rooms:size=big", "size takes an integer"), ("rooms:size=99", "size is 4 to 26"),
                       ("./none.py:Mine", "no file"), ("none.py", "there is no file none.py"),
                       (__file__, "names no class: .* has a function drive")):
        with pytest.raises(UserError, match=said):
            open_environment(spec)


@pytest.mark.parametrize("spec", ["rooms", "rooms:keys=0,alias=4", "rooms:size=26,seed=7"])
def test_what_the_expert_says_is_a_shortest_route(spec):
    async def walked(problem):
        env = rooms.Walk(problem)
        await env.open()
        return [await env.step(said, None) for said in problem.meta["expert"]]

    for problem in list(rooms.problems(rooms.Rooms.of(spec)))[:40]:
        shown = asyncio.run(walked(problem))
        assert len(shown) == problem.meta["level"] and [s.over for s in shown] == [False] * (len(shown) - 1) + [True]
        assert not any(s.fault for s in shown)
