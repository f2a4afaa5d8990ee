"""What is asked of a plan, and what a plan is: the pilot's, or the prescription with what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from isocost.display import OfPlanner, folder_field
from isocost.errors import UserError
from isocost.planner import pilot as pilots
from isocost.planner import prescription as plans
from isocost.planner.budget import Budget, Machine
from isocost.planner.more import More
from isocost.planner.n_growth import NGrowth
from isocost.planner.seeds import ComparisonPower
from isocost.stats.intervals import Interval
from isocost.units import SECONDS, TABLE, UNITS

Data = Mapping[str, Any]


@dataclass(frozen=True)
class PlanOptions:
    """The options of `isocost plan`. What is None is as it was planned before, else chosen by the planner.

    size, budget: a preset's name, or what pilot and training may spend, with a unit ("2h", "50k-rollouts"); without
        either, `quick`.
    lr, lr_exponent: the learning rate that the probe varies, and the exponent of the rule in n B.
    groups, fixed_batch: B, problems per update; or n B, rollouts per update.
    metric, samples, evaluation_share: what laws are of; samples per held-out problem, at most; the cost of evaluations
        over the cost of training, at most.
    turns: the turn limits that the pilot compares, of dialogues; by default those that the profile proposes.
    price, devices, workers: "2.5usd/device-hour"; devices paid for; runs side by side.
    """

    size: str | None = None
    budget: str | None = None
    lr: float | None = None
    lr_exponent: float | None = None
    groups: int | None = None
    fixed_batch: int | None = None
    metric: str | None = None
    price: str | None = None
    devices: int | None = None
    workers: int | None = None
    samples: int | None = None
    evaluation_share: float | None = None
    turns: Sequence[int] | None = None

    @property
    def shape(self) -> bool:
        """Whether they say which runs a pilot has."""
        of_runs = (self.size, self.lr, self.lr_exponent, self.groups, self.fixed_batch, self.samples,
                   self.evaluation_share, self.turns)
        return any(x is not None for x in of_runs)

    @property
    def spending(self) -> bool:
        """Whether they say what may be spent, or on which machine."""
        return any(x is not None for x in (self.budget, self.price, self.devices, self.workers))

    def spend(self, machine: Machine, uncounted: Mapping[str, str]) -> Budget | None:
        """The budget in a unit that plans count in; None without one. `uncounted` is unit -> why it cannot be counted.

        Raises UserError, naming the units that can be counted, for a budget in another.
        """
        if self.budget is None:
            return None
        budget = Budget.parse(self.budget)
        if why := uncounted.get(budget.unit if budget.unit in UNITS else SECONDS):
            *most, last = (TABLE[unit].asked for unit in UNITS if unit not in uncounted)
            units = f"{', '.join(most)} or {last}" if most else last
            raise UserError(f"a budget of {budget} cannot be counted: {why}; give {units}, such as 50k-rollouts")
        return machine.plannable(budget, self.budget.strip())


@dataclass(frozen=True)
class PilotPlan(OfPlanner):
    """The pilot's plan, and its cost.

    plan: the planner's own (`isocost.planner.pilot.PilotPlan`).

    units: the budget in every unit, and the machine that hours and money are for; None where none was written.
    profiled: rollouts that the profile sampled, which no budget counts; None in a dry run.
    overridden: which of the method's own sizes and settings the study uses and which it sets itself; may be empty.
    elsewhere: what to do with the runs where isocost cannot launch them; else empty.
    """

    record: ClassVar[str] = "pilot"
    sections: ClassVar[tuple[str, ...]] = ("pilot",)

    has: ClassVar[str] = "plan"

    plan: pilots.PilotPlan
    units: Data | None = None
    profiled: int | None = None
    overridden: str = ""
    elsewhere: str = ""
    folder: Path | None = folder_field()

    def to_dict(self) -> dict[str, Any]:
        """pilot.json; without `units` where none was written."""
        return self.plan.data() | ({} if self.units is None else {"units": self.units})


@dataclass(frozen=True)
class Expected:
    """What the law predicts of the prescribed runs: the mean reward of `runs` new runs of n at C rollouts each.

    `interval` is its prediction interval; None where no law is identified.
    """

    n: int
    C: int
    runs: int
    interval: Interval | None


@dataclass(frozen=True)
class Plan(OfPlanner):
    """The prescription, and what follows from it and the law.

    plan: the planner's own (`isocost.planner.prescription.Plan`), which a forecast is sealed from.

    units: the budget in every unit and the machine; more: expected gain of 2, 4 and 8 times the rollouts, and its cost.
    sees: the minimum detectable difference of its seeds. next: runs to add to the pilot, what they would resolve, and
        the option of `isocost pilot` that adds them.
    evaluating: problems, samples, rollouts and standard error (reward) of its evaluations; None where they are exact.
    growth: whether the best n is likely to grow with compute on these problems; None in records of earlier versions.
    measure: of imported runs, what their reward, its scale and their C are; None of isocost's own.
    extendable: whether runs can be added to the study's pilot.
    """

    record: ClassVar[str] = "plan"
    sections: ClassVar[tuple[str, ...]] = ("answer", "curves", "flags")

    has: ClassVar[str] = "plan"

    plan: plans.Plan
    units: Data | None = None
    evaluating: Data | None = None
    growth: NGrowth | None = None
    more: tuple[More, ...] = ()
    sees: ComparisonPower | None = None
    next: tuple[Data, ...] = ()
    measure: Data | None = None
    extendable: bool = False
    folder: Path | None = folder_field()
    held: tuple[str, ...] = field(default=(), compare=False, repr=False)    # of plans.BESIDE: keys that plan.json has

    @classmethod
    def written(cls, data: Data, **beside: Any) -> Plan:
        """From plan.json."""
        return cls(
            plans.Plan.of(data),
            units=data.get("units"),
            evaluating=data.get("evaluating"),
            growth=NGrowth.of(data["growth"]) if data.get("growth") else None,
            more=tuple(map(More.of, data.get("more") or ())),
            sees=ComparisonPower.of(data["sees"]) if data.get("sees") else None,
            next=tuple(data.get("next") or ()),
            measure=data.get("measure"),
            held=tuple(k for k in plans.BESIDE if k in data),
            **beside,
        )

    @property
    def n(self) -> int:
        """Rollouts per problem."""
        return self.plan.arm.n

    @property
    def B(self) -> int:
        """Problems per update."""
        return self.plan.arm.B

    @property
    def M(self) -> int:
        """Updates per run."""
        return self.plan.arm.M

    @property
    def C(self) -> int:
        """Rollouts per run: n B M."""
        return self.plan.arm.C

    @property
    def lr(self) -> float:
        """Learning rate after warm-up."""
        return self.plan.arm.lr

    @property
    def forecast(self) -> Expected:
        """What the law predicts of it, before it is sealed."""
        return Expected(self.n, self.C, self.plan.seeds, self.plan.arm.prediction)

    def to_dict(self) -> dict[str, Any]:
        """plan.json: records of imported runs, and of earlier versions, have fewer keys beside the plan."""
        beside = {
            "units": self.units,
            "evaluating": self.evaluating,
            "growth": self.growth.data() if self.growth else None,
            "more": [m.data() for m in self.more],
            "sees": self.sees.data() if self.sees else None,
            "next": list(self.next),
            "measure": self.measure,
        }
        return self.plan.data() | {k: v for k, v in beside.items() if k in self.held}
