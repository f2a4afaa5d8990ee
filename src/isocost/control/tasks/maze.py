"""Maze: a point in a folded corridor of H cells; −1 a step until it is in the last cell.

The corridor is folded into rows of `FOLD` cells, with walls between rows except at their ends. A step moves the point
by at most half a cell on each axis, one axis after the other; a wall stops it. The optimum is known by breadth-first
search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

FOLD, STRIDE, EDGE = 4, 0.5, 1e-6


def _cell(point: ndarray) -> ndarray:
    """(n, 2) -> (n,): the cell's number along the corridor; −1 outside of all rows."""
    column, row = np.floor(point).astype(int).T
    number = row * FOLD + np.where(row % 2 == 0, column, FOLD - 1 - column)
    return np.where((column < 0) | (column >= FOLD) | (row < 0), -1, number)


def _home(cell: int) -> ndarray:
    """(2,): the middle of a cell."""
    row, k = divmod(cell, FOLD)
    return np.array([k if row % 2 == 0 else FOLD - 1 - k, row]) + 0.5


@dataclass(frozen=True)
class Maze:
    """For horizons that grow, and for parts of paths that are put together. The state is the point (x, y)."""

    cells: int = 8
    space: Space = Space(2, 2)
    live: bool = False
    bounds: tuple[ndarray, ndarray] = (np.full(2, -1.0), np.full(2, 1.0))

    @property
    def name(self) -> str:
        return f"maze:{self.cells}"

    @property
    def limit(self) -> int:
        return 10 * self.cells

    @cached_property
    def reference(self) -> float:
        """The return of a shortest path from the middle of the first cell, among moves by half a cell."""
        moves = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)], float)
        front, seen, steps = {tuple(_home(0))}, set(), 0
        while True:
            seen |= front
            steps += 1
            states = np.repeat(np.array(sorted(front)), len(moves), 0)
            after, _, arrived = self.step(states, np.tile(moves, (len(front), 1)))
            if arrived.any():
                return -float(steps)
            front = {tuple(p) for p in np.round(after, 7)} - seen

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return _home(0) + rng.uniform(-0.25, 0.25, 2)

    def observe(self, state: ndarray) -> ndarray:
        return state / FOLD * 2 - 1

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        at = state.copy()
        move = np.clip(action, -1, 1) * STRIDE
        for axis in (0, 1):
            here, after = _cell(at), at.copy()
            after[:, axis] += move[:, axis]
            there = _cell(after)
            free = (np.abs(there - here) <= 1) & (there >= 0) & (there < self.cells)
            floor = np.floor(at[:, axis])
            wall = np.where(move[:, axis] > 0, floor + 1 - EDGE, floor)
            at[:, axis] = np.where(free, after[:, axis], wall)
        arrived = _cell(at) == self.cells - 1
        return at, np.full(len(at), -1.0), arrived


def opened(size: str) -> Maze:
    return Maze(int(size or 8))
