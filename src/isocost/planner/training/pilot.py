"""The pilot plan: its runs, their length and cost, and the minimum detectable difference, fixed before any run starts.

C = n B M rollouts: n per problem, B problems per update, M updates. A budget is what pilot and training may spend. The
pilot takes at most a third, so that it costs at most half of training, and its largest run is at least an eighth as
long as the prescribed one. If no pilot is long and precise enough for that, the plan is `direct`: no grid, and a
fallback n. The plan then names what is too small (held-out problems, seeds or budget) and the least value that is
enough.

Evaluations by sampling cost at most a quarter of training, in the budget's unit (`EVALUATION_SHARE`). All runs of a
study share one `EvaluationPlan`: the same held-out problems, samples per problem and first evaluation point, so every
curve has the same noise. Exact evaluations sample nothing and are never cut.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, lcm
from typing import ClassVar

from isocost.disk.shape import Plain
from isocost.errors import UserError
from isocost.laws.law import EXTRAPOLATION
from isocost.planner.budget import Budget, Prices, Timing, Usage
from isocost.planner.evaluation import EvaluationPlan, points
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.study_runs import (
    CAPPED,
    COMMON,
    PlannedRun,
    arms_of,
    capped,
    largest_that,
    make_runs,
    problems_of,
    whole,
)
from isocost.planner.training.turn_limits import TurnLimit, bill_of
from isocost.runs.schema import VERSION
from isocost.screen.words import counted
from isocost.stats.power import LEVEL, POWER, detectable
from isocost.units import ENV_STEPS, of_run

LEAST_SEEDS = 3         # of a trained arm, if there is a pilot
PILOT_SHARE = 1 / 3     # of the budget, at most


def detects(effect: float) -> str:
    """The minimum detectable difference of a pilot, as text."""
    return f"minimum detectable difference between two n: {effect:.3f} ({POWER:.0%} power, {LEVEL:.0%} level)"


@dataclass(frozen=True)
class PilotPlan(Plain):
    """The runs of a pilot, fixed before anything is spent; or why there is none (`direct`).

    `points` are the evaluation points of pilot and edge runs, `probe_points` of probes, `train_points` of the runs
    expected after. With `batch`, n B is fixed, and `B` is that of the default n. `rate` is the rule that the probe
    starts from. `limits` are the turn limits that the grid is crossed with, ascending: the runs of each cost as much as
    those of C rollouts at the last, and `limits_why` says why these. `reserve` is what is still to be spent where the
    choice is open (`planner.focus`), as a multiple of what the grid cost as it was first planned; `rates` are (n,
    multiplier of the rule's learning rate) of the n for which another rate was better. `pilot_bill` counts probe, pilot
    and edge runs and the reserve; `train_bill` is what training is expected to cost, `train_C` rollouts for each of
    `train_arms` x `train_seeds`.
    """

    preset: str
    budget: Budget | None
    seed: int
    direct: bool
    why: str
    grid: tuple[int, ...]
    B: int
    C: int
    seeds: int
    runs: tuple[PlannedRun, ...]
    points: tuple[int, ...]
    probe_points: tuple[int, ...]
    rate: RateRule
    train_C: int
    train_arms: int
    train_seeds: int
    pilot_bill: Usage
    train_bill: Usage
    prices: Prices
    timing: Timing
    evaluation: EvaluationPlan
    sd: float
    sd_source: str
    detectable: float | None
    fallback_n: int
    fallback_why: str
    flags: tuple[str, ...] = ()
    batch: int | None = None
    limits: tuple[TurnLimit, ...] = ()
    limits_why: str = ""
    reserve: float = 0.0
    rates: tuple[tuple[int, float], ...] = ()

    HEAD: ClassVar = {"schema": VERSION}
    LATER: ClassVar = ("limits", "limits_why", "reserve", "rates")

    def B_of(self, n: int) -> int:
        """Problems per update of arm n."""
        return problems_of(n, self.B, self.batch)

    @property
    def bill(self) -> Usage:
        return self.pilot_bill + self.train_bill

    def of_purpose(self, purpose: str) -> tuple[PlannedRun, ...]:
        """The runs of one purpose: probe, pilot or edge."""
        return tuple(r for r in self.runs if r.purpose == purpose)

    def rate_of(self, n: int) -> float:
        """The multiplier of the rule's learning rate at n: 1, unless another was better."""
        return dict(self.rates).get(n, 1.0)

    @property
    def arm_runs(self) -> tuple[PlannedRun, ...]:
        """The runs that a law is fitted to: those of the grid's n, each at its own learning rate."""
        return tuple(r for r in self.runs if r.purpose in ("pilot", "edge") and r.multiplier == self.rate_of(r.n))

    @property
    def grid_bill(self) -> Usage:
        """What the grid costs as it was first planned, which `reserve` is a multiple of."""
        grid = [replace(r, C=r.first_C or r.C) for r in self.of_purpose("pilot")]
        return bill_of([(r, 1 + len(self.points_of(r))) for r in grid], self.prices, self.timing, self.limits)

    def points_of(self, run: PlannedRun) -> tuple[int, ...]:
        """The rollouts after which this run is evaluated, without the base."""
        if run.purpose == "probe":
            return self.probe_points
        if run.purpose == "train":
            return self.train_points(run.C)
        unit = self.points[0]       # that of the original grid
        first = self.evaluation.points(run.first_C, unit) if run.first_C else ()
        return (*first, *(x for x in self.evaluation.points(run.C, unit) if not first or x > first[-1]))

    def extended(self, longer: Mapping[int, int], seeds: Mapping[int, int], turns: int | None = None) -> PilotPlan:
        """The same pilot with runs added: `longer` continues every run of n to so many rollouts, `seeds` adds runs.

        With turn limits, runs are added at `turns`, or at every limit: `longer` is then of the largest, and runs at the
        others become as many times longer.

        `seeds` of an n that is not in the grid adds it, with runs of the shortest existing length. Lengths are rounded
        up to whole updates, and to a common evaluation point. Raises UserError for an n without runs to continue, a
        length not above theirs, fewer than one seed, an n below 2, one that does not divide a fixed batch, or a turn
        limit that the pilot does not have.
        """
        if self.direct:
            raise UserError(f"this plan has no pilot to add runs to: {self.why}")
        if turns is not None and turns not in self.turns:
            there = ", ".join(str(h) for h in self.turns if h) or "the environment's alone"
            raise UserError(f"this pilot has no runs at a turn limit of {turns}; its turn limits: {there}")
        chosen = self.turns if turns is None else (turns,)
        lengths = self.lengths_at(chosen[-1])
        self._check_added(longer, seeds, lengths)
        wider = replace(self, grid=tuple(sorted({*self.grid, *seeds})))
        unit = {n: lcm(self.points[0], n * self.B_of(n)) for n in wider.grid}
        ends = {n: ceil(C / unit[n]) * unit[n] for n, C in longer.items()}
        runs = [replace(r, C=ceil(ends[r.n] * r.C / lengths[r.n] / unit[r.n]) * unit[r.n], first_C=r.first_C or r.C)
                if r in self.arm_runs and r.n in ends and r.turns in chosen else r for r in self.runs]
        for h in chosen:
            shortest = min(r.C for r in self.arm_runs if r.turns == h)
            for n, k in seeds.items():
                old = [r for r in replace(self, runs=tuple(runs)).arm_runs if r.n == n and r.turns == h]
                C = old[0].C if old else ceil(shortest / unit[n]) * unit[n]
                new = make_runs(self.seed, old[0].purpose if old else "pilot", arms_of((n,), self.B, self.batch, h), C,
                                len(old) + k, (self.rate_of(n),))
                runs += [replace(r, first_C=old[0].first_C if old else None) for r in new[len(old):]]
        runs = [self.recapped(r) for r in runs]
        C = max(r.C for r in runs if r.turns in (None, self.turns[-1]))
        made = replace(wider, runs=tuple(runs), C=C, points=self.evaluation.points(C, self.points[0]))
        fewest = min(Counter((r.n, r.turns) for r in made.arm_runs).values())
        effect = detectable(fewest, len(wider.grid), self.sd)
        added = [f"n = {n} continued to {C:,} rollouts" for n, C in ends.items()]
        added += [f"{counted(k, 'more run')} of n = {n}" for n, k in seeds.items()]
        if self.limits:
            added[-1] += f", at {', '.join(map(str, chosen))} turns"
        bill = made.bill_at(self.prices, self.timing)
        before = re.split("; (?:sees|minimum detectable) difference", self.why)[0]    # as older versions worded it
        why = f"{before}; then {', '.join(added)}; {detects(effect)}"
        return replace(made, pilot_bill=bill, why=why, seeds=fewest, detectable=effect)

    def capped(self) -> PilotPlan:
        """The same plan with each run capped at its share of a third of the budget, where a rollout's cost changes."""
        if self.budget is None or not self.runs:
            return self
        unit = self.budget.unit
        costs = [self._cost(r, unit) for r in self.runs]
        return replace(self, runs=capped(self.runs, unit, max(PILOT_SHARE * self.budget.amount, sum(costs)), costs))

    @property
    def shares(self) -> str:
        """When a run ends at its share of the budget, as text; empty for runs without a cap."""
        run = next((r for r in self.runs if r.cap), None)
        if run is None or run.cap is None or self.budget is None:
            return ""
        ((key, most),) = run.cap.items()
        unit = next(u for u in CAPPED if of_run(u) == key)
        return (f"a run ends at its share of the budget in {unit}, even before its planned rollouts, if it costs more "
                f"than {most / self._cost(run, unit):.3g} times what is expected")

    def _cost(self, run: PlannedRun, unit: str) -> float:
        """The expected cost of training in one of the pilot's runs."""
        return bill_of([(run, 0)], self.prices, self.timing, self.limits).of_unit(unit)

    def recapped(self, run: PlannedRun) -> PlannedRun:
        """A run that was continued or added, with the cap of its arm's runs in proportion to its length, and at least
        its expected cost; unchanged where those have no cap."""
        old = [r for r in self.runs if r.name == run.name]
        arm = [r for r in self.of_purpose("pilot") if (r.n, r.turns) == (run.n, run.turns)]
        like = (*old, *arm, *self.of_purpose("pilot"))[0]
        if like.cap is None or [run] == old:
            return run
        ((key, most),) = like.cap.items()
        most *= run.C / like.C
        if self.budget is not None and self.budget.unit in CAPPED and of_run(self.budget.unit) == key:
            most = max(most, self._cost(run, self.budget.unit))
        return replace(run, cap={key: float(f"{most:.6g}")})

    def repriced(self, prices: Prices, timing: Timing) -> PilotPlan:
        """The same plan with its bills at these prices, such as measured ones."""
        return replace(self, prices=prices, timing=timing, pilot_bill=self.bill_at(prices, timing),
                       train_bill=self._trained(self.train_C, prices, timing))

    def _trained(self, C: int, prices: Prices, timing: Timing) -> Usage:
        """The expected bill of training with runs of C rollouts, at the largest turn limit."""
        ns = (self.grid[len(self.grid) // 2], COMMON)[: self.train_arms]
        if self.limits:
            prices, timing = self.limits[-1].prices(prices), self.limits[-1].timing(timing)
        sizes = [(n, self.B_of(n), C, 1 + len(self.train_points(C))) for n in ns]
        return prices.bill(sizes * self.train_seeds, timing)

    def bill_at(self, prices: Prices, timing: Timing) -> Usage:
        """The bill of the pilot's runs and its reserve at these prices, which are those at the environment's turn
        limit."""
        bill = bill_of([(r, 1 + len(self.points_of(r))) for r in self.runs], prices, timing, self.limits)
        if not self.reserve:
            return bill
        return bill + replace(self, prices=prices, timing=timing).grid_bill.times(self.reserve)

    @property
    def turns(self) -> tuple[int | None, ...]:
        """The turn limits of the grid; one None without any."""
        return tuple(x.turns for x in self.limits) or (None,)

    @property
    def lengths(self) -> dict[int, int]:
        """n -> rollouts of its pilot runs, at the largest turn limit."""
        return self.lengths_at(self.turns[-1])

    def lengths_at(self, turns: int | None) -> dict[int, int]:
        """n -> rollouts of its pilot runs, at one turn limit."""
        return {r.n: r.C for r in self.arm_runs if r.turns == turns}

    def at(self, turns: int | None) -> PilotPlan:
        """The pilot of one turn limit (None: the largest): its runs, their length, and a rollout's prices there."""
        if not self.limits:
            return self
        limit = next(x for x in self.limits if x.turns == (turns or self.limits[-1].turns))
        C = max(r.C for r in self.of_purpose("pilot") if r.turns == limit.turns)
        unit = self.budget.unit if self.budget else ENV_STEPS
        rest = [r for r in self.runs if r.purpose != "pilot" or r.turns == limit.turns]
        train_C = max(1, round(self.train_C / limit.share(unit) * self.limits[-1].share(unit) / self.unit)) * self.unit
        alone = limit.relative_to(limit)        # the prices are those at this limit
        return replace(self, limits=(alone,), runs=tuple(rest), C=C, points=self.evaluation.points(C, self.points[0]),
                       train_C=train_C, prices=limit.prices(self.prices), timing=limit.timing(self.timing))

    def rebased(self) -> PilotPlan:
        """The same plan with its prices and timing those at its largest turn limit, and the others relative to it."""
        if not self.limits:
            return self
        last = self.limits[-1]
        return replace(self, prices=last.prices(self.prices), timing=last.timing(self.timing),
                       limits=tuple(x.relative_to(last) for x in self.limits))

    def funded(self, budget: Budget) -> PilotPlan:
        """The same pilot with another budget: training is planned again, as in `plan_pilot`."""
        name, unit, base = budget.unit, self.unit, max(LEAST_SEEDS, self.seeds)
        one = replace(self, budget=budget, train_seeds=1)
        left = budget.amount - self.pilot_bill.of_unit(name)

        def bill(k: int) -> float:
            return replace(one, train_C=k * unit).repriced(self.prices, self.timing).train_bill.of_unit(name)

        shortest = min(self.lengths.values())
        k = max(1, largest_that(lambda k: base * bill(k) <= left, EXTRAPOLATION * shortest // unit))
        seeds = min(max(base, int(left / bill(k))), 2 * base)
        return replace(one, train_C=k * unit, train_seeds=seeds).repriced(self.prices, self.timing)

    def least_training(self, prices: Prices, timing: Timing) -> Usage:
        """The least cost of training: every arm and seed as long as the pilot's shortest run."""
        return self._trained(min(self.lengths.values()), prices, timing)

    def _check_added(self, longer: Mapping[int, int], seeds: Mapping[int, int], lengths: Mapping[int, int]) -> None:
        for n, C in longer.items():
            if n not in lengths:
                there = ", ".join(map(str, self.grid))
                raise UserError(f"n = {n} has no pilot runs to continue; there are n = {there}")
            if lengths[n] >= C:
                raise UserError(f"n = {n} has runs of {lengths[n]:,} rollouts; expected more than that, got {C:,}")
        for n, k in seeds.items():
            if k < 1 or n < 2 or (self.batch and self.batch % n):
                divides = f" that divides n B = {self.batch}" if self.batch else ""
                raise UserError(f"cannot add {k} runs of n = {n}: expected at least 1, of an n of at least 2{divides}")

    def train_points(self, C: int) -> tuple[int, ...]:
        """Evaluation points of a trained run of C rollouts: the pilot's, continued at the same spacing."""
        return points(C, self.unit, 0) if self.direct else self.evaluation.points(C, self.unit)

    @property
    def unit(self) -> int:
        """The smallest number of rollouts that is a whole number of updates for every arm; where runs are shorter than
        that (`whole`), as imported ones may be, of the largest n."""
        return self.batch or whole(self.grid or (self.fallback_n,), self.B, self.C or None)

    def evaluating(self, bill: Usage, timing: Timing | None = None) -> float:
        """The cost of a bill's evaluations relative to its training, in the budget's unit or rollouts; 0 if exact."""
        if self.evaluation.samples is None:
            return 0.0
        seconds = bill.evaluations * (timing or self.timing).evaluation
        training = replace(bill, seconds=bill.seconds - seconds)
        own = self.prices.sampling(bill.evaluations * self.evaluation.rollouts, seconds)
        return over(own, training, self.budget)


def over(part: Usage, whole: Usage, budget: Budget | None) -> float:
    """The ratio of two bills in the budget's unit, by default rollouts; 0 if `part` costs nothing in it."""
    unit = budget.unit if budget else "rollouts"
    cost = part.of_unit(unit)
    return cost / whole.of_unit(unit) if cost > 0 else 0.0
