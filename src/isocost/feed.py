"""Samples waves of groups ahead of the learner: the only place where sampling and training overlap.

    choose -> guide -> allocate -> schedule(play) -> reward   =  one wave, launched whole
                                                      |
    take:   saw (ledger)  ->  too old? -> select?  ->  B groups for a step; every other rollout gets its fate here
    beside: the step is learned, and the waves in flight are completed; then the engine gets the new weights

A wave is `groups` posed variants of whole problems, each with a slot; (wave, slot) is a group's identity and the
address of its random numbers. A wave is launched only if the budget can pay for it.

A wave is written by one policy: that of the step before which it was launched, however long anything takes. With
`max_age` A, step k trains on the wave that was launched before step k - A. So sampling and learning may take turns or
overlap, in two threads, with the same bytes (`World.overlap`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from isocost import chance, meter, units
from isocost.beside import Learning, seen_by_sampling
from isocost.errors import RewardFailed, UserError
from isocost.gather import together
from isocost.ledger import Ahead, Ledger, Played
from isocost.recipe import functions
from isocost.screen.words import counted
from isocost.seams import Attempts, Pace, Recipe, Wave
from isocost.traits import draws
from isocost.types import Cost, Fate, Group, Place, Problem, Stop
from isocost.world import Learner, World

T = TypeVar("T")
_UNUSED = np.random.default_rng(0)      # of a `choose` that leaves it alone

# What a run's budget may be counted in: (training's cost, the learner, the run's clock) -> amount.
UNITS: Mapping[str, Callable[[Cost, Learner, float], float]] = {
    unit: partial(units.spent, unit) for unit in units.STOPS
}
LEARNT = ("flop", "seconds", "busy seconds")    # units in which a wave costs more when it is learned
IDLE = 16       # waves in a row without a rollout or a charge, after which a run would never end
LOST = 2        # waves in a row without any score, after which a run ends: they may cost nothing that its budget counts
UNBILLED = (
    "{rollouts} settled and not billed: a `play` or `schedule` returns each rollout that it begins at most once and no "
    "copy; `sample` and `fork` of isocost.parts.play begin rollouts"
)


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
        self.whole = None if world.fast is None else world.fast.wave(recipe)    # a second form of `_play` and `_score`
        overlap = world.overlap if recipe.max_age else None
        if overlap is not None:
            overlap.ahead()
        self.learning = Learning(overlap) if overlap is not None and overlap.on else None
        self.shown = seen_by_sampling(world, ledger, self.learning) if self.learning else (world, ledger)
        self.in_flight: deque[asyncio.Future[list[Played]]] = deque(map(_complete, ledger.ahead.waves))
        ahead = [x for wave in ledger.ahead.waves for x in wave]
        # Groups in flight, and the cost of each so far.
        self.started = [(x.group.of(()), meter.Tab(Cost(rollouts=x.group.size + x.cancelled + x.unchosen)))
                        for x in ahead]
        self.held = list(ledger.ahead.held)  # selected groups beyond the last step's size, not yet stale
        self.posing = asyncio.Lock()  # a guide may await; two waves must not draw the same problems
        self.clock = clock or (lambda: world.meter.of().seconds)
        self.before = (self.clock(), ledger.waves)  # seconds and waves before this feed
        self.lost = 0  # the latest waves that have no score
        self.idle = (0, world.meter.of().rollouts)  # the latest waves without a rollout, and those billed by then
        self.over = 0  # rollouts of complete groups beyond those that were begun for them
        self.ended = ""  # why `take` returned nothing: "spent", "starved" or "unbilled"
        self.why = ""  # more about that
        self.bound = ""  # the unit in which the budget did not pay for another wave; empty before

    async def take(self) -> list[Group]:
        """The groups of the next step, none older than `max_age` steps; empty when the run is over (see `ended`).

        It is over, too, once more rollouts are settled than are billed: C would not be what was trained on. Raises
        RewardFailed after `LOST` waves in which every environment failed, or the verifier each time.
        """
        kept, waves = self._young(self.held), 0
        self.held = []
        while len(kept) < self.recipe.groups and (self.recipe.refill or not kept) and not self.unbilled:
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
            self.over += sum(map(self._short, wave))
            kept += self._sift(wave)
            self._refuse_idle(wave)
            if there := [one.group for one in wave if one.group.size]:     # else all of it was deferred
                self.lost = 0 if any(g.scored.size for g in there) else self.lost + 1
            if self.lost >= LOST:
                raise RewardFailed(f"no rollout of the last {LOST} waves has a score, because its environment or its "
                                   "verifier failed; the warnings above say how")
        if not kept:
            self.ended = "starved" if waves else "spent"
            if count := self.unbilled:
                self.ended, self.why = "unbilled", UNBILLED.format(rollouts=counted(count, "rollout"))
        over = kept[self.recipe.groups :]
        if self.recipe.max_age:
            self.held = over
        else:
            self._settle(over, Fate.SURPLUS)
        self._settle_cancelled(kept[: self.recipe.groups])
        return [one.group for one in kept[: self.recipe.groups]]

    @property
    def unbilled(self) -> int:
        """Rollouts that have a fate, or will have one, and that nobody was billed for, such as copies."""
        settled = sum(self.ledger.fates.values()) - self.ledger.fates[str(Fate.CANCELLED)]
        return max(self.over, settled - self.world.meter.of().rollouts)

    def _short(self, one: Played) -> int:
        """Rollouts of a group that were not billed for it: a negative number of cancelled ones, but for those that were
        billed in an earlier wave, which began them, or will be in a later one, where not even a token was written.
        """
        if one.cancelled >= 0:
            return 0
        begun = sum(not (r.origin == "resumed" and _defers(self.recipe))
                    and (r.stop is not Stop.CANCELLED or r.segments[-1].written > 0) for r in one.group.rollouts)
        return max(begun - one.group.size - one.cancelled, 0)

    def _refuse_idle(self, wave: Sequence[Played]) -> None:
        """Raises UserError after `IDLE` waves in a row, and those in flight, that brought no rollout and no charge. A
        method that keeps attempts for later may have some."""
        (times, billed), now = self.idle, self.world.meter.of().rollouts
        times = times + 1 if billed == now and not any(one.group.size for one in wave) else 0
        self.idle = times, now
        if times > IDLE + self.recipe.max_age:
            raise UserError(f"{times} waves in a row returned no rollout and were billed for none, so the run would "
                            "never end: `schedule` and `play` must return the attempts that they are given")

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
            dropped = [r for r in group.rollouts if r.attempt not in left]
            if dropped:
                self._settle([Played(group.of(dropped), 0)], Fate.FILTERED)
            self.over += max(chosen.size + len(dropped) - group.size, 0)
            out.append(one._replace(group=chosen))
        return out

    def _young(self, played: Sequence[Played]) -> list[Played]:
        now, young = self.world.engine.version, list[Played]()
        for one in played:
            if not one.group.ages or now - one.group.version <= self.recipe.max_age:
                young.append(one)
            else:
                self._settle([one], Fate.STALE)
        return young

    def _settle(self, played: Sequence[Played], fate: Fate) -> None:
        for one in played:
            fates = [Fate.LOST if score is None else fate for score in one.group.scores]
            self.ledger.settle(one.group, fates, one.cancelled, one.unchosen)

    def _settle_cancelled(self, played: Sequence[Played]) -> None:
        """Settle the rollouts that were cancelled or not chosen; the loop settles those that are trained on."""
        for one in played:
            if one.cancelled or one.unchosen:
                self.ledger.settle(one.group.of(()), [], one.cancelled, one.unchosen)

    async def beside(self, learn: Callable[[], T]) -> T:
        """What `learn` returns, when the waves in flight are complete too: in another thread if the world can.

        A wave that raises does so when it is taken. Where they take turns `learn` is first, as it is for what sampling
        reads of the learner (`isocost.beside`).
        """
        if self.learning is not None and self.in_flight:
            learned = await self.learning.beside(learn, self.in_flight)
        else:
            learned = learn()
            if self.in_flight:
                await asyncio.wait(self.in_flight)
        complete = [wave.result() for wave in self.in_flight if wave.exception() is None]
        self.ledger.ahead = Ahead(complete, self.held)
        return learned

    # launching ------------------------------------------------------------------------------------------------

    def _launch_ahead(self) -> None:
        while len(self.in_flight) < 1 + self.recipe.max_age and self._affordable():
            self.in_flight.append(asyncio.create_task(self._wave(self.ledger.waves)))
            self.ledger.waves += 1

    def _affordable(self) -> bool:
        """Whether the budget pays for one more wave and all in flight, each at the mean cost of finished waves.

        Rollouts, and the environment steps of a wave of full length, are known before: those are never exceeded. Beside
        rollouts, environment steps are a share that was planned from mean lengths: they count at the mean too, because
        to keep back a wave of full length would end runs whose dialogues are as long as planned.
        """
        size, learner = self.recipe.groups * self.recipe.rollouts, self.world.learner
        flying = sum(not wave.done() for wave in self.in_flight)
        spent, clock = self.world.meter.of(), self.clock()
        for unit in (u for u in UNITS if u in self.budget):
            limit = self.budget[unit]
            left = len(self.in_flight) if unit in LEARNT else flying     # waves for which more is to be paid
            landed = self.ledger.waves - left
            amount = UNITS[unit](spent, learner, clock)
            before, waves = self.before if unit == "seconds" else (0.0, 0)
            each = (amount - before) / (landed - waves) if landed > waves else 0.0
            if unit == "rollouts":
                each = max(each, size)
            elif unit == "env-steps" and "rollouts" not in self.budget:
                each = max(each, size * self.recipe.pace(self.ledger).max_turns)
            if amount + each * (1 + left) > limit:
                self.bound = unit
                return False
        return True

    async def _wave(self, number: int) -> list[Played]:
        r, (world, ledger) = self.recipe, self.shown
        pace = r.pace(ledger)
        async with self.posing:
            posed = await self._pose(number)
        total, allocated = r.rollouts * len(posed), 0
        plan = r.allocate(posed, ledger, total)
        places = [Place(ledger.seed, number, slot) for slot in range(len(posed))]
        if isinstance(plan, list):
            allocated = _allocated(0, plan, total)
            if self.whole and allocated == total and (wave := await self._whole(posed, places, plan, pace)) is not None:
                return wave
        attempts = partial(Attempts, r.play, world, pace, Wave(len(posed), world.engine.halt))
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
        return [h for h in played if h.group.size or h.cancelled or h.unchosen]

    async def _whole(
        self, problems: Sequence[Problem], places: Sequence[Place], counts: Sequence[int], pace: Pace
    ) -> list[Played] | None:
        """A wave in one call; None where each group is played by itself."""
        assert self.whole is not None
        groups, kept = None, False
        try:
            with meter.tab() as tab:
                groups = await self.whole(problems, counts, places, pace, self.shown[0], self._scored)
            kept = not self.recipe.max_age      # else it may be complete and never be taken
        finally:
            if tab.cost.rollouts and not kept:
                each = zip(problems, places, counts, strict=True)
                self.started += [(Group(p, (), at), meter.Tab(Cost(rollouts=k))) for p, at, k in each]
        if groups is None:
            return None
        played = [Played(group, 0) for group in groups]
        played[0] = played[0]._replace(cancelled=tab.cost.rollouts - sum(counts))
        return played

    async def _pose(self, number: int) -> list[Problem]:
        """`groups` variants of whole problems; a problem whose variants do not all fit waits for the next wave."""
        r, (world, ledger) = self.recipe, self.shown
        rng = chance.generator(ledger.seed, chance.Purpose.CHOOSE, number) if draws(r.choose) else _UNUSED
        posed: list[Problem] = []
        for problem in r.choose(world.problems, ledger, r.groups, rng):
            variants = await r.guide(problem, world, ledger)
            if posed and len(posed) + len(variants) > r.groups:
                break
            posed += variants
            self.ledger.drawn += 1
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
        return one._replace(group=await self._scored(one.group))

    async def _scored(self, group: Group) -> Group:
        scored = await self.recipe.reward(group, self.shown[0])
        self.over += max(scored.size - group.size, 0)
        return scored

    async def _play(self, one: Played, count: int, attempts: Callable[[Place], Attempts]) -> Played:
        """Add `count` attempts to a slot. Attempt numbers continue from earlier phases."""
        group, play = one.group, attempts(one.group.place)
        first = max((a.attempt for a in group.rollouts), default=-1) + 1 + max(one.cancelled, 0)
        with meter.tab() as tab, meter.begins(True):
            self.started.append((group, tab))
            rollouts = await self.recipe.schedule(group.problem, range(first, first + count), play, self.shown[1])
        whole = sorted((*group.rollouts, *rollouts), key=lambda a: a.attempt)
        cancelled = tab.cost.rollouts - tab.unchosen - len(rollouts)
        return Played(group.of(whole), one.cancelled + cancelled, one.unchosen + tab.unchosen)

    async def __aenter__(self) -> Feed:
        return self

    async def __aexit__(self, *exc: Any) -> None:
        """Cancel the waves in flight and the groups held for a later step; they stay charged."""
        for task in self.in_flight:
            task.cancel()
        await asyncio.gather(*self.in_flight, return_exceptions=True)
        if self.learning is not None:
            self.learning.close()
        self._settle_cancelled([Played(group, tab.cost.rollouts) for group, tab in self.started])
        self._settle(self.held, Fate.CANCELLED)
        self.ledger.ahead = Ahead()


def _defers(recipe: Recipe) -> bool:
    """Whether its schedule defers groups, so that what it calls resumed was billed in an earlier wave."""
    try:
        return any(f.declared.has("defers_groups", f.settings) for f in functions(recipe.schedule))
    except UserError:       # without a name, as in a trial, it shows none of its traits
        return True


def _complete(wave: Sequence[Played]) -> asyncio.Future[list[Played]]:
    done: asyncio.Future[list[Played]] = asyncio.get_running_loop().create_future()
    done.set_result(list(wave))
    return done


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
