"""An environment that fails costs the rollouts that it was for, whatever the method, and never the run."""

import asyncio
from dataclasses import replace

import pytest

from isocost import methods
from isocost.parts import experts
from isocost.parts.play import opening, sample
from isocost.seams import Pace
from isocost.types import Place, Role, Stop
from isocost.worlds import toy
from toy import run

PLACE, PACE = Place(7, 2, 3), Pace(lr=0.0, max_tokens=4, max_turns=8)


class Failing:
    """A dialogue of the toy world that fails at a given place."""

    def __init__(self, env, where):
        self.env, self.where = env, where

    def __getattr__(self, name):
        return getattr(vars(self)["env"], name)

    def _fail(self, where):
        if self.where == where:
            raise ConnectionError("gone")

    async def open(self):
        self._fail("open")
        return await self.env.open()

    async def step(self, said, luck):
        self._fail("step")
        return await self.env.step(said, luck)

    def final(self):
        self._fail("final")
        return self.env.final()

    async def close(self):
        await self.env.close()


def failing(where, every):
    """The toy world of dialogues, in which every so many environments fail; and how many have."""
    world, made, failed = toy.dialogues(), [0], [0]
    real = world.env

    def env(problem):
        made[0] += 1
        bad = made[0] % every == 0
        failed[0] += bad
        if bad and where == "make":
            raise ConnectionError("gone")
        return Failing(real(problem), where if bad else "")

    world.env = env
    world.problems = [replace(p, meta={**p.meta, "solution": "abc"}) for p in world.problems]
    return world, failed


@pytest.mark.parametrize(("name", "where"), [
    *((name, "open") for name in ("datamind", "agentrlvr", "adhint", "otr", "rac", "brpo", "mrt")),
    *((name, "make") for name in ("datamind", "agentrlvr")), ("otr", "step"), ("datamind", "final"),
])
def test_an_environment_that_fails_costs_lost_rollouts_and_not_the_run(name, where):
    world, failed = failing(where, 3)
    recipe = methods.recipe(name, groups=2)
    ledger, steps = run(recipe, world, 2 * 2 * recipe.rollouts)
    assert steps and sum(ledger.fates.values()) == world.meter.of().rollouts and ledger.fates["cancelled"] >= 0
    assert 0 < ledger.fates["lost"] <= failed[0]


def test_a_demonstration_that_cannot_open_is_one_lost_rollout():
    world, _ = failing("open", 1)

    async def show():
        return await experts.demonstrated(world.problems[0], 7, world, PACE, PLACE)

    lost = asyncio.run(show())
    assert (lost.attempt, lost.stop, lost.score, lost.origin) == (7, Stop.ERROR, None, "expert")
    assert world.meter.of().rollouts == 1 and sum(world.failures.values()) == 1


def test_a_start_that_no_environment_opens_for_is_billed():
    """Attempts from a hint are billed as they begin: those that do not open are, too."""
    world, failed = failing("open", 2)
    start = asyncio.run(opening(world.problems[0], toy.dialogues(), PACE, PLACE)).read([0], Role.TEACHER)
    made = asyncio.run(sample(world.problems[0], range(8), world, PACE, PLACE, start))
    assert sum(r.stop is Stop.ERROR for r in made) == failed[0] == 4 and world.meter.of().rollouts == 8
