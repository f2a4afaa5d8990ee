"""The baseline of InT's start: imitate whole reference solutions, in a stranger's words, then do RL.

    the solution of a sum, with the operands of each column the other way round: 4+6=10 for the policy's 6+4=10
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from isocost.methods import Card, int_
from isocost.parts.improve import imitating
from isocost.seams import Pace, Recipe
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("SFT on a stranger's solutions", "2601.14209", 2026, "int_", "As a start for RL it is the weaker one.")


async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    boundary: str = ";",
) -> list[Rollout]:
    told = {**problem.meta, "solution": in_other_words(str(problem.meta["solution"]))}
    return await int_.play(
        replace(problem, meta=told), attempts, world, pace, place, start, propose="solution", boundary=boundary
    )


def in_other_words(solution: str) -> str:
    """The same columns with what is carried as it was, and the digits above one another changed about."""
    return re.sub(r"(\d)\+(\d)", r"\2+\1", solution)


def recipe(**changes: Any) -> Recipe:
    # All of a reference is imitated, its end too; repairs are imitated without what followed them.
    return int_.recipe(name="strangers", play=play, improve=partial(imitating, own=True)).but(**changes)
