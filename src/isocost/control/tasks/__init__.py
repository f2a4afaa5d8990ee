"""One file for each task. A file has `opened(size)`, which makes a `ControlTask` of the part of a spec after the colon,
such as 8 in `maze:8`."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches
from functools import cache

import numpy as np

from isocost.chance import Purpose, generator
from isocost.control.types import ControlTask
from isocost.errors import UserError


def names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def open_task(spec: str) -> ControlTask:
    """A task by its spec: `pendulum`, `maze:8`, `gym:HalfCheetah-v5`. Raises UserError for one that does not exist."""
    name, _, size = spec.partition(":")
    if name not in names():
        near = get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]}?" if near else f"tasks are {', '.join(names())}"
        raise UserError(f"there is no control task {name!r}: {hint}")
    if name != "gym" and size and not (size.isdecimal() and int(size) > 1):
        raise UserError(f"{spec}: expected an integer above 1 after the colon, got {size!r}; write {name}:8")
    task: ControlTask = importlib.import_module(f"{__name__}.{name}").opened(size)
    return task


@cache
def random_return(spec: str, episodes: int = 64) -> float:
    """The mean return of uniform actions, 0 of a task's scale: measured on the same episodes every time."""
    task = open_task(spec)
    low, high = task.bounds
    rngs = [generator(0, Purpose.PROFILE, e) for e in range(episodes)]
    states = np.stack([task.begin(rng, ("random", 0, e)) for e, rng in enumerate(rngs)])
    total, going = np.zeros(episodes), np.ones(episodes, bool)
    for _ in range(task.limit):
        if task.space.discrete:
            action = np.stack([rng.integers(task.space.choices, size=1) for rng in rngs])
        else:
            action = np.stack([rng.uniform(low, high) for rng in rngs])
        states, reward, ended = task.step(states, action)
        total += np.where(going, reward, 0)
        going &= ~ended
    return float(total.mean())
