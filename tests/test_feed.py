"""What the feed promises: the budget holds, every rollout has one fate, groups keep their identity, age is bounded."""

import asyncio
from collections import Counter
from contextlib import aclosing
from functools import partial

import pytest

from isocost import methods
from isocost.errors import RewardFailed
from isocost.feed import Feed
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.methods import april
from isocost.parts import select
from isocost.types import End, Fate, Score
from isocost.worlds import toy
from isocost.worlds.setting import Setting, open_setting

SETTING = Setting.of(data="sums:base=easy,count=60", held_out=0.2)


@pytest.fixture
def world():
    return open_setting(SETTING).world


def played(recipe, world, budget, seed=0):
    """(ledger, end, batches of groups) of a whole run."""
    ledger, end, taken = Ledger(seed=seed), End(), []

    async def go():
        async for step in train(recipe, world, ledger, budget, end):
            taken.append(step.groups)

    asyncio.run(go())
    return ledger, end, taken


def recipe_of(name="grpo", **changes):
    return methods.load(name).recipe(groups=4, rollouts=4, **changes)


def never(group, ledger):
    return None


async def worthless(rollouts):
    return [Score(0.0) for _ in rollouts]


def test_waves_without_a_score_end_a_run_long_before_its_budget_does():
    """Those of failed environments may cost nothing that the budget counts."""
    small = toy.world()
    small.grade.broken = {p.id for p in small.problems}
    with pytest.raises(RewardFailed, match="no rollout of the last 2 waves has a score"):
        played(recipe_of(), small, {"rollouts": 160})
    assert small.meter.of().rollouts == 2 * 16


@pytest.mark.parametrize(("budget", "max_age"), [
    ({"rollouts": 100}, 0), ({"tokens": 400}, 0), ({"flop": 5e8}, 0), ({"rollouts": 100}, 3), ({"rollouts": 40}, 3),
    ({"tokens": 400}, 3), ({"flop": 5e8}, 3),
])
def test_nothing_is_launched_that_cannot_be_paid_for(world, budget, max_age):
    """With the waves that are in flight, which have not been charged yet."""
    from isocost.feed import UNITS

    played(recipe_of(max_age=max_age), world, budget)
    ((unit, limit),) = budget.items()
    spent = UNITS[unit](world.meter.of(), world.learner, 0.0)
    assert 0.5 * limit < spent <= limit * (1.0 if unit == "rollouts" else 1.1)


@pytest.mark.parametrize(("tokens", "bound"), [(250.0, "tokens"), (1e6, "rollouts")])
def test_of_two_limits_the_first_ends_the_run_and_is_named(world, tokens, bound):
    _, end, taken = played(recipe_of(), world, {"rollouts": 96.0, "tokens": tokens})
    spent = world.meter.of()
    assert (end.reason, end.bound) == ("spent", bound) and taken
    assert (spent.rollouts == 96) == (bound == "rollouts") and spent.decode <= 1.1 * tokens


def test_a_run_whose_groups_are_all_rejected_ends_starved_within_its_budget(world):
    world.grade = worthless
    ledger, end, taken = played(recipe_of("dapo"), world, {"rollouts": 200})
    assert end.reason == "starved" and not taken
    assert world.meter.of().rollouts == 192 and ledger.fates == Counter({"filtered": 192, "cancelled": 0})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"refill": True, "select": select.mixed},
        {"max_age": 1},
        {"max_age": 2, "refill": True, "select": select.mixed},
        {"schedule": april.first_back},
        {"schedule": april.first_back, "max_age": 1},
        {"select": never},
    ],
    ids=lambda c: ",".join(c) or "plain",
)
def test_every_rollout_has_one_fate_and_they_sum_to_the_meter(world, changes):
    ledger, _, _ = played(recipe_of(**changes), world, {"rollouts": 256})
    assert sum(ledger.fates.values()) == world.meter.of().rollouts
    if "schedule" in changes:
        assert ledger.fates["cancelled"] > 0
    if changes.get("select") is never:
        assert set(+ledger.fates) == {"filtered"}


def by_need(problems, ledger, total):
    """Everyone once; then all that is left to the slots that failed."""
    groups = yield [1] * len(problems)
    missed = [i for i, g in enumerate(groups) if g.rollouts[0].final != g.problem.answer] or [0]
    left = total - len(problems)
    yield [
        left // len(missed) + (missed.index(i) < left % len(missed)) if i in missed else 0
        for i in range(len(problems))
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"max_age": 2},
        {"max_age": 2, "refill": True, "select": select.mixed},
        {"max_age": 1, "schedule": april.first_back},
        {"max_age": 2, "allocate": by_need},
    ],
    ids=lambda c: ",".join(c),
)
def test_a_run_that_is_stopped_cancels_rollouts_in_flight(changes):
    """After whichever step: waves not begun, half written, waiting to be taken, and groups held for a later step."""
    setting, cancelled = Setting.of(data="sums:work=1,count=60", held_out=0.2, max_tokens=14), 0

    async def stopped(after, world, ledger):
        async with aclosing(train(recipe_of(**changes), world, ledger, {"rollouts": 256})) as steps:
            async for _ in steps:
                if ledger.step == after:
                    return

    for after in (1, 2, 3, 4):
        world, ledger = open_setting(setting).world, Ledger()
        asyncio.run(stopped(after, world, ledger))
        assert sum(ledger.fates.values()) == world.meter.of().rollouts and ledger.fates["lost"] == 0
        cancelled += ledger.fates["cancelled"]
        again = Ledger()
        again.replay(ledger.fresh)
        assert again.fates == ledger.fates
        seen = [{k: t.recent for k, t in x.tallies.items() if t.tries} for x in (again, ledger)]
        assert seen[0] == seen[1]
    assert cancelled > 16


