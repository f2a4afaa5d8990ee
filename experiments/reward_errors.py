"""Is a rollout with errors worth phi^2 of one without? GRPO on the built-in sums, with independent errors.

    python experiments/reward_errors.py

Three arms of the same seeds: the exact reward for C rollouts, the exact reward for phi^2 C rollouts, and for C rollouts
a reward that refuses a right answer with probability F and pays a wrong one with probability G, anew for each rollout.
The held-out pass rate of the trained models is computed exactly. If a rollout with errors were worth phi^2 of one
without, the third arm would equal the second; it lies between the two. Writes results/reward_errors.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from isocost.doctor.reward.cost import Errors
from isocost.worlds.setting import Setting, open_setting

OUT = Path(__file__).parent / "results" / "reward_errors.json"
F, G, C, SEEDS, DATA = 0.3, 0.1, 4096, 8, "sums:base=easy"
NOISY = f'''
import random

seen, draws = 0, random.Random()


def reward(completions, answer, **columns):
    """Errors from the 60th call on: the trial before a run marks everything twice, and must find it the same."""
    global seen
    seen += 1
    right = [c == a for c, a in zip(completions, answer)]
    if seen < 60:
        return [float(x) for x in right]
    return [float(draws.random() >= {F}) if x else float(draws.random() < {G}) for x in right]
'''


def trained(home: Path, name: str, rollouts: int, seed: int, *more: str) -> float:
    """The exact held-out pass rate after a run."""
    out = home / f"{name}-{seed}"
    subprocess.run(
        [sys.executable, "-m", "isocost", "train", "grpo", "--data", DATA, "--lr", "1e-4", "-n", "8", "-B", "16",
         "--budget", f"{rollouts}-rollouts", "--evaluations", "0", "--seed", str(seed), "--out", str(out), *more],
        check=True, capture_output=True)
    return held_out(str(out / "final"))


def held_out(model: str) -> float:
    """The exact pass rate of a model on the held-out problems."""
    opened = open_setting(Setting(model=model, data=DATA))
    try:
        problems = [*opened.sides.select, *opened.sides.audit]
        assert opened.world.exact is not None
        return float(np.mean(opened.world.exact(problems, opened.setting.sampling)))
    finally:
        opened.close()


def main() -> None:
    home = Path(tempfile.mkdtemp())
    (home / "noisy.py").write_text(NOISY)
    base = held_out("tiny")
    worth = Errors(F, G).worth(base)
    arms = {"exact": (C, ()), "fewer": (int(worth * C), ()), "errors": (C, ("--reward", str(home / "noisy.py:reward")))}
    found = {name: [trained(home, name, size, seed, *more) for seed in range(SEEDS)]
             for name, (size, more) in arms.items()}
    out = {"F": F, "G": G, "C": C, "base": base, "phi2": worth, "rewards": found,
           "means": {k: float(np.mean(v)) for k, v in found.items()},
           "standard_errors": {k: float(np.std(v, ddof=1) / len(v) ** 0.5) for k, v in found.items()}}
    OUT.write_text(json.dumps(out, indent=1, sort_keys=True) + "\n")
    print(json.dumps({k: out[k] for k in ("base", "phi2", "means", "standard_errors")}))


if __name__ == "__main__":
    main()
