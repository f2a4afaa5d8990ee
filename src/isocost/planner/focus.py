"""What a pilot spends after its grid: its reserve goes to the n between which the choice is open.

First the learning rate of the leading n is checked at one step below and above the rule's, with as many seeds as the
grid has. Then the runs of the n that are not behind, the best half of the grid at most (successive halving; Jamieson
and Talwalkar 2016, arXiv 1502.07943), are continued to one length, each at its better rate. Both steps follow from the
pilot's records alone, so a pilot that was killed goes on in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from isocost.laws.curves import Curve
from isocost.planner.learning_rate import EDGES, reward_at
from isocost.planner.pilot import PilotPlan
from isocost.planner.standing import ahead, means
from isocost.planner.study_runs import PlannedRun, largest_that, make_runs
from isocost.planner.turn_limits import bill_of
from isocost.units import ROLLOUTS
from isocost.words import counted

FEWEST = 2          # n whose runs are continued, at least


def focused(pilot: PilotPlan, curves: Sequence[Curve]) -> PilotPlan:
    """The pilot with the next runs that its reserve pays for; with no reserve once there is nothing left to add.

    `curves` are those of its runs, all of which have ended.
    """
    seen = [c for c in curves if not c.diverged]
    grid = [c for c in seen if c.purpose == "pilot"]
    if len({c.n for c in grid}) < 2:
        return replace(pilot, reserve=0.0).repriced(pilot.prices, pilot.timing)
    each = rollout_costs(pilot)
    kept = leading(grid, each)
    checked = pilot.of_purpose("edge") or not pilot.of_purpose("probe")     # a rate that no probe chose is the user's
    if not checked:
        runs = checks(pilot, kept[0])
        if cost(pilot, runs) <= pilot.reserve:
            why = f"the rate of n = {kept[0]} at {' and '.join(f'x{x:g}' for x in EDGES)}"
            return added(pilot, runs, why)
    rates = {n: rate for n in {c.n for c in seen if c.purpose == "edge"} if (rate := better_rate(curves, n)) != 1.0}
    return continued(replace(pilot, rates=tuple(sorted(rates.items()))), kept)


def rollout_costs(pilot: PilotPlan) -> dict[int, float]:
    """n -> what a rollout of training costs at the pilot's prices, in the unit of its budget."""
    unit = pilot.budget.unit if pilot.budget else ROLLOUTS
    sizes = {n: (n, pilot.B_of(n), n * pilot.B_of(n), 0) for n in pilot.grid}
    return {n: pilot.prices.bill([size], pilot.timing).of_unit(unit) / size[2] for n, size in sizes.items()}


def leading(grid: Sequence[Curve], each: Mapping[int, float]) -> list[int]:
    """The n that are continued, best first: those that are not behind the best at the end of the grid, the best half
    of it at most and `FEWEST` at least."""
    at, worse = means(grid, each), ahead(grid, each)
    ranked = sorted(at, key=lambda n: (-at[n], n))
    close = [n for n in ranked if ranked[0] not in worse[n]]
    return ranked[: max(FEWEST, min(len(close), ceil(len(ranked) / 2)))]


def better_rate(curves: Sequence[Curve], n: int) -> float:
    """The multiplier of the rule's rate at which the runs of n have the highest mean `select` reward.

    At the largest C that all have reached which did not fall. A run that fell counts with its last reward, at most that
    of the base: it may have ended before an evaluation shows its fall.
    """
    by = {x: [c for c in curves if c.n == n and c.purpose in ("pilot", "edge") and c.multiplier == x]
          for x in sorted({c.multiplier for c in curves if c.n == n and c.purpose in ("pilot", "edge")})}
    end = min(float(c.C[-1]) for runs in by.values() for c in runs if not c.diverged)

    def reward(c: Curve) -> float:
        at = reward_at(c.C, c.select, end)
        return min(at, float(c.select[0])) if c.diverged else at

    mean = {x: float(np.mean([reward(c) for c in runs])) for x, runs in by.items()}
    return max(mean, key=lambda x: (mean[x], -abs(np.log(x))))


def checks(pilot: PilotPlan, n: int) -> list[PlannedRun]:
    """The runs of n at one step below and above the rule's rate, as long as the grid's and with the same seeds."""
    arm = [r for r in pilot.of_purpose("pilot") if r.n == n]
    return list(make_runs(pilot.seed, "edge", (n,), pilot.B, arm[0].first_C or arm[0].C, len(arm), EDGES, pilot.batch,
                          arm[0].turns))


def continued(pilot: PilotPlan, kept: Sequence[int]) -> PilotPlan:
    """The runs of these n, each at its own rate, continued to the largest common length that the reserve pays for."""
    arms = [r for r in pilot.arm_runs if r.n in kept]
    unit = pilot.unit

    def longer(C: int) -> list[PlannedRun]:
        return [replace(r, C=max(C, r.C), first_C=r.first_C or r.C) for r in arms]

    before = cost(pilot, arms)
    k = largest_that(lambda k: cost(pilot, longer(k * unit)) - before <= pilot.reserve, pilot.train_C // unit)
    if k * unit <= min(r.C for r in arms):
        return replace(pilot, reserve=0.0).repriced(pilot.prices, pilot.timing)
    made = {r.name: pilot.recapped(r) for r in longer(k * unit)}
    at = ", ".join(f"n = {n} at x{x:g} the rule's rate" for n, x in pilot.rates if n in kept)
    why = f"n = {', '.join(map(str, sorted(kept)))} continued to {k * unit:,} rollouts{f' ({at})' if at else ''}"
    whole = replace(pilot, runs=tuple(made.get(r.name, r) for r in pilot.runs), C=k * unit, reserve=0.0,
                    points=pilot.evaluation.points(k * unit, pilot.points[0]), why=f"{pilot.why}; then {why}")
    return whole.repriced(whole.prices, whole.timing)


def added(pilot: PilotPlan, runs: Sequence[PlannedRun], why: str) -> PilotPlan:
    """The pilot with these runs, whose cost is taken from the reserve."""
    made = replace(pilot, runs=(*pilot.runs, *map(pilot.recapped, runs)), reserve=pilot.reserve - cost(pilot, runs),
                   why=f"{pilot.why}; then {counted(len(runs), 'run')} to check {why}")
    return made.repriced(made.prices, made.timing)


def cost(pilot: PilotPlan, runs: Sequence[PlannedRun]) -> float:
    """What runs cost in the unit of the budget, as a multiple of the cost of the grid."""
    unit = pilot.budget.unit if pilot.budget else ROLLOUTS
    bill = bill_of([(r, 1 + len(pilot.points_of(r))) for r in runs], pilot.prices, pilot.timing, pilot.limits)
    return bill.of_unit(unit) / pilot.grid_bill.of_unit(unit)
