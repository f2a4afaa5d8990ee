"""Errand: a point visits G places in their order; the last one pays 1 and ends the episode, nothing else pays.

The places are discs of radius 0.2 on a circle of radius 0.7, each 144° after the one before (a star of five). A step
moves the point by at most 0.2 on each axis. The last G numbers of an observation are labels of subgoals: 1 for the
places that were visited in order, which a method such as CALM or ONI pays for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

NEAR, STRIDE = 0.2, 0.2


@dataclass(frozen=True)
class Errand:
    """For sparse rewards with labelled subgoals. A state is (x, y, how many places were visited)."""

    places: int = 3
    live: bool = False
    reference: float = 1.0
    bounds: tuple[ndarray, ndarray] = (np.full(2, -1.0), np.full(2, 1.0))

    @property
    def name(self) -> str:
        return f"errand:{self.places}"

    @property
    def space(self) -> Space:
        return Space(2 + self.places, 2, subgoals=self.places)

    @property
    def limit(self) -> int:
        return 20 * self.places

    @cached_property
    def at(self) -> ndarray:
        """(G + 1, 2): the places; the last row is none, where all were visited."""
        turn = np.arange(self.places) * 0.8 * np.pi
        return np.append(0.7 * np.stack([np.cos(turn), np.sin(turn)], -1), [[9.0, 9.0]], 0)

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return np.append(rng.uniform(-0.1, 0.1, 2), 0.0)

    def observe(self, state: ndarray) -> ndarray:
        return np.concatenate((state[:, :2], np.arange(self.places) < state[:, 2:]), -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        point = np.clip(state[:, :2] + STRIDE * np.clip(action, -1, 1), -1, 1)
        there = ((point - self.at[state[:, 2].astype(int)]) ** 2).sum(-1) <= NEAR**2
        visited = state[:, 2] + there
        done = there & (visited == self.places)
        return np.concatenate((point, visited[:, None]), -1), done.astype(float), done


def opened(size: str) -> Errand:
    return Errand(int(size or 3))
