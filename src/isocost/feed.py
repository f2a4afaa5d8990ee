"""Samples waves of groups ahead of the learner: the only place where sampling and training overlap.

    choose -> guide -> allocate -> schedule(play) -> reward   =  one wave, launched whole
                                                      |
    take:   saw (ledger)  ->  too old? -> select?  ->  B groups for a step; every other rollout gets its fate here

A wave is `groups` posed variants of whole problems, each with a slot; (wave, slot) is a group's identity and the
address of its random numbers. A wave is launched only if the budget can pay for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from isocost import chance, meter
from isocost.columns import whole
from isocost.errors import UserError
from isocost.gather import together
from isocost.ledger import Ledger
from isocost.seams import Attempts, Pace, Recipe, Wave, Whole
from isocost.traits import draws
from isocost.types import Cost, Fate, Group, Place, Problem
from isocost.world import Learner, World

_UNUSED = np.random.default_rng(0)      # of a `choose` that leaves it alone

# What a run's budget may be counted in: (training's cost, the learner, the run's clock) -> amount.
UNITS: Mapping[str, Callable[[Cost, Learner, float], float]] = {
    "rollouts": lambda c, p, s: c.rollouts,
    "tokens": lambda c, p, s: c.decode,
    "env-steps": lambda c, p, s: c.env_steps,
    "flop": lambda c, p, s: c.flops(p.parameters, p.learned),
    "seconds": lambda c, p, s: s,
    "busy seconds": lambda c, p, s: c.seconds,
}


@dataclass(frozen=True)
class Played:
    """A complete group, and how many of its rollouts were cancelled.

    Rollouts that are completed in a later wave were counted as cancelled in their own, so the number can be negative.
    """

    group: Group
    cancelled: int


class Feed:
    """`max_age = 0` is the synchronous loop; a larger value overlaps sampling and training. There is no second loop.

    `clock` gives the run's seconds, with its evaluations and pauses: what a budget of time pays for. Without one they
    are the seconds in which training was busy, by which methods are compared.
    """

    def __init__(
        self,
        recipe: Recipe,
        world: World,
        ledger: Ledger,
        budget: Mapping[str, float],
        clock: Callable[[], float] | None = None,
    ):
        unknown = set(budget) - set(UNITS)
        if unknown or not budget:
            raise ValueError(
                f"a run's budget counts {', '.join(UNITS)}; not {', '.join(sorted(unknown)) or 'nothing'}"
            )
        if "flop" in budget and not world.learner.parameters:
            raise UserError("a budget in FLOPs needs the model's number of parameters, which is not known here: give "
                            "the budget in rollouts, tokens or time")
        self.recipe, self.world, self.ledger, self.budget = recipe, world, ledger, budget
        self.whole = Whole.of(recipe)
        self.in_flight: deque[asyncio.Task[list[Played]]] = deque()
        self.started: list[tuple[Group, meter.Tab]] = []  # groups in flight, and the cost of each so far
        self.held: list[Played] = []  # selected groups beyond the last step's size, not yet stale
        self.posing = asyncio.Lock()  # a guide may await; two waves must not draw the same problems
        self.clock = clock or (lambda: world.meter.of().seconds)
        self.before = (self.clock(), ledger.waves)  # seconds and waves before this feed
        self.ended = ""  # why `take` returned nothing: "spent" or "starved"

    async def take(self) -> list[Group]:
        """The groups of the next step, none older than `max_age` steps; empty when the run is over (see `ended`)."""
        kept, waves = self._young(self.held), 0
        self.held = []
        while len(kept) < self.recipe.groups and (self.recipe.refill or not kept):
            self._launch_ahead()
            if not self.in_flight:
                break
            waves += 1
            try:
                wave = await self.in_flight.popleft()
            except BaseException:
                self.held = kept          # cancelled with the waves in flight, when this is closed
                raise
            oldest = self.ledger.waves - len(self.in_flight)  # of the waves still in flight
            self.started = [x for x in self.started if x[0].place.wave >= oldest]
            kept += self._sift(wave)
        if not kept:
            self.ended = "starved" if waves else "spent"
        over = kept[self.recipe.groups :]
        if self.recipe.max_age:
            self.held = over
        else:
            self._settle(over, Fate.SURPLUS)
        self._settle_cancelled(kept[: self.recipe.groups])
        return [one.group for one in kept[: self.recipe.groups]]

    def _sift(self, wave: list[Played]) -> list[Played]:
        """Count a finished wave in the ledger; returns the groups to train on and settles the fates of the rest."""
        self.ledger.saw(*(one.group for one in wave))
        out = []
        for one in self._young(wave):
            group, scored = one.group, one.group.scored
            chosen = self.recipe.select(scored, self.ledger) if scored.size else None
            if chosen is group:
                out.append(one)
                continue
            if chosen is None or not chosen.size:
                self._settle([one], Fate.FILTERED)
                continue
            left = set(chosen.attempts)
            if dropped := [r for r in group.rollouts if r.attempt not in left]:
                self._settle([Played(group.of(dropped), 0)], Fate.FILTERED)
            out.append(Played(chosen, one.cancelled))
        return out

    def _young(self, played: Sequence[Played]) -> list[Played]:
        now = self.world.engine.version
        wave = whole([one.group for one in played])
        if wave is not None and now - wave.written.version <= self.recipe.max_age:
            return list(played)
        young: list[Played] = []
        for one in played:
            if not one.group.ages or now - one.group.version <= self.recipe.max_age:
                young.append(one)
            else:
                self._settle([one], Fate.STALE)
        return young

    def _settle(self, played: Sequence[Played], fate: Fate) -> None:
        for one in played:
            fates = [Fate.LOST if score is None else fate for score in one.group.scores]
            self.ledger.settle(one.group, fates, one.cancelled)

    def _settle_cancelled(self, played: Sequence[Played]) -> None:
        """Settle the rollouts that the schedule cancelled; the loop settles those that are trained on."""
        for one in played:
            if one.cancelled:
                self.ledger.settle(one.group.of(()), [], one.cancelled)

    # launching ------------------------------------------------------------------------------------------------

    def _launch_ahead(self) -> None:
        while len(self.in_flight) < 1 + self.recipe.max_age and self._affordable():
            self.in_flight.append(asyncio.create_task(self._wave(self.ledger.waves)))
            self.ledger.waves += 1

    def _affordable(self) -> bool:
        """Whether the budget pays for one more wave and all in flight, each at the mean cost of finished waves.

        Rollouts, and the environment steps of a wave of full length, are known before: those are never exceeded.
        """
        size, learner = self.recipe.groups * self.recipe.rollouts, self.world.learner
        spent, clock, landed = self.world.meter.of(), self.clock(), self.ledger.waves - len(self.in_flight)
        for unit, limit in self.budget.items():
            amount = UNITS[unit](spent, learner, clock)
            before, waves = self.before if unit == "seconds" else (0.0, 0)
            each = (amount - before) / (landed - waves) if landed > waves else 0.0
            if unit == "rollouts":
                each = max(each, size)
            elif unit == "env-steps":
                each = max(each, size * self.recipe.pace(self.ledger).max_turns)
            if amount + each * (1 + len(self.in_flight)) > limit:
                return False
        return True

    async def _wave(self, number: int) -> list[Played]:
        r, ledger = self.recipe, self.ledger
        pace = r.pace(ledger)
        async with self.posing:
            posed = await self._pose(number)
        total, allocated = r.rollouts * len(posed), 0
        plan = r.allocate(posed, ledger, total)
        places = [Place(ledger.seed, number, slot) for slot in range(len(posed))]
        if isinstance(plan, list):
            allocated = _allocated(0, plan, total)
            if allocated == total and (wave := await self._whole(posed, places, plan, pace)) is not None:
                return wave
        attempts = partial(Attempts, r.play, self.world, pace, Wave(len(posed), self.world.engine.halt))
        played: list[Played] = [Played(Group(p, (), at), 0) for p, at in zip(posed, places, strict=True)]
        if isinstance(plan, list):
            played = await self._phase(played, plan, lambda one, k: self._play_and_score(one, k, attempts))
        else:
            counts: list[int] | None = next(plan)
            while counts is not None:
                allocated = _allocated(allocated, counts, total)
                played = await self._phase(played, counts, lambda one, k: self._play(one, k, attempts))
                played = await together(*map(self._score, played))   # after all phases: siblings are compared
                counts = _send(plan, [h.group for h in played])
        if allocated < total:
            raise _not_the_total(allocated, total)
        return [h for h in played if h.group.size or h.cancelled]

    async def _whole(
        self, problems: Sequence[Problem], places: Sequence[Place], counts: Sequence[int], pace: Pace
    ) -> list[Played] | None:
        """A wave by the forms that its seams have for whole waves; None if it is not for them."""
        if self.whole is None or len(counts) != len(problems) or min(counts, default=0) < 0:
            return None
        wave = self.whole.play(problems, counts, self.world, pace, places)
        if wave is None:
            return None
        try:
            if self.whole.reward is None:
                return await together(*(self._score(Played(group, 0)) for group in wave.groups()))
            await self.whole.reward(wave, self.world)
        except BaseException:       # its rollouts are paid for, and are settled when this is closed
            self.started += [(group.of(()), meter.Tab(Cost(rollouts=group.size))) for group in wave.groups()]
            raise
        return [Played(group, 0) for group in wave.groups()]

    async def _pose(self, number: int) -> list[Problem]:
        """`groups` variants of whole problems; a problem whose variants do not all fit waits for the next wave."""
        r, ledger = self.recipe, self.ledger
        rng = chance.generator(ledger.seed, chance.Purpose.CHOOSE, number) if draws(r.choose) else _UNUSED
        posed: list[Problem] = []
        for problem in r.choose(self.world.problems, ledger, r.groups, rng):
            variants = await r.guide(problem, self.world, ledger)
            if posed and len(posed) + len(variants) > r.groups:
                break
            posed += variants
            ledger.drawn += 1
        return posed

    async def _phase(
        self, played: list[Played], counts: Sequence[int], play: Callable[[Played, int], Coroutine[Any, Any, Played]]
    ) -> list[Played]:
        """Slots with attempts play concurrently, each in its own task, so that the engine batches them."""
        if len(counts) != len(played) or any(k < 0 for k in counts):
            raise ValueError(
                f"allocate gave {list(counts)} for {len(played)} slots: one count of at least 0 each"
            )
        more = iter(await together(*(play(h, k) for h, k in zip(played, counts, strict=True) if k)))
        return [next(more) if k else h for h, k in zip(played, counts, strict=True)]

    async def _play_and_score(self, one: Played, count: int, attempts: Callable[[Place], Attempts]) -> Played:
        """Without later phases a group is scored as soon as it is complete, while other groups still decode."""
        return await self._score(await self._play(one, count, attempts))

    async def _score(self, one: Played) -> Played:
        if not one.group.rollouts:
            return one
        return Played(await self.recipe.reward(one.group, self.world), one.cancelled)

    async def _play(self, one: Played, count: int, attempts: Callable[[Place], Attempts]) -> Played:
        """Add `count` attempts to a slot. Attempt numbers continue from earlier phases."""
        group, play = one.group, attempts(one.group.place)
        first = max((a.attempt for a in group.rollouts), default=-1) + 1 + max(one.cancelled, 0)
        with meter.tab() as tab:
            self.started.append((group, tab))
            rollouts = await self.recipe.schedule(group.problem, range(first, first + count), play, self.ledger)
        started = sum(a.origin in ("policy", "resumed", "expert") for a in rollouts)     # now or in an earlier wave
        whole = sorted((*group.rollouts, *rollouts), key=lambda a: a.attempt)
        return Played(group.of(whole), one.cancelled + tab.cost.rollouts - started)

    async def __aenter__(self) -> Feed:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        """Cancel the waves in flight and the groups held for a later step; they stay charged."""
        for task in self.in_flight:
            task.cancel()
        await asyncio.gather(*self.in_flight, return_exceptions=True)
        self._settle_cancelled([Played(group, tab.cost.rollouts) for group, tab in self.started])
        self._settle(self.held, Fate.CANCELLED)


def _allocated(before: int, counts: Sequence[int], total: int) -> int:
    """Attempts allocated so far. Raises ValueError before more are started than the wave has."""
    allocated = before + sum(counts)
    if allocated > total:
        raise _not_the_total(allocated, total)
    return allocated


def _not_the_total(allocated: int, total: int) -> ValueError:
    return ValueError(f"allocate gave {allocated} attempts for a wave of {total}: its counts must sum to the total")


def _send(plan: Any, groups: list[Group]) -> list[int] | None:
    try:
        return plan.send(groups)
    except StopIteration:
        return None
