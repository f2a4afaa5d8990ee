"""Snapshot starts: early episodes begin in states of demonstrations, each kind equally often.

    with chance p, in the first E episodes: a cluster by k-means over the states of demonstrations, one of its states,
    cut after h steps (the value goes on); else the task's own start, and its time limit

    After Snapshot RL, arXiv:2403.00673, which starts from trajectories of a trained agent. Here `navigate` of
    `isocost collect` plays them, and the run is charged their steps. k 8, p 0.5, E 50 and h 20 are ours.
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from isocost.control import behave
from isocost.control.luck import Luck
from isocost.control.teachers import Lesson, Lessons
from isocost.control.types import ControlTask
from isocost.errors import UserError
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("Snapshot starts", "2403.00673", 2024, "uniform", "Starts along demonstrations spread a reward faster.")
SCRIPT, KINDS, LLOYD = "navigate", 8, 20    # the script that demonstrates; k and iterations of k-means


def shown(task: ControlTask, seed: int, demonstrations: int) -> list[ndarray]:
    """The states of demonstrations, (T, D) each. Raises UserError for a task without a script."""
    if SCRIPT not in behave.scripts_of(task):
        raise UserError(f"snapshot starts need a script that demonstrates {task.name}: take maze:8 or reach, or leave "
                        "--teacher out")
    out, (low, high) = list[ndarray](), task.bounds
    for number in range(demonstrations):
        episode = behave.opened(SCRIPT, task, seed, number, number)
        states = [episode.state]
        for step in range(episode.steps):
            action = behave.acted(task, SCRIPT, {}, [episode], states[-1][None], step, Luck([], [], ""))
            after, _, ended = task.step(states[-1][None], low + (action + 1) / 2 * (high - low))
            states.append(after[0])
            if ended[0]:
                break
        out.append(np.stack(states))
    return out


def clusters(states: ndarray, rng: np.random.Generator) -> ndarray:
    """(N,): the number of the cluster of each state, (N, D), by k-means."""
    means = states[rng.choice(len(states), min(KINDS, len(states)), replace=False)]
    for _ in range(LLOYD):
        at = ((states[:, None] - means) ** 2).sum(-1).argmin(-1)
        means = np.stack([states[at == k].mean(0) if (at == k).any() else m for k, m in enumerate(means)])
    return at


@bounds(share="[0, 1]", steps="[1, inf)", demonstrations="[1, inf)")
def choose(
    past: Lessons, rng: np.random.Generator, *, share: float = 0.5, episodes: int = 50, steps: int = 20,
    demonstrations: int = 4
) -> Lesson:
    """A snapshot with chance `share` in the first `episodes`, else the task's own start."""
    none = np.zeros(past.contexts.shape[1])
    if len(past.returns) >= episodes or rng.random() >= share:
        return Lesson(past.task.begin(rng, ("train", past.seed, 0)), none, past.task.limit)
    states = np.concatenate([x[:-1] for x in past.shown])       # the last state ended its episode
    at = past.folded("clusters", lambda: clusters(states, past.rng_after(0)), lambda found, i: found)
    return Lesson(states[rng.choice(np.flatnonzero(at == rng.choice(np.unique(at))))], none, steps)
