"""The order of attempts, and which to stop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isocost.seams import Attempts, WholePlay
from isocost.traits import by_wave, exported
from isocost.types import Problem, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def _at_once(play: WholePlay) -> WholePlay:
    return play


@by_wave(_at_once)
@exported()
async def together(problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger) -> list[Rollout]:
    """All at once."""
    return await play(problem, attempts)
