"""References of Pendulum's scale, and of `family`'s: value iteration over 200 steps on a grid, and its policy's return.

    python -m experiments.control.references > experiments/results/control_references.json      3 minutes on one core
"""

from __future__ import annotations

import json

import numpy as np
from numpy import ndarray
from scipy.ndimage import map_coordinates

from isocost.chance import Purpose, generator
from isocost.control.tasks import open_task, random_return
from isocost.control.tasks.family import BEST, Pendulums
from isocost.control.tasks.pendulum import FASTEST, TORQUE
from isocost.control.types import ControlTask

EMBEDDED = ("pendulum", "swingup", "maze:8", "lock:8", "bandit", "reach", "family:4")
ANGLES, SPEEDS, TORQUES, EPISODES = 151, 101, 15, 512


def value(table: ndarray, states: ndarray) -> ndarray:
    """(n,): a table over (angle, speed), between its points, the angle folded."""
    angle = (states[:, 0] + np.pi) % (2 * np.pi) / (2 * np.pi) * ANGLES
    speed = (states[:, 1] + FASTEST) / (2 * FASTEST) * (SPEEDS - 1)
    return map_coordinates(np.concatenate((table, table[:1])), (angle, speed), order=1, mode="nearest")


def solved(task: ControlTask, *more: float) -> tuple[ndarray, float]:
    """Returns of the policy of value iteration, (EPISODES,), and the value at their starts. `more` is what a state has
    behind the angle and the speed."""
    grid = np.stack(np.meshgrid(np.arange(ANGLES) / ANGLES * 2 * np.pi - np.pi, np.linspace(-FASTEST, FASTEST, SPEEDS),
                                *([x] for x in more), indexing="ij"), -1).reshape(-1, 2 + len(more))
    torques = np.linspace(-TORQUE, TORQUE, TORQUES)
    moved = [task.step(grid, np.full((len(grid), 1), u)) for u in torques]
    tables = [np.zeros((ANGLES, SPEEDS))]
    for _ in range(task.limit):
        after = [reward + value(tables[-1], states) for states, reward, _ in moved]
        tables.append(np.max(after, 0).reshape(ANGLES, SPEEDS))
    pendulum = open_task("pendulum")
    states = np.stack([pendulum.begin(generator(0, Purpose.PROFILE, e), ("reference", 0, e)) for e in range(EPISODES)])
    states = np.concatenate((states, np.broadcast_to(more, (EPISODES, len(more)))), -1)
    bound, total = value(tables[-1], states).mean(), np.zeros(EPISODES)
    for left in range(task.limit, 0, -1):
        tried = [task.step(states, np.full((EPISODES, 1), u)) for u in torques]
        best = np.argmax([r + value(tables[left - 1], s) for s, r, _ in tried], 0)
        total += np.choose(best, [r for _, r, _ in tried])
        states = np.choose(best[:, None], [s for s, _, _ in tried])
    return total, float(bound)


def main() -> None:
    total, bound = solved(open_task("pendulum"))
    family = Pendulums(len(BEST))
    lengths = {f"{long:.1f}": round(float(solved(family, k)[0].mean()), 2) for k, long in enumerate(family.lengths)}
    found = {"grid": [ANGLES, SPEEDS, TORQUES], "episodes": EPISODES, "return": round(float(total.mean()), 2),
             "standard_error": round(float(total.std(ddof=1) / EPISODES**0.5), 2),
             "value_at_the_starts": round(bound, 2), "family_by_length": lengths,
             "random": {spec: round(random_return(spec), 3) for spec in EMBEDDED}}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
