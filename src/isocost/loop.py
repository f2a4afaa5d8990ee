"""The loop. Sample, score, credit, update; until the budget is spent."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise

import numpy as np

from isocost.batch import Batch
from isocost.credit import credited
from isocost.feed import Feed
from isocost.ledger import Ledger
from isocost.ops import array
from isocost.seams import Recipe
from isocost.types import End, Fate, Group, Role
from isocost.world import World


@dataclass(frozen=True)
class Step:
    """One step of the loop, after its update. The caller evaluates, saves and prints between steps."""

    line: dict[str, float]
    batch: Batch            # that was trained on

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.batch.groups


async def train(
    recipe: Recipe, world: World, ledger: Ledger, budget: Mapping[str, float], end: End | None = None,
    clock: Callable[[], float] | None = None,
) -> AsyncGenerator[Step, None]:
    """Run a recipe in a world until the budget cannot pay for another wave, yielding after every step.

    A budget in seconds is compared with `clock`. A caller that stops early closes the generator: unfinished rollouts
    are then cancelled and charged.
    """
    async with Feed(recipe, world, ledger, budget, clock) as feed:
        while groups := await feed.take():                                    # sampled, scored, selected
            batch, metrics = await feed.beside(partial(learn, groups, recipe, world, ledger))
            await world.engine.load(world.learner.weights())                  # the next wave is on-policy
            ledger.settle_all(batch.groups, fates_of(batch))
            yield Step(ledger.close(world.meter.of(), len(world.problems), metrics), batch)
        if end is not None:
            end.reason, end.bound, end.why = feed.ended, feed.bound, feed.why


def learn(
    groups: Sequence[Group], recipe: Recipe, world: World, ledger: Ledger
) -> tuple[Batch, dict[str, float]]:
    """Train on the groups of a step: the batch as it was trained on, and the metrics of its updates."""
    batch = credited(groups, recipe, world, ledger)                           # padded, enriched, credited, averaged
    return batch, recipe.improve(batch, recipe, world, ledger)


_FATES = {True: Fate.TRAINED, False: Fate.DEAD}      # by whether a rollout had an advantage


def fates_of(batch: Batch) -> list[list[Fate]]:
    """Per group, whether each rollout had an advantage in the update, or was an expert's and imitated."""
    assert batch.advantage is not None
    size = np.add.reduce(np.abs(array(batch.advantage)), -1)
    rollout, count = array(batch.rollout), batch.reward.numel()
    signal = np.bincount(rollout, size, count)
    if any(r.origin == "expert" for g in batch.groups for r in g.noted):
        taught = (batch.role == int(Role.TEACHER)).sum(-1).cpu().numpy()
        signal += np.bincount(rollout, taught, count) * [r.origin == "expert" for g in batch.groups for r in g.rollouts]
    fates = [_FATES[s] for s in (signal > 0).tolist()]
    return [fates[a:b] for a, b in pairwise(accumulate((group.size for group in batch.groups), initial=0))]
