"""Forecasts of runs that start to learn late and of runs that collapse, on simulated studies.

    python experiments/rises_and_falls.py --studies 100 --out experiments/results/rises_and_falls.json

Two causes by which a curve with a good fit is a bad forecast: a reward that is still at its base says nothing about
when it will rise, and some runs fall from a high plateau. Groups, each of `--studies` studies drawn afresh:

- `take-off`: logs of one run or three, 200 updates, reward 0.01 to 0.06 until a time that is log-uniform from 0.03 to 4
  times the log, then a steep rise to 0.5 to 0.95.
- `collapse`: logs of three to five runs that rise early. In a quarter of the studies a share of runs, uniform in 0.1 to
  0.6, falls to its start or below, at a time that is log-uniform over the last 4.3 doublings before 4 times the log.
  This is more than public logs have: there a first fall was the outcome of one or two forecasts in a hundred.
- `collapse, pilot`: pilots of five n, three to five seeds (`truth.planted`), of which a share falls as above.

Each forecast is of the mean of three new runs at 2 and at 4 times what was seen. For each group the record has the
share of forecasts refused, by reason, and of the others the share that holds, and the shares whose outcome lies below
and above. `without` has these shares for the intervals without the share of runs that falls (the law as it was), and
for the forecasts that are now refused because nothing had risen.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

import made_with
from isocost.laws.curves import Curve, diverged
from isocost.laws.fit import fit_law
from isocost.laws.law import Law
from isocost.runs.arm import Arm
from truth import INSIDE, Design, plant

TIMES, NEW, UPDATES, N = (2, 4), 3, 200, 8
Runs = Callable[[ndarray, np.random.Generator], ndarray]     # reward of one run at C (K,)


def take_off(rng: np.random.Generator) -> Runs:
    """Runs that stay at a low base until a time of the study, and then rise."""
    base, top, b = rng.uniform(0.01, 0.06), rng.uniform(0.5, 0.95), rng.uniform(2, 6)
    middle = UPDATES * np.exp(rng.uniform(np.log(0.03), np.log(4.0)))

    def run(C: ndarray, rng: np.random.Generator) -> ndarray:
        own = middle * np.exp(0.15 * rng.normal())
        return np.asarray(base + (top - base) / (1 + (np.maximum(C, 1e-9) / own) ** -b))
    return run


def unstable(rng: np.random.Generator) -> float:
    """The share of runs that fall in a study."""
    return float(rng.uniform(0.1, 0.6) if rng.random() < 0.25 else 0.0)


def falls(share: float, end: float, rng: np.random.Generator) -> Callable[[ndarray, ndarray, float], ndarray]:
    """What makes a run of its rewards: with this probability it falls, at a time before 4 times `end`."""
    at = 4 * end * 2 ** rng.uniform(-4.3, 0) if rng.random() < share else np.inf
    left = rng.uniform(0, 1)
    return lambda C, reward, base: np.where(at <= C, left * base, reward)


def collapse(rng: np.random.Generator) -> Runs:
    """Runs that rise early, a share of which falls."""
    base, top, b = rng.uniform(0.02, 0.3), rng.uniform(0.6, 0.95), rng.uniform(1, 2.5)
    middle, share = UPDATES * rng.uniform(0.03, 0.2), unstable(rng)

    def run(C: ndarray, rng: np.random.Generator) -> ndarray:
        own = middle * np.exp(0.15 * rng.normal())
        reward = base + (top - base) / (1 + (np.maximum(C, 1e-9) / own) ** -b)
        return falls(share, UPDATES, rng)(C, reward + 0.015 * rng.normal() * (middle < C), base)
    return run


def logged(run: Runs, seeds: int, training: bool, noise: float, rng: np.random.Generator) -> list[Curve]:
    """Logs of runs as `isocost import` reads them: a noisy reward for each update."""
    C, nan, out = np.arange(UPDATES, dtype=float), np.full(UPDATES, np.nan), []
    for seed in range(seeds):
        mean = run(C, rng)
        sd = noise * 2 * np.sqrt(np.clip(mean * (1 - mean), 0, 1))
        reward = np.clip(mean + sd * rng.standard_normal(UPDATES), 0, 1)
        one = Curve(f"n{N}-s{seed}", Arm(n=N, B=1, lr=1e-6), seed, C, reward, reward, nan, nan, noisy=True,
                    training=training)
        out.append(replace(one, diverged=diverged(one)))
    return out


def of_logs(make: Callable[[np.random.Generator], Runs], several: Sequence[int], rng: np.random.Generator
            ) -> list[dict[str, Any]]:
    """One study of logs: forecasts at each of `TIMES`, with their outcomes."""
    run, seeds = make(rng), int(rng.choice(several))
    law = fit_law(logged(run, seeds, bool(rng.random() < 0.5), rng.uniform(0.03, 0.15), rng), draws=200)
    refused = law.forecast_refused.reason if law.forecast_refused else ""
    C = UPDATES * np.array(TIMES, dtype=float)
    new = np.mean([run(C, rng) for _ in range(NEW)], axis=0)
    return judged(law, N, C, new, refused) if law.arms else [{"refused": refused}] * len(TIMES)


def of_pilot(number: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """One pilot of several n: forecasts of a random n."""
    design = Design(seeds=int(rng.integers(3, 6)))
    truth, share = plant(INSIDE[number % len(INSIDE)], rng), unstable(rng)
    curves = []
    for one in truth.pilot(design, rng):
        fallen = falls(share, design.end, rng)
        one = replace(one, select=fallen(one.C, one.select, truth.R0), audit=fallen(one.C, one.audit, truth.R0))
        curves.append(replace(one, diverged=diverged(one)))
    law, C = fit_law(curves, draws=200), design.end * np.array(TIMES, dtype=float)
    refused = law.refused.reason if law.refused else ""
    if not law.arms:
        return [{"refused": refused}] * len(TIMES)
    n = int(rng.choice(law.ns))
    new = np.mean([falls(share, design.end, rng)(C, truth.run(n, C, rng), truth.R0) for _ in range(NEW)], axis=0)
    return judged(law, n, C, new, refused)


def judged(law: Law, n: int, C: ndarray, outcome: ndarray, refused: str) -> list[dict[str, Any]]:
    """The forecasts with and without the share that falls, beside their outcomes."""
    band = law.curve(n, C, "prediction", NEW)
    bare = law.surviving.curve(n, C, "prediction", NEW)
    return [{"refused": refused, "still": bool(law.still(n)), "fell": bool(law.falls), "outcome": float(y),
             "now": [float(band.low[i]), float(band.high[i])], "bare": [float(bare.low[i]), float(bare.high[i])]}
            for i, y in enumerate(outcome)]


def shares(found: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """How many of these forecasts there are, the shares that hold and miss on each side, and their median width."""
    low, high = np.array([x[key] for x in found]).reshape(-1, 2).T
    y = np.array([x["outcome"] for x in found])
    mean = (lambda x: round(float(np.mean(x)), 4)) if len(found) else (lambda x: None)
    return {"forecasts": len(found), "held": mean((low <= y) & (y <= high)), "below": mean(y < low),
            "above": mean(y > high), "width": mean(np.median(high - low)) if len(found) else None}


def digest(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The record of one group."""
    given = [x for x in found if not x["refused"]]
    fell = [x for x in given if x["fell"]]
    reasons = Counter(x["refused"].split(":")[0].split(" of n=")[0] for x in found if x["refused"])
    return {"forecasts": len(found), "refused": round(1 - len(given) / len(found), 4), "reasons": dict(reasons),
            "given": shares(given, "now"), "where runs fell": shares(fell, "now"),
            "where none fell": shares([x for x in given if not x["fell"]], "now"),
            "without": {"where runs fell": shares(fell, "bare"),
                        "not risen": shares([x for x in found if x.get("still")], "bare")}}


def main() -> None:
    """Writes the record."""
    ask = argparse.ArgumentParser(description="Forecasts of late rises and of collapses.")
    ask.add_argument("--studies", type=int, default=100, help="of each group")
    ask.add_argument("--seed", type=int, default=32)
    ask.add_argument("--out", type=Path, default=Path("experiments/results/rises_and_falls.json"))
    asked = ask.parse_args()
    groups: dict[str, Callable[[int, np.random.Generator], list[dict[str, Any]]]] = {
        "take-off": lambda i, rng: of_logs(take_off, (1, 3), rng),
        "collapse": lambda i, rng: of_logs(collapse, (3, 4, 5), rng),
        "collapse, pilot": of_pilot,
    }
    told: dict[str, Any] = {"seed": asked.seed, "studies": asked.studies, "times": TIMES}
    for place, (name, study) in enumerate(groups.items()):
        found = [x for i in range(asked.studies) for x in study(i, np.random.default_rng([asked.seed, place, i]))]
        told[name] = digest(found)
        print(name, json.dumps(told[name], indent=1))
    asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    made_with.note(asked.out)


if __name__ == "__main__":
    main()
