"""Quad2d: a planar quadrotor flies to a point and stays; its two motors follow their commands with a delay.

    x'' = −(f₁ + f₂) sin θ,  z'' = (f₁ + f₂) cos θ − g,  θ'' = 5 (f₂ − f₁),  f_i ← f_i + (u_i − f_i) / 4
    r = max(0, 1 − (x² + z²)/4 − θ²/4 − (x'² + z'²)/40 − θ'²/100)

Mass 1, g 9.81, 0 <= u_i <= g, dt 0.04, semi-implicit Euler. An episode ends at |x| or |z| > 3 or |θ| > π/2. After
"Learning to Fly in Seconds" (Eschmann et al. 2024, arXiv:2311.13081), in a plane; the numbers are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

GRAVITY, TURN, LAG, STEP, WALL = 9.81, 5.0, 4.0, 0.04, 3.0
FARTHEST = np.array([1.5, 1.5, 0.5, 1.0, 1.0, 1.0])     # |x|, |z|, |θ|, and their rates, of a start


@dataclass(frozen=True)
class Quad2d:
    """For agents under delay, and for teachers: a context is a start's distance from rest, as a share of the largest.

    A state is (x, z, θ, x', z', θ', f₁, f₂).
    """

    name: str = "quad2d"
    space: Space = Space(9, 2)
    live: bool = False
    limit: int = 125
    reference: float = 125.0        # at rest at the point from the first step: more than any policy reaches
    bounds: tuple[ndarray, ndarray] = (np.zeros(2), np.full(2, GRAVITY))
    contexts: int = 1

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return self.begin_in(np.ones(1), rng)

    def begin_in(self, context: ndarray, rng: np.random.Generator) -> ndarray:
        return np.append(context[0] * rng.uniform(-FARTHEST, FARTHEST), [GRAVITY / 2] * 2)

    def observe(self, state: ndarray) -> ndarray:
        x, z, tilt, *rates, one, two = np.ascontiguousarray(state.T)
        return np.stack([x, z, np.cos(tilt), np.sin(tilt), *rates, one / GRAVITY, two / GRAVITY], -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        x, z, tilt, dx, dz, turn, one, two = np.ascontiguousarray(state.T)
        u = np.clip(np.ascontiguousarray(action.T), 0.0, GRAVITY)
        one, two = one + (u[0] - one) / LAG, two + (u[1] - two) / LAG
        dx = dx - STEP * (one + two) * np.sin(tilt)
        dz = dz + STEP * ((one + two) * np.cos(tilt) - GRAVITY)
        turn = turn + STEP * TURN * (two - one)
        x, z, tilt = x + STEP * dx, z + STEP * dz, tilt + STEP * turn
        paid = np.maximum(0.0, 1 - (x**2 + z**2 + tilt**2) / 4 - (dx**2 + dz**2) / 40 - turn**2 / 100)
        crashed = (np.abs(x) > WALL) | (np.abs(z) > WALL) | (np.abs(tilt) > np.pi / 2)
        return np.stack([x, z, tilt, dx, dz, turn, one, two], -1), paid, crashed


def opened(size: str) -> Quad2d:
    return Quad2d()
