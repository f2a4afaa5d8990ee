"""What a pilot spends after its grid: its reserve goes to the n between which the choice is open.

First the learning rate of the leading n is checked at one step below and above the rule's, with as many seeds as the
grid has and longer runs, because a higher rate often starts behind. Then the n that are not behind, the best half of
the grid at most (successive halving; Jamieson and Talwalkar 2016, arXiv 1502.07943), go on to one length. Where another
rate was better, they do so at that multiple of the rule's rate: a probe errs about the rule more than about one n, and
runs at a wrong rate rank n wrongly. Both steps follow from the pilot's records alone, so a pilot that was killed goes
on in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

import numpy as np

from isocost.laws.curves import Curve, multiplier
from isocost.planner.training.learning_rate import EDGES, reward_at
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.standing import ahead, means
from isocost.planner.training.study_runs import PlannedRun, largest_that, make_runs
from isocost.planner.training.turn_limits import bill_of
from isocost.units import ROLLOUTS

FEWEST = 2          # n whose runs are continued, at least
LONGER = 5 / 3      # length of the runs that check a rate, of the grid's


def focused(pilot: PilotPlan, curves: Sequence[Curve]) -> PilotPlan:
    """The pilot with the next runs that its reserve pays for, from its ended `curves`; without reserve if none is
    left."""
    seen = [c for c in curves if not c.diverged]
    grid = [c for c in seen if c.purpose == "pilot"]
    if len({c.arm["n"] for c in grid}) < 2:
        return replace(pilot, reserve=0.0).repriced(pilot.prices, pilot.timing)
    each = rollout_costs(pilot)
    kept = leading(grid, each)
    checked = pilot.of_purpose("edge") or not pilot.of_purpose("probe")     # a rate that no probe chose is the user's
    if not checked:
        runs = checks(pilot, kept[0])
        if added_cost(pilot, runs) <= pilot.reserve:
            return added(pilot, runs, f"the rate of n = {kept[0]} at {' and '.join(f'x{x:g}' for x in EDGES)}")
    rate = better_rate(curves, kept[0])
    return continued(replace(pilot, rates=tuple((n, rate) for n in sorted(kept)) if rate != 1.0 else ()), kept)


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
    """The multiplier of the rule's rate at which n has the highest mean `select` reward; runs that fell count too."""
    own = [c for c in curves if c.arm["n"] == n and c.purpose in ("pilot", "edge")]
    by = {x: [c for c in own if multiplier(c) == x] for x in sorted(set(map(multiplier, own)))}
    end = min(float(c.C[-1]) for runs in by.values() for c in runs if not c.diverged)

    def reward(c: Curve) -> float:
        at = reward_at(c.C, c.select, end)
        return min(at, float(c.select[0])) if c.diverged else at

    mean = {x: float(np.mean([reward(c) for c in runs])) for x, runs in by.items()}
    return max(mean, key=lambda x: (mean[x], -abs(np.log(x))))


def checks(pilot: PilotPlan, n: int) -> list[PlannedRun]:
    """The runs of n at the rule's rate and at one step below and above it, with the grid's seeds and `LONGER`."""
    arm = [r for r in pilot.of_purpose("pilot") if r.n == n]
    C = max(arm[0].C, min(int(LONGER * arm[0].C / pilot.unit + 1e-9) * pilot.unit, longest(pilot, n)))
    new = make_runs(pilot.seed, "edge", [arm[0].arm], C, len(arm), EDGES)
    first = arm[0].first_C or arm[0].C
    return [replace(r, C=C, first_C=None if first == C else first) for r in (*arm, *new)]


def continued(pilot: PilotPlan, kept: Sequence[int]) -> PilotPlan:
    """The runs of these n, at their rate, to the largest common length that the reserve pays for, half of a trained
    run's at most. With fewer n, `FEWEST` at least, if all of them would not get beyond the runs that are there."""
    rate, unit = pilot.rate_of(kept[0]), pilot.unit
    done = max(r.C for r in pilot.runs if r.n == kept[0] and r.multiplier == rate)
    for ns in (kept[:many] for many in range(len(kept), min(FEWEST, len(kept)) - 1, -1)):
        most = min(longest(pilot, n) for n in ns) // unit
        C = unit * largest_that(lambda k, ns=ns: added_cost(pilot, longer(pilot, ns, k * unit)) <= pilot.reserve, most)
        if done < C:
            at = f" at x{rate:g} the rate" * (rate != 1)
            made = added(pilot, longer(pilot, ns, C), f"n = {', '.join(map(str, sorted(ns)))} to {C:,} rollouts{at}")
            return settled(made, ns)
    return settled(pilot, kept[:1])


def longest(pilot: PilotPlan, n: int) -> int:
    """The most rollouts of a pilot run of n: those that cost half of a trained run, in the unit of the budget."""
    unit = pilot.budget.unit if pilot.budget else ROLLOUTS
    most = pilot.train_bill.of_unit(unit) / (2 * pilot.train_arms * pilot.train_seeds)
    return max(1, int(most / rollout_costs(pilot)[n] / pilot.unit + 1e-9)) * pilot.unit


def settled(pilot: PilotPlan, ns: Sequence[int]) -> PilotPlan:
    """The pilot without a reserve, and another rate than the rule's only for these n: others have no runs at it."""
    rates = tuple((n, x) for n, x in pilot.rates if n in ns)
    return replace(pilot, reserve=0.0, rates=rates).repriced(pilot.prices, pilot.timing)


def longer(pilot: PilotPlan, ns: Sequence[int], C: int) -> list[PlannedRun]:
    """The grid's runs of these n, each at its n's rate, with C rollouts or as many as they have."""
    there = {r.name: r for r in pilot.runs}
    runs = [replace(r, purpose="pilot" if pilot.rate_of(r.n) == 1.0 else "edge", C=C, first_C=r.first_C or r.C,
                    arm=r.arm.but(multiplier=pilot.rate_of(r.n))) for r in pilot.of_purpose("pilot") if r.n in ns]
    return [there[r.name] if r.name in there and there[r.name].C >= C else r for r in runs]


def added(pilot: PilotPlan, runs: Sequence[PlannedRun], why: str) -> PilotPlan:
    """The pilot with these runs, new ones or longer, whose cost is taken from the reserve."""
    made = {r.name: pilot.recapped(r) for r in runs}
    left = pilot.reserve - added_cost(pilot, runs)
    C = max(pilot.C, *(r.C for r in runs))
    whole = replace(pilot, runs=(*(made.pop(r.name, r) for r in pilot.runs), *made.values()), reserve=left, C=C,
                    points=pilot.evaluation.points(C, pilot.points[0]), why=f"{pilot.why}; then {why}")
    return whole.repriced(whole.prices, whole.timing)


def added_cost(pilot: PilotPlan, runs: Sequence[PlannedRun]) -> float:
    """What these runs, new ones or longer, cost beyond what is planned, as a multiple of the cost of the grid."""
    there = {r.name: r for r in pilot.runs}
    return cost(pilot, runs) - cost(pilot, [there[r.name] for r in runs if r.name in there])


def cost(pilot: PilotPlan, runs: Sequence[PlannedRun]) -> float:
    """What runs cost in the unit of the budget, as a multiple of the cost of the grid."""
    unit = pilot.budget.unit if pilot.budget else ROLLOUTS
    bill = bill_of([(r, 1 + len(pilot.points_of(r))) for r in runs], pilot.prices, pilot.timing, pilot.limits)
    return bill.of_unit(unit) / pilot.grid_bill.of_unit(unit)
