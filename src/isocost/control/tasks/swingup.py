"""Swing-up: a cart on a rail swings a pole up and balances it.

    θ'' = (g sin θ − cos θ (F + m l θ'² sin θ) / M) / (l (4/3 − m cos² θ / M))
    x'' = (F + m l (θ'² sin θ − θ'' cos θ)) / M

with M = 1.1 (cart and pole), m = 0.1, l = 0.5 (half of the pole), |F| <= 10, dt 0.02, semi-implicit Euler (Barto,
Sutton & Anderson 1983; their sign of the angle). θ = 0 upright. r = (1 + cos θ)/2 · max(0, 1 − (x/2.4)²), and the rail
ends at ±2.4, which ends the episode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

GRAVITY, POLE, TOTAL, HALF, FORCE, STEP, RAIL = 9.8, 0.1, 1.1, 0.5, 10.0, 0.02, 2.4


@dataclass(frozen=True)
class Swingup:
    """A second online task, for the law of samples. The state is (x, x', θ, θ')."""

    name: str = "swingup"
    space: Space = Space(5, 1)
    live: bool = False
    limit: int = 250
    reference: float = 250.0        # upright from the first step: more than any policy reaches
    bounds: tuple[ndarray, ndarray] = (np.array([-FORCE]), np.array([FORCE]))

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return np.array([0.0, 0.0, np.pi, 0.0]) + rng.uniform(-0.1, 0.1, 4)

    def observe(self, state: ndarray) -> ndarray:
        x, speed, angle, turn = np.ascontiguousarray(state.T)
        return np.stack([x, speed, np.cos(angle), np.sin(angle), turn], -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        x, speed, angle, turn = np.ascontiguousarray(state.T)
        force = np.clip(np.ascontiguousarray(action[:, 0]), -FORCE, FORCE)
        sin, cos = np.sin(angle), np.cos(angle)
        push = (force + POLE * HALF * turn**2 * sin) / TOTAL
        bend = (GRAVITY * sin - cos * push) / (HALF * (4.0 / 3.0 - POLE * cos**2 / TOTAL))
        speed = speed + STEP * (push - POLE * HALF * bend * cos / TOTAL)
        turn = turn + STEP * bend
        x, angle = x + STEP * speed, angle + STEP * turn
        reward = (1 + np.cos(angle)) / 2 * np.maximum(0.0, 1 - (x / RAIL) ** 2)
        return np.stack([x, speed, angle, turn], -1), reward, np.abs(x) > RAIL


def opened(size: str) -> Swingup:
    return Swingup()
