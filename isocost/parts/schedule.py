"""In what order attempts are made, and whom to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from isocost.seams import Attempts
from isocost.types import Problem, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger


async def together(problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger) -> list[Rollout]:
    """All at once."""
    return await play(problem, attempts)


async def first_back(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, keep: float = 0.75
) -> list[Rollout]:
    """Start them all, keep the first share home, give up on the rest (APRIL's over-provisioning, arXiv:2509.18521).

    First means fewest tokens written, ties by attempt number, so the wall clock decides nothing. Those given up on
    do not come home; what they cost until then is charged.
    """
    wanted = ceil(keep * len(attempts))
    pending = {asyncio.create_task(play(problem, [attempt])) for attempt in attempts}
    home: list[Rollout] = []
    try:
        while len(home) < wanted:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            home += [rollout for task in done for rollout in task.result()]
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    home.sort(key=lambda r: (sum(int(s.own.sum()) for s in r.segments), r.attempt))
    return sorted(home[:wanted], key=lambda r: r.attempt)
