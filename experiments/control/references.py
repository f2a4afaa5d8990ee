"""The reference of Pendulum's scale: value iteration over 200 steps on a grid, and the return of its policy.

    python -m experiments.control.references > experiments/results/control_references.json      30 s on one core
"""

from __future__ import annotations

import json

import numpy as np
from numpy import ndarray
from scipy.ndimage import map_coordinates

from isocost.chance import Purpose, generator
from isocost.control.tasks import open_task, random_return
from isocost.control.tasks.pendulum import FASTEST, TORQUE

EMBEDDED = ("pendulum", "swingup", "maze:8", "lock:8", "bandit")
ANGLES, SPEEDS, TORQUES, EPISODES = 151, 101, 15, 512


def value(table: ndarray, states: ndarray) -> ndarray:
    """(n,): a table over (angle, speed), between its points, the angle folded."""
    angle = (states[:, 0] + np.pi) % (2 * np.pi) / (2 * np.pi) * ANGLES
    speed = (states[:, 1] + FASTEST) / (2 * FASTEST) * (SPEEDS - 1)
    return map_coordinates(np.concatenate((table, table[:1])), (angle, speed), order=1, mode="nearest")


def main() -> None:
    task = open_task("pendulum")
    grid = np.stack(np.meshgrid(np.arange(ANGLES) / ANGLES * 2 * np.pi - np.pi, np.linspace(-FASTEST, FASTEST, SPEEDS),
                                indexing="ij"), -1).reshape(-1, 2)
    torques = np.linspace(-TORQUE, TORQUE, TORQUES)
    moved = [task.step(grid, np.full((len(grid), 1), u)) for u in torques]
    tables = [np.zeros((ANGLES, SPEEDS))]
    for _ in range(task.limit):
        after = [reward + value(tables[-1], states) for states, reward, _ in moved]
        tables.append(np.max(after, 0).reshape(ANGLES, SPEEDS))
    states = np.stack([task.begin(generator(0, Purpose.PROFILE, e), ("reference", 0, e)) for e in range(EPISODES)])
    bound, total = value(tables[-1], states).mean(), np.zeros(EPISODES)
    for left in range(task.limit, 0, -1):
        tried = [task.step(states, np.full((EPISODES, 1), u)) for u in torques]
        best = np.argmax([r + value(tables[left - 1], s) for s, r, _ in tried], 0)
        total += np.choose(best, [r for _, r, _ in tried])
        states = np.choose(best[:, None], [s for s, _, _ in tried])
    found = {"grid": [ANGLES, SPEEDS, TORQUES], "episodes": EPISODES, "return": round(float(total.mean()), 2),
             "standard_error": round(float(total.std(ddof=1) / EPISODES**0.5), 2),
             "value_at_the_starts": round(float(bound), 2),
             "random": {spec: round(random_return(spec), 3) for spec in EMBEDDED}}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
