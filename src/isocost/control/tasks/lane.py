"""Lane: a car drives a straight route of 100 m past a car that stands in its lane. The reward is CaRL's:

    r_t = ΔRC_t Π_i p_i,  RC: share of the route that is driven;  p: 0.5 outside of the lane (|y| > 1 m),
    10/v above the limit of 10 m/s, 0.8 where |a| > 3 m/s²;  off the road (|y| > 4 m) and in a collision (less than
    3 m along and 1.5 m across) the episode ends

    s' = v cos ψ, y' = v sin ψ, ψ' = 0.5 u₁ (|ψ| <= 1), v' = 5 u₂ (0 <= v <= 15),  dt 0.25 s

Jaeger et al. 2025, arXiv:2504.17838; the factors and the car are ours. The return is 1 where no factor is below 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

ROUTE, LANE, ROAD, ALLOWED, FASTEST, STEP = 100.0, 1.0, 4.0, 10.0, 15.0, 0.25
LONG, WIDE = 3.0, 1.5       # m along and across, nearer than which two cars collide


@dataclass(frozen=True)
class Lane:
    """For rewards by products, and for teachers: a context is where the other car stands, from 30 to 80 m.

    A state is (s, y, ψ, v, where the other car stands).
    """

    name: str = "lane"
    space: Space = Space(5, 2)
    live: bool = False
    limit: int = 100
    reference: float = 1.0
    bounds: tuple[ndarray, ndarray] = (np.full(2, -1.0), np.full(2, 1.0))
    contexts: int = 1

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return self.begin_in(rng.random(1), rng)

    def begin_in(self, context: ndarray, rng: np.random.Generator) -> ndarray:
        return np.array([0.0, rng.uniform(-0.5, 0.5), rng.uniform(-0.1, 0.1), 5.0, 30 + 50 * context[0]])

    def observe(self, state: ndarray) -> ndarray:
        s, y, turned, speed, other = np.ascontiguousarray(state.T)
        return np.stack([s / ROUTE, y / ROAD, turned, speed / ALLOWED, np.clip((other - s) / 25, -1, 1)], -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        s, y, turned, speed, other = np.ascontiguousarray(state.T)
        steer, push = np.clip(np.ascontiguousarray(action.T), -1, 1)
        turned = np.clip(turned + STEP * 0.5 * steer, -1.0, 1.0)
        speed = np.clip(speed + STEP * 5 * push, 0.0, FASTEST)
        gain = np.minimum(STEP * speed * np.cos(turned), ROUTE - s)
        s, y = s + gain, y + STEP * speed * np.sin(turned)
        soft = np.where(np.abs(y) > LANE, 0.5, 1.0) * np.where(np.abs(5 * push) > 3, 0.8, 1.0)
        soft *= np.minimum(1.0, ALLOWED / np.maximum(speed, ALLOWED))
        ended = (np.abs(y) > ROAD) | ((np.abs(s - other) < LONG) & (np.abs(y) < WIDE)) | (s >= ROUTE)
        return np.stack([s, y, turned, speed, other], -1), gain / ROUTE * soft, ended


def opened(size: str) -> Lane:
    return Lane()
