"""In what order attempts are made, and whom to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from isocost import chance
from isocost.errors import UserError
from isocost.parts import track
from isocost.seams import Attempts
from isocost.traits import bounds, requires, trait
from isocost.types import Group, Problem, Rollout, Segment, Stop

if TYPE_CHECKING:
    from isocost.ledger import Ledger


async def together(problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger) -> list[Rollout]:
    """All at once."""
    return await play(problem, attempts)


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


@trait("in_parts", "defers_groups")
@requires(
    "deferred groups first", at="choose",
    why="what was put by would wait for its problem to be drawn again; choose.unfinished_first draws it next",
)
@bounds(home="(0, 1]")
async def first_groups(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, home: float = 0.5
) -> list[Rollout]:
    """When the first share of a wave's groups is home the others stop where they are, and are put by: none is lost.

    A problem whose group was put by takes it up again in place of new attempts (`choose.unfinished_first` sees to it
    that this is soon): who had ended has ended, who was cut goes on from there under the weights of the day. Such
    rollouts are marked "resumed". It holds for attempts of one segment (APRIL, arXiv:2509.18521).
    """
    put_by = ledger.take_up(problem)
    ended = [r.but(origin="resumed") for r in put_by if r.stop is not Stop.CANCELLED]
    cut = [r for r in put_by if r.stop is Stop.CANCELLED]
    plays = [play(problem, [r.attempt], r.segments[-1]) for r in cut] if put_by else [play(problem, attempts)]
    played = [rollout for made in await asyncio.gather(*plays) for rollout in made]
    begun = {r.attempt for r in cut if r.segments[-1].written}      # who never got a slot begins only now
    back = [r.but(origin="resumed") if r.attempt in begun else r for r in played]
    whole = sorted([*ended, *back], key=lambda r: r.attempt)
    if any(r.stop is Stop.CANCELLED for r in whole):
        ledger.put_by(Group(problem, tuple(whole), play.place))
        return []
    play.wave.home += 1
    if play.wave.home >= ceil(home * play.wave.groups):
        play.wave.halt(play.place)
    return whole


def confidence(text: Segment) -> float:
    """Mean log-prob of what the policy wrote."""
    return float(text.logp[text.own].mean()) if text.written else 0.0


@trait("in_parts")
@trait("leaves_unmarked", keep=("<", 1))
@bounds(
    at="[1, inf)", keep="(0, 1]", aim="[0, 1]", cold="[0, inf)", least="[0, inf)", bins="[1, inf)", window="[1, inf)"
)
async def pruned(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *,
    at: int = 512, keep: float = 0.5, aim: float = 0.5, cold: int = 20, least: int = 2, bins: int = 10,
    window: int = 2048, outlook: Callable[[Segment], float] = confidence,
) -> list[Rollout]:
    """Of those who are not done after `at` tokens only some go on, chosen so that half are right (arXiv:2603.24840).

    How likely each will be is told from its `outlook` then, by how earlier ones with such an outlook have ended
    (`track.odds`); `chances` says who goes on. At least `least` of a group come home. In the first `cold` steps
    everyone goes on, and is learnt from. Who does not go on is cancelled; what it cost is paid. Raises UserError for
    `at` below 1.
    """
    if at < 1:
        raise UserError(f"schedule.at is {at}; there is nothing to tell from before the first token")
    early = await play(problem, attempts, most=at)
    cut = [r for r in early if r.stop is Stop.LENGTH] if at < play.pace.max_tokens else []
    told = {r.attempt: outlook(r.segments[-1]) for r in cut}
    on = [r.attempt for r in cut]
    if cut and ledger.step >= cold:
        rng = chance.generator(play.place.seed, chance.Purpose.SELECT, play.place.wave, play.place.slot, attempts[0])
        odds = track.odds(ledger, list(told.values()), bins=bins, window=window)
        rank = rng.random(len(cut)) / np.maximum(chances(odds, keep=keep, aim=aim), 1e-12)
        many = max(int((rank < 1).sum()), min(least - (len(early) - len(cut)), len(cut)))
        on = [cut[i].attempt for i in sorted(np.argsort(rank, kind="stable")[:many].tolist())]
    home = await asyncio.gather(*(play(problem, [r.attempt], r.segments[-1]) for r in cut if r.attempt in on))
    rest = [r for r in early if r.attempt not in told]
    return sorted([*rest, *(r.but(outlook=told[r.attempt]) for one in home for r in one)], key=lambda r: r.attempt)


def chances(odds: Sequence[float], *, keep: float, aim: float) -> np.ndarray:
    """With which chance each of a group goes on, so that a share `keep` does, of which a share `aim` will be right.

    keep · (p aim / p̄ + (1 − p)(1 − aim) / (1 − p̄)), in [0, 1]: p are the odds, p̄ their mean. Where nothing is cut off
    at 1 the mean is exactly `keep`, and with odds of 0 and 1 that come true the share right is exactly `aim`.
    """
    p = np.asarray(odds, dtype=np.float64)
    mean = p.mean()
    if not 0 < mean < 1:
        return np.full(len(p), keep)
    return np.minimum(keep * (p * aim / mean + (1 - p) * (1 - aim) / (1 - mean)), 1.0)
