"""Held: the pendulum for an agent that decides every J steps, and then gives the J actions until its next decision.

An observation is what the pendulum shows now, what it showed at the last decision, and one-hot the steps since then:
what an agent may act by is the second half, and a critic may read the first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.tasks.pendulum import Pendulum
from isocost.control.types import Space

INNER = Pendulum()


@dataclass(frozen=True, kw_only=True)
class HeldPendulum(Pendulum):
    """For sequences of actions. A state is (θ, θ') now, the same at the decision, and the steps since it.

    The reference is of an agent that decides at every step.
    """

    every: int

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        now = INNER.begin(rng, slot)
        return np.concatenate((now, now, [0.0]))

    def observe(self, state: ndarray) -> ndarray:
        since = np.eye(self.every)[state[:, 4].astype(int)]
        return np.concatenate((INNER.observe(state[:, :2]), INNER.observe(state[:, 2:4]), since), -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        after, reward, ended = INNER.step(state[:, :2], action)
        since = (state[:, 4] + 1) % self.every
        then = np.where((since == 0)[:, None], after, state[:, 2:4])
        return np.concatenate((after, then, since[:, None]), -1), reward, ended


def opened(size: str) -> HeldPendulum:
    every = int(size or 4)
    space = Space(2 * INNER.space.observation + every, 1, held=every)
    return HeldPendulum(name=f"held:{every}", space=space, every=every)
