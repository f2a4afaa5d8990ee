"""Family: K pendulums of lengths 0.8 to 1.2; an episode is of one of them, which the observation names.

The equations are those of `pendulum`, with θ'' = 3 g / (2 l) sin θ + 3 u / (m l²) and m = 1. The last K numbers of an
observation are 1 for the pendulum that is played, and 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy import ndarray

from isocost.control.tasks.pendulum import FASTEST, GRAVITY, STEP, TORQUE
from isocost.control.types import Space

SHORTEST, LONGEST = 0.8, 1.2
# returns of value iteration on a grid, by length: experiments/control/references.py
BEST = {0.8: -114.63, 0.9: -128.76, 1.0: -144.35, 1.1: -158.31, 1.2: -168.68}


@dataclass(frozen=True)
class Pendulums:
    """For one learner of several tasks. The state is (θ, θ', the number of the pendulum)."""

    members: int = 4
    live: bool = False
    limit: int = 200
    bounds: tuple[ndarray, ndarray] = (np.array([-TORQUE]), np.array([TORQUE]))

    @property
    def name(self) -> str:
        return f"family:{self.members}"

    @property
    def space(self) -> Space:
        return Space(3 + self.members, 1, tasks=self.members)

    @cached_property
    def lengths(self) -> ndarray:
        return np.linspace(SHORTEST, LONGEST, self.members)

    @property
    def reference(self) -> float:
        """The mean over the pendulums, between the lengths that were solved."""
        return float(np.interp(self.lengths, list(BEST), list(BEST.values())).mean())

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        which = rng.integers(self.members)
        return np.append(rng.uniform([-np.pi, -1.0], [np.pi, 1.0]), which)

    def observe(self, state: ndarray) -> ndarray:
        angle, speed, which = np.ascontiguousarray(state.T)
        return np.concatenate((np.stack([np.cos(angle), np.sin(angle), speed], -1),
                               np.eye(self.members)[which.astype(int)]), -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        angle, speed, which = np.ascontiguousarray(state.T)
        u, long = np.clip(np.ascontiguousarray(action[:, 0]), -TORQUE, TORQUE), self.lengths[which.astype(int)]
        folded = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = folded**2 + 0.1 * speed**2 + 0.001 * u**2
        turned = 1.5 * GRAVITY / long * np.sin(angle) + 3.0 * u / long**2
        speed = np.clip(speed + turned * STEP, -FASTEST, FASTEST)
        return np.stack([angle + speed * STEP, speed, which], -1), -cost, np.zeros(len(state), bool)


def opened(size: str) -> Pendulums:
    return Pendulums(int(size or 4))
