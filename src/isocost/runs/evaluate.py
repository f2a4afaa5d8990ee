"""Measure a policy on problems: exactly if the world can compute pass@1, else by sampling.

A world with a truth marks the attempts by both verifiers: the truth is their score, and what trains their mark.
Evaluations use the recipe's own `play` and `pace`. Their cost goes to the account that the caller names (`evaluation`
or `probe`), so it is never part of C and always in the bill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from isocost import meter
from isocost.chance import Purpose
from isocost.errors import UserError
from isocost.feed import UNBILLED
from isocost.gather import together
from isocost.screen.words import counted
from isocost.seams import Pace, Recipe
from isocost.types import Group, Place, Problem, Stop
from isocost.world import World

ATTEMPTS = 4  # k of the best@k and worst@k in the record (IsoCompute, arXiv 2603.12151)
EVALUATION_SEED = 20_260_101  # the same for all runs, so that sampled evaluations share their random numbers


def best_of(scores: Sequence[float], k: int) -> float:
    """The mean, over all k-subsets of a problem's scores, of the highest: unbiased; NaN with fewer than k scores.

    For right-or-wrong scores, c of s right, this is 1 - C(s-c, k) / C(s, k) (Chen et al. 2021, arXiv 2107.03374,
    equation 1): the i-th score from below is the highest of C(i-1, k-1) subsets.
    """
    s = len(scores)
    if s < k:
        return float("nan")
    return sum(comb(i, k - 1) * x for i, x in enumerate(sorted(scores))) / comb(s, k)


def worst_of(scores: Sequence[float], k: int) -> float:
    """The same for the lowest of k; for right-or-wrong scores C(c, k) / C(s, k)."""
    return 1 - best_of([1 - x for x in scores], k)


@dataclass(frozen=True)
class Evaluation:
    """Pass rate per problem, and whether it is exact or sampled."""

    right: Float[ndarray, "P"]  # in [0, 1]; a mean over samples, or exact
    exact: bool
    groups: tuple[Group, ...] = ()  # the samples; empty when exact
    unscored: int = 0  # attempts whose verifier or environment failed: in no mean

    @property
    def marks(self) -> Float[ndarray, "P"]:
        """The same by the verifier that trains, where the world has a truth; NaN for a problem without a mark."""
        each = ([r.mark.value for r in g.rollouts if r.mark is not None] for g in self.groups)
        return np.array([np.mean(x) if x else np.nan for x in each])

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.right)) if len(self.right) else float("nan")

    def best(self, k: int) -> Float[ndarray, "P"]:
        """The chance per problem that one of k is right: 1 - (1 - p)^k, or unbiased from k samples or more; else
        NaN."""
        return 1 - (1 - self.right) ** k if self.exact else self._over_samples(best_of, k)

    def worst(self, k: int) -> Float[ndarray, "P"]:
        """The chance per problem that k attempts are all right: p^k, or unbiased from the samples as in `best`."""
        return self.right**k if self.exact else self._over_samples(worst_of, k)

    def _over_samples(self, of: Callable[[Sequence[float], int], float], k: int) -> ndarray:
        return np.array([of(scores_of(g), k) for g in self.groups])


def scores_of(group: Group) -> list[float]:
    """The scores of a group's attempts, without those whose verifier failed."""
    return [r.score.value for r in group.rollouts if r.score is not None]


async def evaluate(
    recipe: Recipe, world: World, problems: Sequence[Problem], pace: Pace, *, samples: int, seed: int = 0,
    exact: bool = True, done: Callable[[int], None] = lambda problems: None,
) -> Evaluation:
    """Pass@1 of each problem, charged to the account `evaluation`. Samples with one `seed` share their random numbers
    across arms and steps. `done` is called with the number of problems that are sampled and graded, each time there is
    one more."""
    so_far = 0

    async def one(slot: int, problem: Problem) -> Group:
        nonlocal so_far
        group = await group_of(recipe, world, problem, Place(seed, 0, slot, int(Purpose.EVALUATION)), samples, pace)
        so_far += 1
        done(so_far)
        return group

    with meter.on(meter.EVALUATION):
        if exact and world.exact is not None:
            return Evaluation(np.asarray(world.exact(problems, pace.sampling), dtype=np.float64), exact=True)
        groups = await together(*(one(slot, p) for slot, p in enumerate(problems)))
    scores = [scores_of(g) for g in groups]
    unscored = sum(r.score is None for g in groups for r in g.rollouts)
    right = np.array([np.mean(s) if s else np.nan for s in scores])
    return Evaluation(right, exact=False, groups=tuple(groups), unscored=unscored)


async def group_of(
    recipe: Recipe, world: World, problem: Problem, place: Place, samples: int, pace: Pace
) -> Group:
    """This many attempts at one problem; those whose environment did not fail are scored. Charged to the caller.

    In a world with a truth the score is by it, and the mark by the verifier that trains.

    Raises UserError for a `play` that returns more rollouts than were billed.
    """
    with meter.tab() as tab, meter.begins(True):
        rollouts = await recipe.play(problem, range(samples), world, pace, place)
    if (over := len(rollouts) - tab.cost.rollouts) > 0:
        raise UserError(f"an evaluation: {UNBILLED.format(rollouts=counted(over, 'rollout'))}")
    whole = [r for r in rollouts if r.stop is not Stop.ERROR]
    scores = dict(zip((r.attempt for r in whole), await world.grade(whole), strict=True))
    if world.truth is None:
        return Group(problem, tuple(r.but(score=scores.get(r.attempt)) for r in rollouts), place)
    true = dict(zip(scores, await world.truth(whole), strict=True))
    return Group(problem, tuple(r.but(score=true.get(r.attempt), mark=scores.get(r.attempt)) for r in rollouts), place)