def test_a_failed_verifier_gives_a_fate_and_no_reward(world):
    grade = world.grade

    async def flaky(rollouts):
        return [None if r.attempt == 1 else s for r, s in zip(rollouts, await grade(rollouts), strict=True)]

    world.grade = flaky
    ledger, _, taken = played(recipe_of(), world, {"rollouts": 64})
    assert ledger.fates["lost"] + ledger.fates["filtered"] >= 12
    assert all(r.attempt != 1 for groups in taken for g in groups for r in g.rollouts)
    assert sum(ledger.fates.values()) == 64


def test_a_problem_drawn_twice_in_a_wave_is_two_groups_of_distinct_attempts(world):
    world.problems = world.problems[:1]
    _, _, taken = played(recipe_of(), world, {"rollouts": 16})
    assert [g.place.slot for g in taken[0]] == [0, 1, 2, 3]
    assert [len(g.rollouts) for g in taken[0]] == [4] * 4


@pytest.mark.parametrize("max_age", [0, 1])
def test_every_problem_of_an_epoch_is_used_once(world, max_age):
    world.problems = world.problems[:24]
    recipe = recipe_of(max_age=max_age, select=select.mixed, refill=True)
    ledger, _, _ = played(recipe, world, {"rollouts": 24 * 4 * 2})
    drawn = Counter(x["id"] for x in {(x["wave"], x["slot"]): x for x in ledger.fresh}.values())
    assert set(drawn.values()) == {2} and len(drawn) == 24


async def slow(problem, world, ledger):
    await asyncio.sleep(0)
    return [problem]


def test_waves_in_flight_do_not_sample_the_same_problems_while_a_guide_waits(world):
    world.problems = world.problems[:24]
    ledger, _, _ = played(recipe_of(max_age=2, guide=slow), world, {"rollouts": 24 * 4})
    assert set(Counter(x["id"] for x in ledger.fresh).values()) == {1}


@pytest.mark.parametrize("max_age", [0, 1, 2])
def test_no_rollout_is_older_than_max_age(world, max_age):
    ages = []
    base = recipe_of()

    def watched(batch, ledger):
        ages.append(int(batch.age.max()))
        return base.advantage(batch, ledger)

    played(base.but(max_age=max_age, advantage=watched), world, {"rollouts": 192})
    assert max(ages) == max_age


def test_the_same_seed_is_the_same_run_and_another_seed_another(world):
    runs = [played(recipe_of(), open_setting(SETTING).world, {"rollouts": 96}, seed)[0].steps for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_a_phased_allocation_grows_groups_and_numbers_attempts_through(world):
    _, _, taken = played(recipe_of(allocate=by_need), world, {"rollouts": 64})
    for groups in taken:
        assert sum(len(g.rollouts) for g in groups) == 16
        assert all([r.attempt for r in g.rollouts] == list(range(len(g.rollouts))) for g in groups)
        assert all(r.score is not None for g in groups for r in g.rollouts)


def too_few(problems, ledger, total):
    return [1] * len(problems)


def too_many(problems, ledger, total):
    return [total] * len(problems)


def too_many_later(problems, ledger, total):
    yield [total // len(problems)] * len(problems)
    yield [1] + [0] * (len(problems) - 1)


@pytest.mark.parametrize("allocate", [too_few, too_many, too_many_later])
def test_counts_must_sum_to_the_total(world, allocate):
    with pytest.raises(ValueError, match="sum to the total"):
        played(recipe_of(allocate=allocate), world, {"rollouts": 64})
    assert world.meter.total.rollouts <= 16      # what is too much is not begun


def test_a_slot_with_no_attempts_returns_no_group(world):
    def all_to_the_first(problems, ledger, total):
        return [total] + [0] * (len(problems) - 1)

    _, _, taken = played(recipe_of(allocate=all_to_the_first), world, {"rollouts": 32})
    assert [len(groups) for groups in taken] == [1, 1] and len(taken[0][0].rollouts) == 16


def test_an_unknown_unit_is_named(world):
    with pytest.raises(ValueError, match="apples"):
        Feed(recipe_of(), world, Ledger(), {"apples": 3})


def test_a_budget_of_seconds_is_compared_with_the_clock_of_the_run(world):
    """Eight seconds of which two were gone before: three waves of two, the pauses between them included."""
    ticks = {"now": 2.0}

    async def go() -> int:
        async with Feed(recipe_of(), world, Ledger(), {"seconds": 8.0}, lambda: ticks["now"]) as feed:
            waves = 0
            while await feed.take():
                waves, ticks["now"] = waves + 1, ticks["now"] + 2.0
            return waves

    assert asyncio.run(go()) == 3


def test_dead_rollouts_are_distinguished_from_trained_ones(world):
    ledger, _, taken = played(recipe_of(), world, {"rollouts": 128})
    alive = sum(len(g.rollouts) for groups in taken for g in groups if g.rewards.std() > 0)
    assert ledger.fates[str(Fate.TRAINED)] == alive and ledger.fates[str(Fate.DEAD)] == 128 - alive


def test_journal_replays_to_the_same_tallies(world):
    ledger, _, _ = played(
        recipe_of(select=partial(select.extremes, keep=2) if hasattr(select, "extremes") else select.mixed),
        world,
        {"rollouts": 192},
    )
    again = Ledger()
    again.replay(ledger.fresh)
    assert again.tallies == ledger.tallies and again.fates == ledger.fates
