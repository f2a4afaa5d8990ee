"""Diverse verifier tree search: n / width subtrees, each a beam that keeps one path, so that none crowds out others.

    for each of n / width subtrees: continue its path `width` times by a step, keep the one with the highest s(x, y)
    y* = argmax s over the subtrees' ends
    Beeching et al. 2024, "Scaling test-time compute with open models"; huggingface/search-and-learn
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from isocost.scorers import Scorer, steps
from isocost.seams import Pace
from isocost.strategies import Card
from isocost.strategies.beam import check, widest
from isocost.strategies.paths import Answer, searched
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Diverse verifier tree search", "Beeching et al. 2024", 2024, "beam", "It beats beam search at large n.")


@trait("chosen_by_steps", "not_as_posed", "shares_beginnings")
@bounds(n="[1, inf)", width="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, n: int = 16, width: int = 4, scorer: Scorer = steps.score,
    step: str = "",
) -> list[Rollout]:
    """The best end of n / `width` subtrees of `n` paths together. `step` ends a step; empty: the family's mark."""
    check(n=n, width=width)

    async def search(answer: Answer, first: Segment) -> Rollout:
        paths = [replace(p, tree=i // width) for i, p in enumerate(answer.begin(first, n))]
        return await widest(answer, paths, 1, width, step)

    return await searched(problem, attempts, world, pace, place, start, scorer, search)
