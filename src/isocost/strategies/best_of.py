"""Best of n: sample n answers and take the one that the scorer likes best.

    y* = argmax_{i ≤ n} s(x, y_i),  y_i ~ π(x);   with an exact scorer P(right) = 1 − (1 − p)^n
    Stiennon et al. 2020, arXiv:2009.01325; Cobbe et al. 2021, arXiv:2110.14168
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from isocost.scorers import Scorer, outcome
from isocost.seams import Pace
from isocost.strategies import Card, Pick
from isocost.strategies.paths import NO_SCORE, pooled
from isocost.traits import bounds
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Best of n", "2009.01325", 2020, "one", "With an exact scorer accuracy is pass@n.")


def choose(answers: Sequence[str | None], scores: Sequence[float | None], *, n: int) -> Pick:
    """The highest score of the first n, ties to the first."""
    known = [NO_SCORE if s is None else s for s in scores[:n]]
    best = max(range(n), key=known.__getitem__)
    return Pick(None if scores[best] is None else best, (n,))


@bounds(n="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 8, scorer: Scorer = outcome.score,
) -> list[Rollout]:
    """The best of `n` samples by `scorer`. Samples of a dialogue are whole dialogues."""
    return await pooled(problem, attempts, world, pace, place, start, scorer, partial(choose, n=n), n)
