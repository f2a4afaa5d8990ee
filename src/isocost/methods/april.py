"""APRIL: launch more groups than a step needs, stop when enough are home, and go on with the others in the next.

    of B groups launched the first B/2 to be complete are trained on; the rest keep what they wrote, with its log-probs
    log ρ_t = log π(y_t) − log μ_t,   μ_t the policy that wrote token t: of a resumed rollout there are several
    Zhou et al. 2025, arXiv:2509.18521
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost.methods import Card, grpo
from isocost.parts.choose import uniform
from isocost.seams import Attempts, Choose, Recipe
from isocost.traits import bounds, gives, requires, trait
from isocost.types import Group, Problem, Rollout, Stop

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("APRIL", "2509.18521", 2025, "grpo", "No step waits for its longest rollouts; no token is lost.")
UNFINISHED = "unfinished"     # the ledger keeps deferred groups under this name


@gives("deferred groups first")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *, inner: Choose = uniform
) -> list[Problem]:
    """The problems whose groups were put by to be played on, oldest first; then as `inner` has it."""
    first = [group.problem for group in ledger.kept[UNFINISHED][:count]]
    return [*first, *inner(pool, ledger, count - len(first), rng)]


@trait("in_parts", "defers_groups")
@requires(
    "deferred groups first", at="choose",
    why="what was put by would wait for its problem to be drawn again; april.choose draws it next",
)
@bounds(home="(0, 1]")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, home: float = 0.5
) -> list[Rollout]:
    """When the first share of a wave's groups is home the others stop where they are, and are put by: none is lost.

    A problem whose group was put by takes it up again in place of new attempts (`april.choose` sees to it
    that this is soon): who had ended has ended, who was cut goes on from there under the weights of the day. Such
    rollouts are marked "resumed". It holds for attempts of one segment (APRIL, arXiv:2509.18521).
    """
    put_by = taken_up(problem, ledger)
    ended = [r.but(origin="resumed") for r in put_by if r.stop is not Stop.CANCELLED]
    cut = [r for r in put_by if r.stop is Stop.CANCELLED]
    plays = [play(problem, [r.attempt], r.segments[-1]) for r in cut] if put_by else [play(problem, attempts)]
    played = [rollout for made in await asyncio.gather(*plays) for rollout in made]
    begun = {r.attempt for r in cut if r.segments[-1].written}      # who never got a slot begins only now
    back = [r.but(origin="resumed") if r.attempt in begun else r for r in played]
    whole = sorted([*ended, *back], key=lambda r: r.attempt)
    if any(r.stop is Stop.CANCELLED for r in whole):
        ledger.kept[UNFINISHED].append(Group(problem, tuple(whole), play.place))
        return []
    play.wave.done += 1
    if play.wave.done >= ceil(home * play.wave.groups):
        play.wave.halt(play.place)
    return whole


def taken_up(problem: Problem, ledger: Ledger) -> tuple[Rollout, ...]:
    """The rollouts of the oldest deferred group of a problem, which is no longer kept; empty if there is none.

    The problem was counted as drawn when the group was started, and is not counted again.
    """
    waiting = ledger.kept[UNFINISHED]
    for i, group in enumerate(waiting):
        if (group.problem.id, group.problem.variant) == (problem.id, problem.variant):
            del waiting[i]
            ledger.drawn -= 1
            return group.rollouts
    return ()


@trait("in_parts")
@trait("leaves_unmarked", keep=("<", 1))
@bounds(keep="(0, 1]")
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


def recipe(**changes: Any) -> Recipe:
    # 64 launched for 32 in the released script. B counts what is launched, so half as many groups make an update.
    return grpo.recipe(
        name="april",
        choose=partial(choose, inner=uniform),
        schedule=partial(schedule, home=0.5),
        groups=32,
    ).but(**changes)
