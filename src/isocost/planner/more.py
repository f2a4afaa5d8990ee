"""What more compute would buy, and what it would cost: reward at twice, four and eight times the rollouts per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from isocost.laws.law import AUDIT, DRIFT, Law
from isocost.planner.budget import Bill, Budget, Machine, Timing, row_of
from isocost.planner.pilot import PilotPlan
from isocost.stats.intervals import Interval, mixture_quantiles, spread
from isocost.units import DEVICE_SECONDS, ROLLOUTS, SECONDS

TIMES = (2, 4, 8)


@dataclass(frozen=True)
class More:
    """`times` the rollouts per run: the best n there, the `gain` in reward over the best n at once, what it costs.

    `cost` is what is to be paid on top of the plan's training, in `unit`: the budget's own, rollouts without a budget.
    `caution` says why the law should not be asked so far out, empty where it may; then only the first step is told.
    """

    times: int
    C: float
    n: int | None
    gain: Interval | None
    cost: float | None
    unit: str
    caution: str = ""

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> More:
        """What `data()` wrote."""
        return More(**{**data, "gain": Interval.of(data["gain"]) if data["gain"] else None})


def gain(law: Law, n: int, C: float, later_n: int, later: float) -> Interval:
    """How much higher the mean curve of arm `later_n` is at `later` than that of arm n at C, with its interval.

    A draw of both arms is the same luck, so what the two share cancels. For shapes outside the law's forms the drift
    of every doubling beyond the pilot is added, as in the law's own intervals.
    """
    start, end = law.paths(n, np.array([C]), AUDIT)[:, 0], law.paths(later_n, np.array([later]), AUDIT)[:, 0]
    seen = law.range[1]
    doublings = np.log2(max(later, seen) / max(C, seen))
    sd = 4 * DRIFT * spread(end) * doublings
    low, high = mixture_quantiles(end - start, sd, [(1 - law.level) / 2, (1 + law.level) / 2])
    value = float((end - start).mean())
    return Interval(value, min(float(low), value), max(float(high), value), law.level, "confidence", law.dof)


def more(
    law: Law, planned: PilotPlan, ns: Sequence[int], C: int, timing: Timing, machine: Machine, budget: Budget | None,
    times: Sequence[int] = TIMES,
) -> tuple[More, ...]:
    """The diminishing curve: what each of `times` the plan's C rollouts a run would gain, for all its arms and seeds.

    `ns` are the plan's arms, the prescribed one first. Beyond a decade from the pilot the first step alone is told,
    with a caution: it is what a user asks first, and its interval has widened with every doubling.
    """
    def bill(arms: Sequence[int], size: int) -> Bill:
        evaluations = 1 + len(planned.train_points(size))
        sizes = [(k, planned.B_of(k), size, evaluations) for k in arms for _ in range(planned.train_seeds)]
        return planned.prices.bill(sizes, timing)

    out: list[More] = []
    now, (unit, _) = bill(ns, C), _in_unit(bill(ns, C), machine, budget)
    for t in times:
        refused = law.refusal(t * C)
        caution = refused.reason if refused is not None else ""
        if caution and out:
            out.append(More(t, float(t * C), None, None, None, unit, caution))
            continue
        n = law.best(t * C)
        cost = _in_unit(bill((n, *ns[1:]), t * C), machine, budget)[1] - _in_unit(now, machine, budget)[1]
        out.append(More(t, float(t * C), n, gain(law, law.best(C), C, n, t * C), cost, unit, caution))
    return tuple(out)


def _in_unit(bill: Bill, machine: Machine, budget: Budget | None) -> tuple[str, float]:
    """(unit, amount) of a bill in what the budget was asked in."""
    if budget is None:
        return ROLLOUTS, float(bill.rollouts)
    unit = Budget.parse(budget.asked).unit if budget.asked else budget.unit
    if unit == SECONDS:
        return row_of(unit), bill.seconds / machine.side_by_side
    if unit == DEVICE_SECONDS:
        return row_of(unit), machine.device_hours(bill.seconds)
    money = machine.money(bill.seconds)
    return (unit, money) if unit == machine.currency and money is not None else (unit, bill.of_unit(unit))
