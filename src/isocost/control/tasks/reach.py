"""Reach: a point in the middle goes to one of two places; the right one pays 1, the left one 0.5, nothing else pays.

A step moves the point by at most 0.2 on each axis. The places are discs of radius 0.2 around (±0.8, 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

PLACES, PAID, NEAR, STRIDE = np.array([[0.8, 0.0], [-0.8, 0.0]]), np.array([1.0, 0.5]), 0.2, 0.2


@dataclass(frozen=True)
class Reach:
    """For policies with two modes: half of the demonstrations go to each place. The state is the point (x, y)."""

    name: str = "reach"
    space: Space = Space(2, 2)
    live: bool = False
    limit: int = 12
    reference: float = 1.0          # the right place, which is in reach from every start
    bounds: tuple[ndarray, ndarray] = (np.full(2, -1.0), np.full(2, 1.0))

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return rng.uniform(-0.1, 0.1, 2)

    def observe(self, state: ndarray) -> ndarray:
        return state

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        at = np.clip(state + STRIDE * np.clip(action, -1, 1), -1, 1)
        there = ((at[:, None] - PLACES) ** 2).sum(-1) <= NEAR**2
        return at, (there * PAID).sum(-1), there.any(-1)


def opened(size: str) -> Reach:
    return Reach()
