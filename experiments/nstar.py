"""How the best n moves with compute on the built-in problems, easy and hard, learning rate measured first.

    isocost profile --data sums:level=1 --out studies/nstar-easy
    isocost plan studies/nstar-easy --size long && isocost pilot studies/nstar-easy && isocost fit studies/nstar-easy
    python experiments/nstar.py studies/nstar-easy experiments/results/nstar_easy.json
    # and the same with sums:level=2, nstar-hard and --size standard

Keeps what the question needs of a long pilot: every run's held-out curve, the rate rule, whether the winner moves
with the rate, and at each compute the winner by mean held-out reward with the runner-up's distance.
"""

from __future__ import annotations

import json
import sys
from math import sqrt
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from isocost.laws.curves import Curve, curves

LEVEL = 0.9


def winners(found: list[Curve]) -> list[dict]:
    """At each common compute: mean audit reward per n, the winner by select, and its paired lead over each other n."""
    arms = {n: sorted((c for c in found if c.arm["n"] == n),
                      key=lambda c: c.seed) for n in sorted({c.arm["n"] for c in found})}
    points = [float(C) for C in next(iter(arms.values()))[0].C if C > 0]
    rows = []
    for C in points:
        at = {n: np.array([_at(c, c.select, C) for c in runs]) for n, runs in arms.items()}
        told = {n: np.array([_at(c, c.audit, C) for c in runs]) for n, runs in arms.items()}
        best = max(at, key=lambda n: (at[n].mean(), -n))
        lead = {n: _paired(told[best] - told[n]) for n in arms if n != best}
        equal = sorted([best, *(n for n, (mean, low, high) in lead.items() if low <= 0.01)])
        rows.append({
            "C": C, "best": best, "equal": equal, "reward": {n: round(float(v.mean()), 4) for n, v in told.items()},
            "lead": {n: [round(x, 4) for x in v] for n, v in lead.items()},
        })
    return rows


def _at(c: Curve, y: np.ndarray, C: float) -> float:
    return float(y[np.argmin(abs(c.C - C))])


def _paired(d: np.ndarray) -> tuple[float, float, float]:
    half = float(stdtrit(len(d) - 1, (1 + LEVEL) / 2) * d.std(ddof=1) / sqrt(len(d)))
    return float(d.mean()), float(d.mean()) - half, float(d.mean()) + half


if __name__ == "__main__":
    study, out = Path(sys.argv[1]), Path(sys.argv[2])
    read = {k: json.loads((study / f"{k}.json").read_text()) for k in ("study", "profile", "rate", "shift")}
    every = curves(study)
    grid = [c for c in every if c.purpose == "pilot"]
    kept = {
        "setting": read["study"]["setting"], "code": read["study"]["code"], "seed": read["study"]["seed"],
        "regime": read["profile"]["regime"], "base": read["profile"]["mean"], "rate": read["rate"],
        "shift": read["shift"],
        "diverged": [c.run for c in every if c.diverged], "winners": winners([c for c in grid if not c.diverged]),
        "curves": [
            {"run": c.run, "purpose": c.purpose, "n": c.arm["n"], "B": c.arm["B"], "lr": c.arm["lr"], "seed": c.seed,
             "C": c.C.tolist(),
             "select": np.round(c.select, 5).tolist(), "audit": np.round(c.audit, 5).tolist(),
             "epochs": np.round(c.epochs, 3).tolist()} for c in every
        ],
    }
    out.write_text(json.dumps(kept, indent=1) + "\n")
    for row in kept["winners"]:
        print(f"{row['C']:>8.0f}  best n = {row['best']:<3} equal {row['equal']}  {row['reward']}")
