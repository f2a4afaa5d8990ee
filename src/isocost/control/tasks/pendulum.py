"""Pendulum: swing a rod up and hold it with little torque. The equations are those of Gymnasium's Pendulum-v1.

    θ'' = 3 g / (2 l) sin θ + 3 u / (m l²),  g 10, m 1, l 1, dt 0.05, |u| <= 2, |θ'| <= 8, θ = 0 upright
    r = −(θ² + 0.1 θ'² + 0.001 u²), θ in [−π, π)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

GRAVITY, STEP, TORQUE, FASTEST = 10.0, 0.05, 2.0, 8.0


@dataclass(frozen=True)
class Pendulum:
    """For the law of samples: an agent learns it in 1,000 to 3,000 samples. The state is (θ, θ')."""

    name: str = "pendulum"
    space: Space = Space(3, 1)
    live: bool = False
    limit: int = 200
    reference: float = -144.35      # of value iteration on a grid: experiments/control/references.py
    bounds: tuple[ndarray, ndarray] = (np.array([-TORQUE]), np.array([TORQUE]))

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return rng.uniform([-np.pi, -1.0], [np.pi, 1.0])

    def observe(self, state: ndarray) -> ndarray:
        angle = np.ascontiguousarray(state[:, 0])
        return np.stack([np.cos(angle), np.sin(angle), state[:, 1]], -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        angle, speed = np.ascontiguousarray(state.T)
        u = np.clip(np.ascontiguousarray(action[:, 0]), -TORQUE, TORQUE)
        folded = (angle + np.pi) % (2 * np.pi) - np.pi
        cost = folded**2 + 0.1 * speed**2 + 0.001 * u**2
        speed = np.clip(speed + (1.5 * GRAVITY * np.sin(angle) + 3.0 * u) * STEP, -FASTEST, FASTEST)
        return np.stack([angle + speed * STEP, speed], -1), -cost, np.zeros(len(state), bool)


def opened(size: str) -> Pendulum:
    return Pendulum()
