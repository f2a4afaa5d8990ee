"""APRIL: launch more groups than a step needs, stop when enough are complete, and continue the rest later.

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

from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.parts.choose import uniform
from isocost.seams import Attempts, Choose, Recipe
from isocost.traits import bounds, gives, requires, trait
from isocost.types import Group, Problem, Rollout, Stop

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("APRIL", "2509.18521", 2025, "grpo", "No step waits for its longest rollouts, and no token is lost.")
UNFINISHED = "unfinished"     # the ledger keeps deferred groups under this name


@gives("deferred groups first")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *, inner: Choose = uniform
) -> list[Problem]:
    """First the problems of deferred groups, oldest first; then problems chosen by `inner`."""
    first = [group.problem for group in ledger.kept[UNFINISHED][:count]]
    return [*first, *inner(pool, ledger, count - len(first), rng)]


@trait("in_parts", "defers_groups")
@requires(
    "deferred groups first", at="choose",
    why="a deferred group would wait until its problem is drawn again; april.choose draws it next",
)
@bounds(home="(0, 1]")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, home: float = 0.5
) -> list[Rollout]:
    """Stop the wave when a share `home` of its groups is complete, and defer the rest (APRIL, arXiv:2509.18521).

    A deferred group keeps its rollouts. When its problem is chosen again (`april.choose` chooses it next), the group is
    continued instead of new attempts: finished rollouts stay, stopped ones continue under the current policy. Such
    rollouts have the origin "resumed". Requires attempts of one segment.
    """
    deferred_before = resumed_group(problem, ledger).rollouts
    ended = [r.but(origin="resumed") for r in deferred_before if r.stop is not Stop.CANCELLED]
    cut = [r for r in deferred_before if r.stop is Stop.CANCELLED]
    plays = [play(problem, [r.attempt], r) for r in cut] if deferred_before else [play(problem, attempts)]
    played = [rollout for made in await together(*plays) for rollout in made]
    started = {r.attempt for r in cut if r.segments[-1].written}    # a rollout without a token is started only now
    back = [r.but(origin="resumed") if r.attempt in started else r for r in played]
    whole = sorted([*ended, *back], key=lambda r: r.attempt)
    if any(r.stop is Stop.CANCELLED for r in whole):
        ledger.kept[UNFINISHED].append(Group(problem, tuple(whole), play.place))
        return []
    play.wave.done += 1
    if play.wave.done >= ceil(home * play.wave.groups):
        play.wave.halt(play.place)
    return whole


def resumed_group(problem: Problem, ledger: Ledger) -> Group:
    """The oldest deferred group of a problem, which is no longer kept; without rollouts if there is none.

    The problem was counted as drawn when the group was started, and is not counted again.
    """
    waiting = ledger.kept[UNFINISHED]
    for i, group in enumerate(waiting):
        if (group.problem.id, group.problem.variant) == (problem.id, problem.variant):
            del waiting[i]
            ledger.drawn -= 1
            return group
    return Group(problem, ())


@trait("in_parts")
@trait("leaves_unmarked", keep=("<", 1))
@bounds(keep="(0, 1]")
async def first_back(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, keep: float = 0.75
) -> list[Rollout]:
    """Start all attempts, keep the first share that finishes, cancel the rest (APRIL's over-provisioning).

    First means the fewest tokens written, ties by attempt number, so wall-clock time decides nothing. The cost of
    cancelled attempts up to that point is charged (arXiv:2509.18521).
    """
    needed = ceil(keep * len(attempts))
    pending = {asyncio.create_task(play(problem, [attempt])) for attempt in attempts}
    finished: list[Rollout] = []
    try:
        while len(finished) < needed:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            finished += [rollout for task in done for rollout in task.result()]
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    finished.sort(key=lambda r: (sum(int(s.own.sum()) for s in r.segments), r.attempt))
    return sorted(finished[:needed], key=lambda r: r.attempt)


def recipe(**changes: Any) -> Recipe:
    # The released script launches 64 groups for 32. B counts launched groups, so half as many make an update.
    return grpo.recipe(
        name="april",
        choose=partial(choose, inner=uniform),
        schedule=partial(schedule, home=0.5),
        groups=32,
    ).but(**changes)
