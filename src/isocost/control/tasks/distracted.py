"""Distracted: the pendulum with K more numbers in its observation that nothing depends on, and that are hard to model.

    d' = 1 − 2 d²,  shown as 4 d: each follows a chaotic map of its own in [−1, 1], whatever is done
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.tasks.pendulum import TORQUE, Pendulum
from isocost.control.types import Space

INNER, SHOWN = Pendulum(), 4.0


@dataclass(frozen=True)
class Distracted:
    """For models that are to be exact where it matters. A state is (θ, θ', d_1 .. d_K)."""

    others: int = 8
    live: bool = False
    limit: int = INNER.limit
    reference: float = INNER.reference
    bounds: tuple[ndarray, ndarray] = (np.array([-TORQUE]), np.array([TORQUE]))

    @property
    def name(self) -> str:
        return f"distracted:{self.others}"

    @property
    def space(self) -> Space:
        return Space(INNER.space.observation + self.others, 1)

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return np.append(INNER.begin(rng, slot), rng.uniform(-1, 1, self.others))

    def observe(self, state: ndarray) -> ndarray:
        return np.concatenate((INNER.observe(state[:, :2]), SHOWN * state[:, 2:]), -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        after, reward, ended = INNER.step(state[:, :2], action)
        return np.concatenate((after, 1 - 2 * state[:, 2:] ** 2), -1), reward, ended


def opened(size: str) -> Distracted:
    return Distracted(int(size or 8))
