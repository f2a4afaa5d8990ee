"""Goals for trajectories of a set: each transition gets another state as its goal.

Observations end with a goal of G numbers, which is for the first G numbers (`Space.goal`). The states of a trajectory
are those of its rows, and the one that follows its last row. A goal is reached where the trajectory comes to the very
state that it is taken from, not where the trajectory ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.parts.mix import last_rows
from isocost.control.replay import Replay
from isocost.control.types import Space
from isocost.errors import UserError

FAR = 1 << 40       # steps to a goal that is not ahead on the trajectory


@dataclass(frozen=True)
class GoalWalk:
    """Rows that were drawn, (S, B), and what lies ahead of them on their trajectories."""

    replay: Replay
    count: int
    luck: Luck

    def _drawn(self, name: str) -> Tensor:
        return (self.luck.uniform(name, self.count) * self.replay.stored[0]).long()

    @cached_property
    def row(self) -> Tensor:
        return self._drawn("replay")

    @cached_property
    def left(self) -> Tensor:
        """Steps to the last state of the trajectory, at least 1."""
        return last_rows(self.replay)[self.row] + 1 - self.row

    @property
    def action(self) -> Tensor:
        return self.replay.split(self._rows(self.row))[1]

    def _rows(self, at: Tensor) -> Tensor:
        return self.replay.rows[torch.tensor(self.replay.runs)[:, None], at]

    def state(self, ahead: Tensor | int) -> Tensor:
        """(S, B, O − G): the state so many steps ahead, or the trajectory's last."""
        steps = self.left.clamp(max=ahead) if isinstance(ahead, int) else self.left.minimum(ahead)
        now, _, _, after, _, _ = self.replay.split(self._rows(self.row + steps.minimum(self.left - 1)))
        return torch.where((steps == self.left)[..., None], after, now)[..., : -self.replay.space.goal]

    def goal(self, name: str, *, current: float, future: float) -> tuple[Tensor, Tensor]:
        """Goals, (S, B, G), and the steps to them, (S, B): the current state, one ahead, or any state of the set.

        `current` and `future` are shares; each state ahead has the same chance.
        """
        size = self.replay.space.goal
        kind = self.luck.uniform(f"{name} kind", self.count)
        ahead = (self.luck.uniform(f"{name} ahead", self.count) * self.left).long() + 1
        steps = torch.where(kind < current, 0, ahead)
        elsewhere = self.replay.split(self._rows(self._drawn(f"{name} row")))[3]
        far = kind >= current + future
        goal = torch.where(far[..., None], elsewhere[..., :size], self.state(steps)[..., :size])
        return goal, torch.where(far, FAR, steps)


def size_of(space: Space) -> int:
    """G. Raises UserError for a task without goals."""
    if not space.goal:
        raise UserError("the observations of this task have no goal: take goalmaze:8, or a method without goals")
    return space.goal


def aimed(state: Tensor, goal: Tensor) -> Tensor:
    """An observation with another goal."""
    return torch.cat((state, goal), -1)
