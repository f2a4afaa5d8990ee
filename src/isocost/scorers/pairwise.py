"""A knockout: finished texts meet in pairs, the better one goes on, until one is left; n − 1 comparisons.

    s(x, y) = rounds that y stayed in / rounds
    Liu et al. 2025, "Pairwise RM", arXiv:2501.13007
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from isocost.gather import together
from isocost.scorers import generative
from isocost.types import Problem, Rollout
from isocost.world import World

Prefer = Callable[[Problem, str, str, World], Awaitable[bool | None]]


async def score(
    problem: Problem, texts: Sequence[Rollout], over: Sequence[bool], world: World, *,
    prefer: Prefer = generative.prefer,
) -> list[float | None]:
    """The share of rounds that each text stayed in; None for texts under way. The first wins where `prefer` cannot say.

    One without a partner stays. What a comparison costs is charged by `prefer`.
    """
    left, last = [i for i, done in enumerate(over) if done], dict[int, int]()
    rounds = max(len(left) - 1, 0).bit_length()
    for k in range(rounds):
        pairs = list(zip(left[::2], left[1::2], strict=False))
        wins = await together(*(_first(prefer, problem, texts[a].final, texts[b].final, world) for a, b in pairs))
        last |= {b if first else a: k for (a, b), first in zip(pairs, wins, strict=True)}
        left = [i for i in left if i not in last]
    return [last.get(i, rounds) / max(rounds, 1) if done else None for i, done in enumerate(over)]


async def _first(prefer: Prefer, problem: Problem, one: str, other: str, world: World) -> bool:
    return await prefer(problem, one, other, world) is not False
