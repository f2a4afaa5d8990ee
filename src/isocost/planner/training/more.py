"""The gain and cost of more compute: reward at two, four and eight times the rollouts per run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from isocost.disk.shape import Plain
from isocost.laws.law import DRIFT, Law
from isocost.planner.budget import Budget, Machine, Timing, Usage, row_of
from isocost.planner.training.pilot import PilotPlan
from isocost.stats.intervals import Interval, mixture_quantiles, spread
from isocost.units import DEVICE_SECONDS, ROLLOUTS, SECONDS

TIMES = (2, 4, 8)


@dataclass(frozen=True)
class More(Plain):
    """`times` the rollouts per run: the best n there, the `gain` in reward over the best n at C, and the cost.

    `cost` is in addition to the plan's training, in `unit`: that of the budget, rollouts without a budget. `caution`
    says why the law should not be extrapolated so far; if it is not empty, only the first step has numbers.
    """

    times: int
    C: float
    n: int | None
    gain: Interval | None
    cost: float | None
    unit: str
    caution: str = ""


def gain(law: Law, n: int, C: float, later_n: int, later: float) -> Interval:
    """The mean curve of arm `later_n` at `later` minus that of arm n at C, from joint draws, with the law's drift."""
    start, end = law.drawn(n, np.array([C]))[:, 0], law.drawn(later_n, np.array([later]))[:, 0]
    reached = law.range[1]
    doublings = np.log2(max(later, reached) / max(C, reached))
    sd = 4 * DRIFT * spread(end) * doublings
    low, high = mixture_quantiles(end - start, sd, [(1 - law.level) / 2, (1 + law.level) / 2])
    value = float((end - start).mean())
    return Interval(value, min(float(low), value), max(float(high), value), law.level, "confidence", law.dof)


def more(
    law: Law, planned: PilotPlan, lengths: Mapping[int, int], timing: Timing, machine: Machine, budget: Budget | None,
) -> tuple[More, ...]:
    """Gain and cost of each of `TIMES` the plan's rollouts per run, for all its arms and seeds.

    `lengths` are n -> rollouts of a run of each of the plan's arms, the prescribed one first. Beyond `laws.law.DECADE`
    times the pilot only the first step is computed, with a caution; its interval has widened with every doubling.
    """
    (_, C), *others = lengths.items()

    def bill(n: int, times: int) -> Usage:
        arms = [(n, times * C), *((k, times * own) for k, own in others)]
        sizes = [(k, planned.B_of(k), size, 1 + len(planned.train_points(size))) for k, size in arms]
        return planned.prices.bill(sizes * planned.train_seeds, timing)

    out: list[More] = []
    now = bill(next(iter(lengths)), 1)
    unit, _ = _in_unit(now, machine, budget)
    for t in TIMES:
        refused = law.refusal(t * C)
        caution = refused.reason if refused is not None else ""
        if caution and out:
            out.append(More(t, float(t * C), None, None, None, unit, caution))
            continue
        n = law.best(t * C)
        cost = _in_unit(bill(n, t), machine, budget)[1] - _in_unit(now, machine, budget)[1]
        out.append(More(t, float(t * C), n, gain(law, law.best(C), C, n, t * C), cost, unit, caution))
    return tuple(out)


def _in_unit(bill: Usage, machine: Machine, budget: Budget | None) -> tuple[str, float]:
    """(unit, amount) of a bill in the unit that the budget was given in."""
    if budget is None:
        return ROLLOUTS, float(bill.rollouts)
    unit = Budget.parse(budget.asked).unit if budget.asked else budget.unit
    if unit == SECONDS:
        return row_of(unit), bill.seconds / machine.side_by_side
    if unit == DEVICE_SECONDS:
        return row_of(unit), machine.device_hours(bill.seconds)
    money = machine.money(bill.seconds)
    return (unit, money) if unit == machine.currency and money is not None else (unit, bill.of_unit(unit))
