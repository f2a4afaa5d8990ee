"""Measure a policy on problems: exactly where the problems allow it, by sampling where they do not.

What is evaluated with (the `play` and `pace` of a recipe) is what is trained with. Everything is charged to the
account it is called under; the caller names it (`evaluation` or `probe`), so it is never in C and always in the bill.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from isocost import meter
from isocost.chance import Purpose
from isocost.seams import Pace, Recipe
from isocost.types import Group, Place, Problem
from isocost.world import World


@dataclass(frozen=True)
class Evaluation:
    """Pass rate per problem, and how it was had."""

    right: Float[ndarray, "P"]  # in [0, 1]; a mean over samples, or exact
    exact: bool
    groups: tuple[Group, ...] = ()  # what was sampled; empty when exact
    unscored: int = 0  # attempts whose verifier failed: in no mean

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.right)) if len(self.right) else float("nan")


async def evaluate(
    recipe: Recipe,
    world: World,
    problems: Sequence[Problem],
    pace: Pace,
    *,
    samples: int,
    seed: int = 0,
    purpose: Purpose = Purpose.EVALUATION,
    account: str = meter.EVALUATION,
    exact: bool = True,
) -> Evaluation:
    """Pass@1 of each problem. Sampled sets share random numbers: one `seed` draws the same across arms and steps."""
    with meter.on(account):
        if exact and world.exact is not None:
            return Evaluation(np.asarray(world.exact(problems, pace.sampling), dtype=np.float64), exact=True)
        groups = await asyncio.gather(
            *(
                _group(recipe, world, p, Place(seed, 0, slot, int(purpose)), samples, pace)
                for slot, p in enumerate(problems)
            )
        )
    scores = [[r.score.value for r in g.rollouts if r.score is not None] for g in groups]
    unscored = sum(r.score is None for g in groups for r in g.rollouts)
    right = np.array([np.mean(s) if s else np.nan for s in scores])
    return Evaluation(right, exact=False, groups=tuple(groups), unscored=unscored)


async def _group(
    recipe: Recipe, world: World, problem: Problem, place: Place, samples: int, pace: Pace
) -> Group:
    rollouts = await recipe.play(problem, range(samples), world, pace, place)
    scores = await world.grade(rollouts)
    return Group(problem, tuple(r.but(score=s) for r, s in zip(rollouts, scores, strict=True)), place)
