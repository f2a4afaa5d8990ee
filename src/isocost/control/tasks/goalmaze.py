"""Maze with a goal: that of `maze`, whose observation also has the middle of the last cell, as a goal.

A method of goals learns on it to come from any state to any other; an episode asks for the last cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.tasks.maze import Maze, _home
from isocost.control.types import Space


@dataclass(frozen=True)
class GoalMaze(Maze):
    """For values and policies over long distances. An observation is the point (x, y), then the goal."""

    space: Space = Space(4, 2, goal=2)

    @property
    def name(self) -> str:
        return f"goal{super().name}"

    def observe(self, state: ndarray) -> ndarray:
        goal = super().observe(_home(self.cells - 1))
        return np.concatenate((super().observe(state), np.broadcast_to(goal, state.shape)), -1)


def opened(size: str) -> GoalMaze:
    return GoalMaze(int(size or 8))
