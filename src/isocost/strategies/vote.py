"""Vote: sample n answers and take the most frequent one; with a scorer each vote counts as much as its score.

    a* = argmax_a Σ_{i ≤ n} w_i 1[a_i = a],   w_i = 1, or s(x, y_i)
    Wang et al. 2022, "Self-consistency", arXiv:2203.11171; weights: Li et al. 2023, arXiv:2206.02336
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from isocost.scorers import Scorer
from isocost.seams import Pace
from isocost.strategies import Card, Pick
from isocost.strategies.paths import pooled
from isocost.traits import bounds
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Self-consistency", "2203.11171", 2022, "one", "The most frequent answer is right more often than one.")


def choose(
    answers: Sequence[str | None], scores: Sequence[float | None], *, n: int, scorer: Scorer | None = None
) -> Pick:
    """The first sample of the answer with the most votes among the first n, ties to the answer that came first.

    A sample without an answer has no vote; if none has one, the first sample is taken. With a scorer a sample without
    a score has no vote either, and if none has one nothing can be chosen.
    """
    weights = [1.0] * n if scorer is None else [s if s is not None else 0.0 for s in scores[:n]]
    if scorer is not None and all(s is None for s in scores[:n]):
        return Pick(None, (n,))
    votes: dict[str, float] = {}
    for answer, weight in zip(answers[:n], weights, strict=True):
        if answer is not None:
            votes[answer] = votes.get(answer, 0.0) + weight
    return Pick(list(answers[:n]).index(max(votes, key=votes.__getitem__)) if votes else 0, (n,))


@bounds(n="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 8, scorer: Scorer | None = None,
) -> list[Rollout]:
    """The most frequent answer of `n` samples, weighted by `scorer` if there is one."""
    return await pooled(problem, attempts, world, pace, place, start, scorer, partial(choose, n=n, scorer=scorer), n)
