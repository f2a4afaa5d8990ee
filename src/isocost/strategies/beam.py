"""Beam search over steps: after each step only the best n / width texts go on, each in `width` copies.

    {y_i} of k steps  →  the n / width with the highest s(x, y_i), each continued `width` times  →  k + 1 steps
    y* = argmax s(x, y_i) of those that are over.    Lookahead: s of the text `look` steps later, which are then dropped
    Snell et al. 2024, arXiv:2408.03314, section 5.2
"""

from __future__ import annotations

from collections.abc import Sequence

from isocost.errors import UserError
from isocost.scorers import Scorer, steps
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.paths import Answer, Path, searched
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Beam search", "2408.03314", 2024, "best_of", "It beats best-of on hard problems at equal tokens.")


def check(*, n: int, width: int) -> None:
    """Raises UserError unless `width` divides n, with the nearest sizes."""
    if width > n or n % width:
        low, high = max(n // width, 1) * width, (n // width + 1) * width
        sizes = f"n={low} or n={high}" if low < n else f"n={high}"
        raise UserError(f"n={n} is not a multiple of width={width}: write {sizes}")


@trait("chosen_by_steps", "not_as_posed", "shares_beginnings")
@bounds(n="[1, inf)", width="[1, inf)", look="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 16, width: int = 4, scorer: Scorer = steps.score,
    step: str = "", look: int = 0,
) -> list[Rollout]:
    """The best of `n` paths, of which n / `width` survive each step. `step` ends a step; empty: the family's mark.

    A path that is over stays once, and is compared with the others until all are over.
    """
    check(n=n, width=width)

    async def search(answer: Answer, first: Segment) -> Rollout:
        return await widest(answer, answer.begin(first, n), n // width, width, step, look)

    return await searched(problem, attempts, world, pace, place, start, scorer, search)


async def widest(answer: Answer, paths: list[Path], keep: int, width: int, step: str, look: int = 0) -> Rollout:
    """The path with the highest score when all are over; after each step the best `keep` of each tree go on.

    Ties go to the first. Each tree keeps a path until that is over.
    """
    while True:
        paths = await answer.advance(paths, step, look)
        if all(p.over for p in paths) or all(p.score is None for p in paths):
            best = max(paths, key=lambda p: p.value)
            return answer.end(None if best.score is None else best, best)
        trees: dict[int, list[Path]] = {}
        for path in sorted(paths, key=lambda p: -p.value):
            trees.setdefault(path.tree, []).append(path)
        best_first = [path for k in sorted(trees) for path in trees[k][:keep]]
        paths = [p for path in best_first for p in answer.branch(path, 1 if path.over else width)]
