"""Lock: a row of H states with one right action of two in each; a wrong one leads back to the start.

The right action in the last state pays 1 and ends the episode. V(s) = gamma^(H − 1 − s), so the number of backups that
carry the reward to the start is exact: H with one-step targets, ⌈H/n⌉ with n-step targets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

CHOICES = 2


@dataclass(frozen=True)
class Lock:
    """For what depends on the horizon: n-step targets, the edge of what is reached. The state is the number of one."""

    length: int = 8
    reference: float = 1.0
    live: bool = False

    @property
    def name(self) -> str:
        return f"lock:{self.length}"

    @property
    def space(self) -> Space:
        return Space(self.length, 1, CHOICES)

    @property
    def limit(self) -> int:
        return 4 * self.length

    @property
    def bounds(self) -> tuple[ndarray, ndarray]:
        return np.zeros(0), np.zeros(0)

    def right(self, state: ndarray) -> ndarray:
        """The action that leads on: a fixed pattern without a period of two."""
        return (state * state + state // 3) % CHOICES

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return np.zeros(1)

    def observe(self, state: ndarray) -> ndarray:
        return np.eye(self.length)[state[:, 0].astype(int)]

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        at = state[:, 0].astype(int)
        good = action[:, 0].astype(int) == self.right(at)
        opened = good & (at == self.length - 1)
        after = np.where(good & ~opened, at + 1, 0)
        return after[:, None].astype(float), opened.astype(float), opened


def opened(size: str) -> Lock:
    return Lock(int(size or 8))
