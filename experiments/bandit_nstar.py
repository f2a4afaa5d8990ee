"""Does the best n rise with compute and then settle, where runs are real policy gradient and the truth is known?

    python experiments/bandit_nstar.py --worlds 4 --out experiments/results/bandit_nstar.json

Softmax bandits (`experiments/truth/bandit.py`) whose problems share features (rho = 0.5), or share none (rho = 0: then
held-out problems cannot be learned, and reward is that of the training problems); easy and hard sets, many problems
and few. In every world each n is trained at five learning rates. Two rules are read: `sqrt`, one anchor for all n, the
best of the five for the best n at the end, and lr = anchor (n B / 64)^(1/2); `own`, each n at the rate that is best for
it at that compute. `law`: pilots of such worlds, fitted, against the mean of many runs at four times their length.

For each setting the record has, by rule, the winner at each compute in every world (`winners`), reward by n (`reward`,
mean over worlds), the geometric mean of the winning n (`n_star`), in how many worlds it never falls with compute
(`never_falls`), and how much reward n is worth at the end (`worth`: best less worst).
"""

from __future__ import annotations

import argparse
import json
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.laws.fit import fit_law
from truth.bandit import Bandit

NS, B, REFERENCE, RUNS = (2, 4, 8, 16, 32, 64), 8, 64, 6
C = np.array([512, 1024, 2048, 4096, 8192, 16384])
RATES = (4.0, 16.0, 64.0, 256.0, 1024.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "shared, easy": {"rho": 0.5, "solved": 0.35}, "tabular, easy": {"rho": 0.0, "solved": 0.35},
    "shared, hard": {"rho": 0.5, "solved": 0.05}, "shared, easy, few problems": {"rho": 0.5, "solved": 0.35,
                                                                                "problems": 16},
}
PILOT, TIMES, MANY = np.geomspace(64, 2048, 8), 4, 24


def sweep(seed: int, number: int, setting: dict[str, Any]) -> ndarray:
    """Mean reward (rates, n, 1 + C) of one world: held-out, or of the training problems where nothing is shared."""
    world = Bandit.make(np.random.default_rng([seed, number]), **setting)
    rng = np.random.default_rng([seed, number, 1])
    name = "audit" if setting["rho"] else "train"
    return np.array([[world.improve(n, B, lr * np.sqrt(n * B / REFERENCE), list(C), RUNS, rng)[name].mean(0)
                      for n in NS] for lr in RATES])


def told(rewards: ndarray) -> dict[str, Any]:
    """What one rule says of rewards (worlds, n, C)."""
    winners = np.array(NS)[rewards.argmax(1)]
    return {"winners": winners.tolist(), "n_star": np.round(2 ** np.log2(winners).mean(0), 2).tolist(),
            "never_falls": int((np.diff(winners, axis=1) >= 0).all(1).sum()),
            "reward": {str(n): np.round(rewards[:, i].mean(0), 4).tolist() for i, n in enumerate(NS)},
            "worth": np.round(np.ptp(rewards[:, :, -1], axis=1), 4).tolist()}


def rules(worlds: ndarray) -> dict[str, Any]:
    """Both rules of rewards (worlds, rates, n, C)."""
    best_rate = worlds[..., -1].max(2).argmax(1)
    return {"rates": [RATES[i] for i in best_rate], "sqrt": told(worlds[np.arange(len(worlds)), best_rate]),
            "own": told(worlds.max(1))}


def law(seed: int, number: int) -> dict[str, Any]:
    """One pilot of a shared world, fitted, against the mean of `MANY` runs at `TIMES` its length."""
    rng = np.random.default_rng([seed, number, 2])
    world = Bandit.make(rng, rho=float(rng.uniform(0.3, 0.9)), solved=float(rng.uniform(0.15, 0.45)))
    ns, lr = NS[:5], 64.0
    found = fit_law(world.curves(ns, B, lr, REFERENCE, np.round(PILOT / 512 * 8) * 64, 3, rng), seed=number)
    rows = []
    for n in ns if found.refused is None else ():
        end = TIMES * PILOT[-1]
        truth = float(world.improve(n, B, lr * np.sqrt(n * B / REFERENCE), [end], MANY, rng)["audit"][:, -1].mean())
        own = found.predict(n, end)[0]
        rows.append([n, truth, own.value, own.low, own.high])
    return {"refused": found.refused.reason if found.refused else "", "rows": rows}


def main() -> None:
    """Runs every setting and writes the record."""
    ask = argparse.ArgumentParser(description="n*(C) of softmax bandits.")
    ask.add_argument("--worlds", type=int, default=4)
    ask.add_argument("--pilots", type=int, default=24)
    ask.add_argument("--out", type=Path, default=Path("experiments/results/bandit_nstar.json"))
    ask.add_argument("--seed", type=int, help="drawn by the system if not given")
    asked = ask.parse_args()
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    out: dict[str, Any] = {"seed": seed, "n": NS, "B": B, "C": C.tolist(), "runs": RUNS, "rates": RATES, "settings": {}}
    for name, setting in SETTINGS.items():
        worlds = np.array([sweep(seed, number, setting)[..., 1:] for number in range(asked.worlds)])
        out["settings"][name] = {**setting, **rules(worlds)}
        for rule in ("sqrt", "own"):
            print(name, rule, out["settings"][name][rule]["n_star"], flush=True)
    pilots = [law(seed, number) for number in range(asked.pilots)]
    rows = np.array([r for p in pilots for r in p["rows"]])
    out["law"] = {"pilots": len(pilots), "refused": sum(bool(p["refused"]) for p in pilots), "times": TIMES}
    if len(rows):
        held = (rows[:, 3] <= rows[:, 1]) & (rows[:, 1] <= rows[:, 4])
        out["law"] |= {"covers": round(float(held.mean()), 4),
                       "width": round(float(np.median(rows[:, 4] - rows[:, 3])), 4),
                       "error": round(float(np.sqrt(((rows[:, 2] - rows[:, 1]) ** 2).mean())), 4)}
    print(out["law"])
    asked.out.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
