"""In which variants a problem is posed."""

from __future__ import annotations

from isocost.types import Problem
from isocost.world import World


async def unguided(problem: Problem, world: World) -> list[Problem]:
    """The problem as it is."""
    return [problem]
