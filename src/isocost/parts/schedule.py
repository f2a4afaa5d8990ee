"""The order of attempts, and which to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isocost.seams import Attempts
from isocost.traits import exported
from isocost.types import Problem, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger


@exported()
async def together(problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger) -> list[Rollout]:
    """All at once."""
    return await play(problem, attempts)
