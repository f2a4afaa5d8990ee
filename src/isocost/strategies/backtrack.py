"""Backtracking: go on step by step, and back to an earlier step when the score falls.

    s(x, y_{1..k}) < s(x, y_{1..k−1}) − drop:  y ← y_{1..k−j}, and another step from there;   j grows by one with each
    fall at or before the last one.    y* = argmax s of the texts that ended
    Depth-first search as in Yao et al. 2023, "Tree of Thoughts", arXiv:2305.10601; compared with parallel samples at
    equal tokens by Qin et al. 2025, "To Backtrack or Not to Backtrack", arXiv:2504.07052, whose models are taught to
    go back within one text: `matched` is their number of samples
"""

from __future__ import annotations

from collections.abc import Sequence

from isocost.scorers import Scorer, steps
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.paths import Answer, Path, searched
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Backtracking", "2504.07052", 2025, "best_of", "It beats samples of as many tokens if steps are checked.")
UNKNOWN = 0.5       # the score of a text without a step


def matched(sequential: float, direct: float) -> int:
    """How many samples of `direct` cost (tokens or FLOP) a search of this cost pays for: ⌊sequential / direct⌋."""
    return int(sequential // direct)


@trait("chosen_by_steps", "not_as_posed", "shares_beginnings")
@bounds(n="[1, inf)", drop="[0, 1]")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 16, scorer: Scorer = steps.score, drop: float = 0.0,
    step: str = "",
) -> list[Rollout]:
    """The first end whose score did not fall, after at most `n` texts; without such an end, that with the highest.

    A fall is a score below the one a step before by more than `drop`; before the first step that is 0.5. `step` ends a
    step; empty: the family's mark.
    """

    async def search(answer: Answer, first: Segment) -> Rollout:
        (path,), ends = answer.begin(first, 1), list[Path]()
        at, back = 0, 0         # steps before the last fall, and how many it went back
        while True:
            (now,) = await answer.advance([path], step)
            if now.score is None:
                return answer.end(None, now)
            before = path.score if path.score is not None else UNKNOWN
            fell = now.score < before - drop
            if now.over:
                ends.append(now)
            if not fell or answer.tries == n:
                if now.over:
                    return answer.end(max(ends, key=lambda p: p.value), now)
                path = now
                continue
            back = back + 1 if len(now.past) <= at and back else 1
            at = len(now.past)
            origin = now.past[-back] if back <= at else None
            (path,) = answer.branch(origin, 1, others=True) if origin else answer.begin(first, 1)

    return await searched(problem, attempts, world, pace, place, start, scorer, search)
