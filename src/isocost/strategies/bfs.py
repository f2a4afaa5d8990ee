"""Best-first search: the most promising text of all that are open goes on by a step, until the best one has ended.

    priority = Σ_{t ≤ L} log π(y_t | x, y_{<t}) / L^α over the L steps of a text, or with a scorer s(x, y)
    Xin et al. 2025, "BFS-Prover", arXiv:2502.03438, section 3; version 2: arXiv:2509.06493
    Left out: the planner that cuts a theorem into lemmas, and the rounds of expert iteration
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp

from isocost.scorers import Scorer
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.paths import Answer, Path, searched
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("BFS-Prover", "2502.03438", 2025, "beam", "Best-first search suffices without a value function.")


def likelihood(path: Path, alpha: float) -> float:
    """exp of the priority: in (0, 1], and in the same order. A text of one step has its own probability."""
    total = sum(float(s.logp[s.own].sum()) for s in path.rollout.segments)
    return exp(min(total / (len(path.past) + 1) ** alpha, 0.0))


@trait("chosen_by_steps", "not_as_posed", "shares_beginnings")
@bounds(n="[1, inf)", width="[1, inf)", alpha="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 16, width: int = 4, alpha: float = 1.0,
    scorer: Scorer | None = None, step: str = "",
) -> list[Rollout]:
    """The first text that is the best of all when it has ended; ties go to ended texts, then to the longer ones.

    A text that goes on is continued `width` times, while fewer than `n` texts were begun; then only itself. Without a
    scorer the priority is the likelihood; `alpha` 0 prefers short texts, 1 compares the mean of a step.
    """

    async def valued(answer: Answer, paths: Sequence[Path]) -> list[Path]:
        grown = await answer.advance(paths, step)
        return grown if scorer else [replace(p, score=likelihood(p, alpha)) for p in grown]

    async def search(answer: Answer, first: Segment) -> Rollout:
        there = await valued(answer, answer.begin(first, min(width, n)))
        while True:
            best = there.pop(max(range(len(there)), key=lambda i: (there[i].value, there[i].over, there[i].length)))
            if best.over or best.score is None:
                return answer.end(None if best.score is None else best, best)
            count = min(width, n - answer.tries + 1)
            there += await valued(answer, answer.branch(best, count))

    return await searched(problem, attempts, world, pace, place, start, scorer, search)
