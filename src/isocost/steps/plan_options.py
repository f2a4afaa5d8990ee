"""What is asked of a plan, and whether a study can count a budget in its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isocost.errors import UserError
from isocost.planner.budget import Budget, Machine
from isocost.units import SECONDS, TABLE, UNITS


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
