"""What a comparison returns, and the notices that an observer (`isocost.steps.events`) receives before that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isocost.compare.design import Design
from isocost.compare.judge import Comparison
from isocost.compare.many import ChangeSet
from isocost.disk.jsonfile import finite
from isocost.planner.budget import Bill
from isocost.runs import files as records
from isocost.screen.display import Result
from isocost.worlds.setting import Setting

# results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparisonPlan(Result):
    """What a comparison of methods will do and what it is expected to cost, before anything is trained.

    `design` holds the cost of each run in its `unit`, evaluation points in rollouts, candidate learning rates and
    seeds. `expected` is the cost of all probes and runs in every unit. `workers` runs go side by side. `pricing` is
    what estimating the cost used: rollouts, tokens, seconds; empty in records of earlier versions. `noise` is the
    standard deviation between runs (`sd`, in reward) and its degrees of freedom (`dof`), measured by a pilot or on the
    probes; None until they have ended. `piloted` are the learning rates that a pilot found, empty without one: then
    nothing is probed. `alike` are arms that took identical steps in the toy world.
    """

    design: Design
    expected: Bill
    setting: Setting
    workers: int
    pricing: Mapping[str, Any]
    noise: Mapping[str, float] | None = None
    piloted: Mapping[str, float] = field(default_factory=dict)
    alike: tuple[tuple[str, ...], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost compare --dry-run --json` prints it."""
        data = {**self.design.data(), "expected": self.expected.data(), "pricing": self.pricing}
        return dict(finite(data))


@dataclass(frozen=True)
class TrainerComparisonPlan(Result):
    """What a comparison of settings of a user's trainer will do: its design, in rollouts. `noise` and `piloted` are as
    in `ComparisonPlan`."""

    design: Design
    noise: Mapping[str, float] | None = None
    piloted: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost compare --trainer ... --dry-run --json` prints it."""
        return dict(finite(self.design.data()))


@dataclass(frozen=True)
class MethodComparison(Result):
    """Methods that were trained and judged at equal cost.

    `comparison` holds the answers: rewards in [0, 1] on the test split, at a cost in `comparison.unit`. `rates` is the
    learning rate of each arm. `bill` is what was paid for pricing, probes and runs: rollouts, tokens, seconds. `seal`
    is the hash of the design, `metric` what rewards are (pass@1, ...), `file` the one that keeps all this.
    """

    comparison: Comparison
    rates: Mapping[str, float]
    bill: Mapping[str, Mapping[str, float]]
    seal: str
    metric: str
    file: Path

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if two arms differ, 3 if all are the same within the margin, else 4."""
        return self.comparison.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: comparison.json, and what `isocost compare --json` prints."""
        data = {**self.comparison.data(), "seal": self.seal, "metric": self.metric, "rates": self.rates,
                "bill": self.bill}
        return dict(finite(data))


@dataclass(frozen=True)
class ParentComparison(Result):
    """Methods that were trained and judged each against its parent, with a controlled false discovery rate.

    `wave` holds the verdicts: rewards in [0, 1] on the test split, at costs in `wave.unit`. `ended` are notes on runs
    that did not spend their budget. The other fields are those of `MethodComparison`.
    """

    wave: ChangeSet
    rates: Mapping[str, float]
    bill: Mapping[str, Mapping[str, float]]
    seal: str
    metric: str
    ended: tuple[str, ...]
    file: Path

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if a method differs from its parent, 3 if all are the same within the margin, else 4."""
        return self.wave.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: wave.json, and what `isocost compare --to-parents --json` prints."""
        data = {"schema": records.SCHEMA, **self.wave.data(), "seal": self.seal, "metric": self.metric,
                "rates": self.rates, "bill": self.bill, "ended": self.ended}
        return dict(finite(data))


@dataclass(frozen=True)
class FolderComparison(Result):
    """Recorded runs that were judged at equal cost, one folder per arm.

    `comparison` holds the answers, at a cost in `comparison.unit`; `counted_in` is that unit's name in text. `file`
    is the file that keeps them, None if no folder for it was given.
    """

    comparison: Comparison
    counted_in: str
    file: Path | None = None

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if two arms differ, 3 if all are the same within the margin, else 4."""
        return self.comparison.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as `isocost compare --json` prints it."""
        return dict(finite(self.comparison.data()))


# notices ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sealed:
    """The design was sealed: its hash, and the file that holds both."""

    seal: str
    file: Path


@dataclass(frozen=True)
class Probed:
    """The probes have ended. `rates` is the learning rate of each arm; `flags` are (arms, what to know of their
    rates); `noise` is as in `ComparisonPlan`."""

    design: Design
    rates: Mapping[str, float]
    flags: tuple[tuple[tuple[str, ...], str], ...]
    noise: Mapping[str, float] | None
