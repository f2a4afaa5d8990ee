"""A trained policy without its trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy import ndarray
from torch import Tensor

from isocost.control.loop import Loop, StackedRun
from isocost.control.seams import Agent
from isocost.control.types import ControlTask
from isocost.errors import UserError


class ControlPolicy:
    """What a run of control learned: `act(observation)` is its action without exploration."""

    def __init__(self, agent: Agent, task: ControlTask, tensors: Mapping[str, Tensor]):
        self.agent, self.task = agent, task
        self.loop = Loop(agent, task, [StackedRun(0, 1.0, 0.0)], 1)
        for name, weights in self.loop.weights.items():
            weights[0] = tensors[f"{name}.weights"]

    def act(self, observation: Any) -> Any:
        """The action for one observation, (O,), or for several, (n, O): (A,) or (n, A), in the task's own bounds.

        An integer, or (n,) integers, where actions are discrete. Raises UserError for another number of values.
        """
        seen = np.asarray(observation, dtype=np.float64)
        if seen.ndim not in (1, 2) or seen.shape[-1] != self.task.space.observation:
            raise UserError(f"an observation of {self.task.name} has {self.task.space.observation} values, got an "
                            f"array of shape {seen.shape}")
        action: ndarray = self.loop.scaled(self.loop.policy([0], np.atleast_2d(seen)[None], None)[0])
        if self.task.space.discrete:
            chosen = action[:, 0].astype(int)
            return chosen if seen.ndim == 2 else int(chosen[0])
        return action if seen.ndim == 2 else action[0]

    def returns(self, episodes: int, seed: int) -> ndarray:
        """(2, episodes): returns and steps of episodes from starts of this seed; 0 is that of a run's evaluations."""
        found: ndarray = self.loop.evaluate([0], episodes, seed=seed)[:, 0]
        return found
