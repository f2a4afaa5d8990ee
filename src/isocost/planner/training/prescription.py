"""A prescription as data: what to train, why, and what it costs, as plan.json holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from isocost.disk.shape import FILLED, Plain, plain
from isocost.planner.budget import Budget, Timing, Usage, worded
from isocost.planner.training.choice import Risk
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.study_runs import PlannedRun
from isocost.runs.schema import VERSION
from isocost.stats.intervals import Interval
from isocost.units import ROLLOUTS

# Keys of plan.json beside the plan.
BESIDE = ("units", "more", "sees", "next", "measure", "evaluating", "growth", "cost")


@dataclass(frozen=True)
class PlannedArm:
    """One arm to train: sizes, learning rate, and the predicted reward (None without a curve of this n).

    `confidence` is of the arm's mean curve at C, `prediction` of the mean of the planned number of new runs. `epochs`
    are passes over the training problems, `seconds` those of one run with its evaluations (None if not known).
    """

    role: str               # "prescribed", "comparator", or "leader": the best at the pilot's end
    n: int
    B: int
    M: int
    C: int
    lr: float
    warmup: int
    epochs: float | None
    seconds: float | None
    confidence: Interval | None = None
    prediction: Interval | None = None


@dataclass(frozen=True)
class Check:
    """One condition that a plan must meet."""

    name: str
    holds: bool
    text: str


@dataclass(frozen=True)
class Marginal(Plain):
    """The predicted reward at the best n for C rollouts per run, and for 2C."""

    C: float
    n: int
    value: float
    doubled_n: int
    doubled: Interval

    SHOWN: ClassVar = ("gain",)

    @property
    def gain(self) -> float:
        """Predicted reward at 2C minus that at C."""
        return self.doubled.value - self.value


@dataclass(frozen=True)
class Plan(Plain):
    """What to train: the prescribed arm first, then its comparators, paired by seed.

    `chosen` says why its n was chosen; `equal` are the n whose difference from it is within the margin, `undecided`
    those that may be better or worse by more, and `risk` what the choice is expected to give away (None without an
    identified law). `fallback` is empty unless the law is not identified, and `settle` says what would resolve that.
    `turns` is the turn limit of training, None where none was planned. `claim` is False if the comparison cannot show
    that the prescription is better than the default n, because the default is equal or undecided.
    """

    direct: bool
    budget: Budget | None
    equal: tuple[int, ...]
    margin: float
    chosen: str
    fallback: str
    settle: str
    arms: Annotated[tuple[PlannedArm, ...], FILLED]
    comparison: str
    claim: bool
    seeds: int
    runs: tuple[PlannedRun, ...]
    points: tuple[int, ...]
    rate: RateRule
    timing: Timing
    bill: Usage
    pilot_bill: Usage
    pilot_C: int
    pilot_epochs: float | None
    checks: tuple[Check, ...]
    marginal: Marginal | None
    flags: tuple[str, ...]
    turns: int | None = None
    undecided: tuple[int, ...] = ()
    risk: Risk | None = None

    HEAD: ClassVar = {"schema": VERSION}
    SHOWN: ClassVar = ("extrapolation",)
    LATER: ClassVar = ("turns", "risk")

    @property
    def arm(self) -> PlannedArm:
        """The prescribed arm."""
        return self.arms[0]

    @property
    def comparator(self) -> PlannedArm | None:
        """The arm that it is compared with; None if the budget pays for one arm only."""
        return self.arms[1] if len(self.arms) > 1 else None

    @property
    def leader(self) -> PlannedArm | None:
        """The arm of the n that was best at the pilot's end; None where it is one of the other two."""
        return self.arms[2] if len(self.arms) > 2 else None

    @property
    def risks(self) -> str:
        """What the choice is expected to give away, in reward and in the unit of the budget; empty if not known."""
        if self.risk is None:
            return ""
        text = f"expected shortfall from the best n: {self.risk.reward:.3f} of reward"
        unit = self.budget.unit if self.budget else ROLLOUTS
        if not self.risk.share or self.bill.of_unit(unit) <= 0:
            return text
        more = self.risk.share * self.bill.of_unit(unit) / len(self.arms)
        amount = f"{more:,.0f} {unit}" if self.budget is None else worded(self.budget, more)
        return f"{text}, which {amount} more would make up for"

    @property
    def extrapolation(self) -> float | None:
        """Prescribed C over the pilot's largest; None without a pilot."""
        return self.arm.C / self.pilot_C if self.pilot_C else None

    def data(self) -> dict[str, Any]:
        """Plain data for JSON, with the prescribed arm as `arm` and the extrapolation ratio."""
        out = super().data() | {"arm": plain(self.arm)}
        if self.risk is None:       # as in records from before it
            del out["undecided"]
        return out
