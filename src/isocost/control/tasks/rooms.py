"""Rooms: a point starts in a hub and searches four rooms for the right one; it has to remember those it has visited.

The rooms are discs of radius 0.25 at the corners (±0.8, ±0.8). A step moves the point by at most 0.25 on each axis.
In the right room the episode ends and pays 1; a visit to another room leaves no trace in later frames. An
observation is the frames so far, the newest last: 1, x, y, and 1 inside of a room. A policy with one frame sees no
past; key frames are those at which the last number rises (BPP, arXiv:2602.15010).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.control.types import Space

ROOMS = 0.8 * np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
NEAR, STRIDE, FRAMES = 0.25, 0.25, 40


@dataclass(frozen=True)
class RoomsTask:
    """For policies with a memory. A state is (x, y, the right room), then the frames before this one, (FRAMES − 1) 4.
    """

    name: str = "rooms"
    space: Space = Space(4 * FRAMES, 2, frames=FRAMES)
    live: bool = False
    limit: int = FRAMES
    reference: float = 1.0
    bounds: tuple[ndarray, ndarray] = (np.full(2, -1.0), np.full(2, 1.0))

    def begin(self, rng: np.random.Generator, slot: tuple[str, int, int]) -> ndarray:
        return np.concatenate((rng.uniform(-0.1, 0.1, 2), [rng.integers(4)], np.zeros(4 * FRAMES - 4)))

    def observe(self, state: ndarray) -> ndarray:
        inside = (((state[:, None, :2] - ROOMS) ** 2).sum(-1) <= NEAR**2).any(-1)
        return np.concatenate((state[:, 3:], np.ones((len(state), 1)), state[:, :2], inside[:, None]), -1)

    def step(self, state: ndarray, action: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        point = np.clip(state[:, :2] + STRIDE * np.clip(action, -1, 1), -1, 1)
        found = ((point - ROOMS[state[:, 2].astype(int)]) ** 2).sum(-1) <= NEAR**2
        after = np.concatenate((point, state[:, 2:3], self.observe(state)[:, 4:]), -1)
        return after, found.astype(float), found


def opened(size: str) -> RoomsTask:
    return RoomsTask()
