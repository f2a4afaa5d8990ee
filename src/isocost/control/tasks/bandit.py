"""Bandit: one action of two numbers, one reward with a known mean: the higher of two peaks is the narrower one.

    Q(a) = max(exp(−|a − (0.5, 0.5)|² / 0.08), 0.8 exp(−|a + (0.5, 0.5)|² / 0.5))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space


@dataclass(frozen=True)
class Bandit:
    """For what a policy class can represent: a policy with one mode may stay on the lower peak."""

    name: str = "bandit"
    space: Space = Space(1, 2)
    live: bool = False
    limit: int = 1
    reference: float = 1.0          # the higher peak
    bounds: tuple[ndarray, ndarray] = (np.full(2, -1.0), np.full(2, 1.0))

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return np.ones(1)

    def observe(self, state: ndarray) -> ndarray:
        return state

    def value(self, action: ndarray) -> ndarray:
        """(n, 2) -> (n,): Q."""
        high, low = ((action - 0.5) ** 2).sum(-1), ((action + 0.5) ** 2).sum(-1)
        return np.maximum(np.exp(-high / 0.08), 0.8 * np.exp(-low / 0.5))

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        return state, self.value(np.ascontiguousarray(action)), np.ones(len(state), bool)


def opened(size: str) -> Bandit:
    return Bandit()
