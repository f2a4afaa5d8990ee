"""Distracted: the pendulum with K more numbers in its observation that nothing depends on, and that are hard to model.

    d' = 1 − 2 d²,  shown as 4 d: each follows a chaotic map of its own in [−1, 1], whatever is done
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.tasks.pendulum import Pendulum
from isocost.control.types import Space

INNER, SHOWN = Pendulum(), 4.0


@dataclass(frozen=True, kw_only=True)
class Distracted(Pendulum):
    """For models that are to be exact where it matters. A state is (θ, θ', d_1 .. d_K)."""

    others: int

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return np.append(INNER.begin(rng, slot), rng.uniform(-1, 1, self.others))

    def observe(self, state: ndarray) -> ndarray:
        return np.concatenate((INNER.observe(state[:, :2]), SHOWN * state[:, 2:]), -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        after, reward, ended = INNER.step(state[:, :2], action)
        return np.concatenate((after, 1 - 2 * state[:, 2:] ** 2), -1), reward, ended


def opened(size: str) -> Distracted:
    others = int(size or 8)
    return Distracted(name=f"distracted:{others}", space=Space(INNER.space.observation + others, 1), others=others)
