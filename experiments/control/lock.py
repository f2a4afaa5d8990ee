"""n-step targets on the combination lock: how far they carry a reward, exactly.

    python -m experiments.control.lock > experiments/results/control_lock.json
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch

from isocost.control.replay import Replay, gathered
from isocost.control.tasks import open_task


def lock() -> dict[str, Any]:
    """Sweeps until the first state's value is right, against ⌈H/n⌉: rows of right actions, through the replay's n-step
    returns. And the value that n-step targets with a maximum end at where the actions in between are uniform."""
    gamma, rows = 0.99, []
    for length in (8, 16, 32, 64):
        task = open_task(f"lock:{length}")
        state, made = np.arange(length, dtype=float)[:, None], np.eye(length)
        after, reward, ended = task.step(state, task.right(state))
        told = np.concatenate((made, task.right(state), reward[:, None], task.observe(after), ended[:, None],
                               np.zeros((length, 1))), -1)
        replay = Replay.of_set(task.space, 1, torch.from_numpy(told).double()).view([0])
        for steps in (1, 2, 4, 8):
            batch = gathered(replay, torch.arange(length)[None], gamma=gamma, steps=steps)
            value, sweeps, after_eight = torch.zeros(length, dtype=torch.double), 0, 0.0
            while abs(float(value[0]) - gamma ** (length - 1)) > 1e-9:
                value = batch.reward[0] + batch.discount[0] * (batch.following[0] @ value)
                sweeps += 1
                after_eight = float(value[0]) if sweeps == 8 else after_eight
            known = float(value[0]) if sweeps <= 8 else after_eight
            rows.append({"length": length, "steps": steps, "sweeps": sweeps, "wanted": -(-length // steps),
                         "error_after_8_sweeps": round(gamma ** (length - 1) - known, 6),
                         "share_of_the_value_under_uniform_actions": round(_uniform(length, steps, gamma), 6)})
    return {"claim": "n-step targets carry a reward back in ⌈H/n⌉ sweeps", "rows": rows,
            "holds": all(r["sweeps"] == r["wanted"] for r in rows)}


def _uniform(length: int, steps: int, gamma: float) -> float:
    """V(s0) / γ^(H−1) at the fixed point of n-step targets whose actions after the first are uniform: exact."""
    best = np.zeros(length)
    for _ in range(4000):
        ahead = best
        for _ in range(steps - 1):      # one more uniform step before the maximum: right, or back to the start
            ahead = 0.5 * np.append(gamma * ahead[1:], 1.0) + 0.5 * gamma * ahead[0]
        new = np.maximum(np.append(gamma * ahead[1:], 1.0), gamma * ahead[0])
        if np.abs(new - best).max() < 1e-13:
            break
        best = new
    return float(best[0] / gamma ** (length - 1))


if __name__ == "__main__":
    json.dump(lock(), sys.stdout, indent=1, ensure_ascii=False)
    print()
