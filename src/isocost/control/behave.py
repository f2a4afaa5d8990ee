"""Behaviours that make sets: random actions, scripts for mazes and `reach`, and trained policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.control.luck import Luck
from isocost.control.policy import ControlPolicy
from isocost.control.tasks.maze import STRIDE, Maze, _cell, _home
from isocost.control.tasks.reach import PLACES, Reach
from isocost.control.tasks.reach import STRIDE as REACH
from isocost.control.tasks.rooms import ROOMS, RoomsTask
from isocost.control.tasks.rooms import STRIDE as WALK
from isocost.control.types import ControlTask

SCRIPTS = {
    "random": "uniform actions",
    "navigate": "along the corridor from its start to its end, with noise; to one of two places; from room to room",
    "stitch": "from a random cell to one that is 1 to 4 cells away, with noise",
    "explore": "from a random cell in a direction that changes every 5 steps",
}
NOISE, PIECE, WANDER, HELD = 0.5, 16, 40, 5     # sd of noise on actions; steps of a piece, of a walk, of a direction
LEG, DWELL, CALM = 3, 4, 0.1    # in rooms: steps of a way, fewer than which it stays there besides; sd of noise


def scripts_of(task: ControlTask) -> tuple[str, ...]:
    """The names of `SCRIPTS` that are for a task."""
    if isinstance(task, Maze):
        return tuple(SCRIPTS)
    return ("random", "navigate") if isinstance(task, Reach | RoomsTask) else ("random",)


@dataclass(frozen=True)
class ToPlay:
    """One trajectory to be made: who acts, from which state, to which cell, for how many steps at most."""

    name: str
    state: ndarray      # (D,)
    aim: int
    steps: int
    noise: ndarray      # (steps, A) uniform in [-1, 1)
    path: ndarray       # (steps, 2) in rooms: where to go in each step; else empty


def opened(name: str, task: ControlTask, seed: int, number: int, slot: int) -> ToPlay:
    """The episode of a number. A live task's is in the environment of a slot."""
    rng, aim, steps = generator(seed, Purpose.PROFILE, number), -1, task.limit
    state = task.begin(rng, ("collect", seed, slot))
    if isinstance(task, Maze) and name != "random":
        aim = task.cells - 1
        if name in ("stitch", "explore"):
            cell = int(rng.integers(task.cells - 1))
            state, steps = _home(cell) + rng.uniform(-0.25, 0.25, 2), min(PIECE, steps)
            aim = int(np.clip(cell + rng.choice((-1, 1)) * rng.integers(1, 5), 0, task.cells - 1))
            aim = cell + 1 if aim == cell else aim
        if name == "explore":
            aim, steps = -1, min(WANDER, task.limit)
    if isinstance(task, Reach):
        aim = int(rng.integers(len(PLACES)))
    path = np.zeros((0, 2))
    if isinstance(task, RoomsTask):     # into each room and back to the middle, in any order, for as long as it likes
        places = np.stack([ROOMS[rng.permutation(len(ROOMS))], np.zeros((len(ROOMS), 2))], 1).reshape(-1, 2)
        path = np.resize(places.repeat(LEG + rng.integers(DWELL, size=len(places)), 0), (steps, 2))
    return ToPlay(name, state, aim, steps, rng.uniform(-1, 1, (steps, task.space.actions)), path)


def acted(
    task: ControlTask, name: str, policies: Mapping[str, ControlPolicy], episodes: list[ToPlay], states: ndarray,
    step: int, luck: Luck,
) -> ndarray:
    """(n, A): the actions of episodes of one behaviour in this step, in [-1, 1], or (n, 1) numbers of discrete ones.
    Trained policies draw from `luck`: they act as in training, with exploration."""
    if name in policies:
        seen = task.observe(states)[None]
        chosen: ndarray = policies[name].loop.policy([0], seen, luck)[0]
        return chosen
    noise = np.stack([e.noise[step // HELD * HELD if name == "explore" else step] for e in episodes])
    if task.space.discrete:
        return np.floor((noise + 1) / 2 * task.space.choices)
    if name not in ("navigate", "stitch"):
        return noise
    if isinstance(task, Reach):
        return np.clip((PLACES[[e.aim for e in episodes]] - states) / REACH + NOISE * 3**0.5 * noise, -1, 1)
    if isinstance(task, RoomsTask):
        onto = np.stack([e.path[step] for e in episodes])
        return np.clip((onto - states[:, :2]) / WALK + CALM * 3**0.5 * noise, -1, 1)
    cells = _cell(states)
    onward = [_home(int(c + np.sign(e.aim - c))) for c, e in zip(cells, episodes, strict=True)]
    return np.clip((np.stack(onward) - states) / STRIDE + NOISE * 3**0.5 * noise, -1, 1)
