"""Traps of asynchronous systems: what a bound on age means at zero, and what one stuck attempt may hold up."""

import asyncio
import time

import pytest
import torch

from isocost import chance, methods
from isocost.feed import Feed
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.pack import pack
from isocost.tasks.verify.grade import Grader
from isocost.types import Group, Place
from isocost.worlds.setting import Setting, open_setting

SETTING = Setting.of(data="sums:base=easy,count=60", held_out=0.2)
RECIPE = methods.load("grpo").recipe(groups=4, rollouts=4)


def by_hand(steps, seed):
    """The synchronous loop as one would write it on a blackboard: no feed, nothing in flight."""
    world, ledger = open_setting(SETTING).world, Ledger(seed=seed)

    async def group(problem, place, pace):
        said = await RECIPE.play(problem, range(RECIPE.rollouts), world, pace, place, None)
        return await RECIPE.reward(Group(problem, tuple(said), place), world)

    async def step(number):
        pace = RECIPE.pace(ledger)
        rng = chance.generator(seed, chance.Purpose.CHOOSE, number)
        problems = RECIPE.choose(world.problems, ledger, RECIPE.groups, rng)
        ledger.drawn += len(problems)
        groups = [await group(p, Place(seed, number, slot), pace) for slot, p in enumerate(problems)]
        batch = pack(groups, world.engine.version)
        batch = batch.but(advantage=RECIPE.advantage(batch, ledger))
        RECIPE.improve(batch.but(weight=RECIPE.weight(batch)), RECIPE, world, ledger)
        await world.engine.load(world.learner.weights())
        ledger.step += 1

    async def every():
        for number in range(steps):
            await step(number)

    asyncio.run(every())
    return world.learner.weights()


def by_the_loop(steps, seed, **changes):
    world, ledger = open_setting(SETTING).world, Ledger(seed=seed)
    recipe = RECIPE.but(**changes)

    async def every():
        return [s async for s in train(recipe, world, ledger, {"rollouts": 16 * steps})]

    asyncio.run(every())
    return world.learner.weights()


def test_28_an_age_of_at_most_zero_is_the_synchronous_loop_bit_for_bit():
    plain, fed = by_hand(6, 3), by_the_loop(6, 3)
    assert all(torch.equal(plain[k], fed[k]) for k in plain)
    late = by_the_loop(6, 3, max_age=1)  # what the comparison would show if waves were launched ahead
    assert not all(torch.equal(plain[k], late[k]) for k in plain)


@pytest.mark.parametrize("max_age", [0, 1, 2])
@pytest.mark.parametrize("late", [0, 1])
def test_28_a_rollout_that_returns_too_late_is_stale_and_not_one_step_earlier(max_age, late):
    """The policy moves on max_age steps, or one more, while the first wave is being marked."""
    world, ledger = open_setting(SETTING).world, Ledger()
    waves = []

    async def marked(group, world):
        if not waves:
            for _ in range(max_age + late):
                await world.engine.load(world.learner.weights())
        waves.append(group.place.wave)
        return await RECIPE.reward(group, world)

    async def first():
        async with Feed(RECIPE.but(max_age=max_age, reward=marked), world, ledger, {"rollouts": 16}) as feed:
            return await feed.take()

    taken = asyncio.run(first())
    assert len(taken) == (0 if late else 4) and ledger.fates["stale"] == (16 if late else 0)


STUCK = '''
import time


def act(prompts, completions, answer, **columns):
    if completions[0][-1:] in ("2", "8"):
        time.sleep(3600)
    return [float(completions[0] == answer[0])]
'''


def test_33_one_stuck_attempt_is_waited_for_so_long_and_its_siblings_train_without_it(tmp_path):
    """The rule: what has no verdict in time is lost, the rest of its group goes on; and the same again next time."""
    file = tmp_path / "reward.py"
    file.write_text(STUCK)

    def once():
        world, ledger = open_setting(SETTING).world, Ledger(seed=1)
        began = time.perf_counter()
        with Grader(f"{file}:act", timeout=0.5, workers=2, meter=world.meter) as grader:
            world.grade = grader

            async def every():
                return [s async for s in train(RECIPE, world, ledger, {"rollouts": 16})]

            steps = asyncio.run(every())
            return ledger, steps, dict(grader.failures), time.perf_counter() - began

    ledger, steps, failures, took = once()
    lost = ledger.fates["lost"]
    assert lost > 0 and failures == {"timeout": lost}
    assert took < 600 and sum(ledger.fates.values()) == 16
    assert all(r.final[-1:] not in ("2", "8") for s in steps for g in s.groups for r in g.rollouts)
    assert any(len(g.rollouts) < 4 for s in steps for g in s.groups), "a group went on without the stuck one"
    again = once()[0]
    assert again.fresh == ledger.fresh and again.steps == ledger.steps
