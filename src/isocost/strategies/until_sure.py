"""Vote until sure: sample a few answers at a time, and stop when the leader is likely enough to stay the leader.

    v₁, v₂ votes of the two most frequent answers;  P(p > ½ | v₁, v₂) under Beta(v₁ + 1, v₂ + 1) ≥ surety: stop
    Aggarwal et al. 2023, "Let's sample step by step", arXiv:2305.11860
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scipy.special import betainc

from isocost.gather import together
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.strategies import Card, Pick, vote
from isocost.strategies.paths import Answer, numbers, voted
from isocost.traits import bounds
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Adaptive consistency", "2305.11860", 2023, "vote", "It votes as well with fewer samples.")


def sure(answers: Sequence[str | None]) -> float:
    """The posterior probability that the most frequent answer beats the next one; 0 without an answer."""
    votes = [k for _, k in Counter(a for a in answers if a is not None).most_common(2)]
    if not votes:
        return 0.0
    first, second = [*votes, 0][:2]
    return float(1 - betainc(first + 1, second + 1, 0.5))


def choose(
    answers: Sequence[str | None], scores: Sequence[float | None], *, n: int, surety: float, by: int
) -> Pick:
    """The vote of the first samples of which it is sure, `by` at a time, of the first n at most."""
    batches: list[int] = []
    while sum(batches) < n and (not batches or sure(answers[: sum(batches)]) < surety):
        batches.append(min(by, n - sum(batches)))
    return Pick(vote.choose(answers, scores, n=sum(batches)).chosen, tuple(batches))


@bounds(n="[1, inf)", surety="[0, 1]", by="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 16, surety: float = 0.95, by: int = 4,
) -> list[Rollout]:
    """At most `n` samples, `by` at a time, until the leader beats the next answer with probability `surety`."""

    async def one(attempt: int) -> Rollout:
        tries: list[Rollout] = []
        while len(tries) < n and (not tries or sure([voted(t) for t in tries]) < surety):
            more = numbers(attempt, n)[len(tries) : len(tries) + by]
            tries += await sample(problem, more, world, pace, place, start)

        def chosen(answers: Sequence[str | None], scores: Sequence[float | None]) -> Pick:
            return choose(answers, scores, n=len(tries), surety=surety, by=by)

        return await Answer(problem, attempt, world, pace, place).pick(tries, chosen)

    return await together(*map(one, attempts))
