"""The law's forecasts on real curves cut short, and on simulated studies: coverage, error, width and interval score.

    python experiments/law_real.py --set tuning
    python experiments/law_real.py --set report --out experiments/results/law_real.json

The two sets are fixed in advance. Real curves: `law_curves.py` says which are for which. Simulated studies:
seed 4242 is for tuning and seed 61803 for reporting (`--seed` takes another).

Real: the law is fitted to the evaluations before a cut, and predicts the mean test-split reward of the same runs
at their end; cuts at 1/2, 1/3 and 1/4 of the length. A study with training runs also predicts these from its
pilot (`new`).
Simulated: the mean of three new runs at 4 times the pilot, studies whose law is identified.

Each row of the output: predictions, coverage of the 90 % prediction interval, median of outcome minus forecast, median
width, mean interval score (Gneiting and Raftery 2007, eq. 43; less is better).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from calibration import GROUPS, truth
from isocost.laws.curves import Curve, curves
from isocost.laws.fit import fit_law
from isocost.laws.law import Law
from isocost.runs.arm import Arm

HERE = Path(__file__).parent / "results"
CUTS, LEVEL, TIMES, NEW = (2, 3, 4), 0.9, 4, 3
TUNING, REPORT = 4242, 61803
Row = tuple[str, float, float, float, float]      # group, forecast, low, high, outcome


def made(name: str) -> list[Curve]:
    """One set of `law_curves.json`."""
    rows = json.loads((HERE / "law_curves.json").read_text())[name]
    return [_curve(f"{name}-n{c['n']}-s{c['seed']}", c) for c in rows]


def recorded(name: str) -> list[Curve]:
    """The pilot's curves of a record of n*."""
    rows = json.loads((HERE / f"{name}.json").read_text())["curves"]
    return [_curve(c["run"], c) for c in rows if c["purpose"] == "pilot"]


def _curve(run: str, c: dict[str, Any]) -> Curve:
    nothing = np.full(len(c["C"]), np.nan)
    return Curve(run, Arm(n=c["n"], B=c["B"], lr=c["lr"]), c["seed"], np.array(c["C"]), np.array(c["select"]),
                 np.array(c["audit"]), nothing, nothing, problems=c.get("problems", 256))


def until(c: Curve, cut: float) -> Curve:
    """A run's evaluations up to this C."""
    return replace(c, train=None, **{k: getattr(c, k)[cut >= c.C] for k in ("C", "select", "audit", "seconds",
                                                                         "epochs")})


def at(c: Curve, C: float) -> float:
    """A run's test-split reward at C."""
    return float(np.interp(np.log(C), np.log(c.C[1:]), c.audit[1:]))


def cuts(name: str, every: list[Curve]) -> Iterator[Row]:
    """Forecasts of the end of these runs from their first parts."""
    end = min(float(c.C[-1]) for c in every)
    for share in CUTS:
        law = fit_law([until(c, end / share) for c in every])
        for n in law.ns:
            own = [c for c in every if c.arm["n"] == n]
            forecast, outcome = law.predict(n, end, len(own))[1], float(np.mean([at(c, end) for c in own]))
            yield f"{name} 1/{share}", forecast.value, forecast.low, forecast.high, outcome


def new(name: str, folder: Path) -> Iterator[Row]:
    """Forecasts of a study's training runs from its pilot."""
    every = curves(folder)
    law = fit_law([c for c in every if c.purpose == "pilot"])
    for n in sorted({c.arm["n"] for c in every if c.purpose == "train"} & set(law.ns)):
        own = [c for c in every if c.purpose == "train" and c.arm["n"] == n]
        end = min(float(c.C[-1]) for c in own)
        forecast = law.predict(n, end, len(own))[1]
        yield f"{name} new", forecast.value, forecast.low, forecast.high, float(np.mean([at(c, end) for c in own]))


def simulated(group: str, number: int, seed: int) -> Iterator[Row]:
    """Forecasts of one simulated study: every n at `TIMES` times the pilot."""
    rng = np.random.default_rng([seed, GROUPS.index(group), number])
    planted, design, _ = truth(group, number, rng)
    law: Law = fit_law(planted.pilot(design, rng), seed=number)
    if law.refused:
        return
    C = TIMES * design.end
    for n in law.ns:
        reward = float(np.mean([planted.run(n, np.array([C]), rng) for _ in range(NEW)]))
        forecast = law.predict(n, C, NEW)[1]
        name = f"{group}: {planted.kind}" if group == "outside" else group
        yield name, forecast.value, forecast.low, forecast.high, reward


def digest(rows: list[Row]) -> dict[str, Any]:
    """What is reported of some forecasts."""
    _, value, low, high, seen = zip(*rows, strict=True)
    value, low, high, seen = map(np.array, (value, low, high, seen))
    score = high - low + 2 / (1 - LEVEL) * (np.maximum(low - seen, 0) + np.maximum(seen - high, 0))
    return {"predictions": len(rows), "coverage": round(float(((low <= seen) & (seen <= high)).mean()), 4),
            "error": round(float(np.median(seen - value)), 4), "width": round(float(np.median(high - low)), 4),
            "score": round(float(score.mean()), 4)}


def real(which: str) -> list[Row]:
    """All forecasts on the real curves of one set."""
    rows: list[Row] = []
    if which == "tuning":
        for name in ("nstar_easy", "nstar_hard"):
            rows += cuts(name, recorded(name))
        for name in ("tutorial", "quickstart"):
            rows += new(name, HERE / name)
    for name in ("base-easy",) if which == "tuning" else ("level-1-B16", "level-2-B16"):
        rows += cuts(name, made(name))
    return rows


def table(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """By group."""
    return {name: digest([r for r in rows if r[0] == name]) for name in dict.fromkeys(r[0] for r in rows)}


def main() -> None:
    """Prints the table, and writes it."""
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--set", choices=("tuning", "report"), required=True)
    ask.add_argument("--seed", type=int)
    ask.add_argument("--studies", type=int, default=60, help="of each group")
    ask.add_argument("--groups", nargs="*", default=["inside", "rough", "outside", "moving", "unrelated"])
    ask.add_argument("--outside", type=int, default=6, help="times as many studies of the group outside")
    ask.add_argument("--no-real", action="store_true")
    ask.add_argument("--out", type=Path)
    asked = ask.parse_args()
    seed = asked.seed if asked.seed is not None else TUNING if asked.set == "tuning" else REPORT
    rows = [] if asked.no_real else real(asked.set)
    found = {"real": table(rows) | ({"all real": digest(rows)} if rows else {})}
    found["simulated"] = table([r for g in asked.groups
                                for i in range(asked.studies * (asked.outside if g == "outside" else 1))
                                for r in simulated(g, i, seed)])
    for part in found.values():
        for name, row in part.items():
            print(f"{name:24}", *(f"{k} {v:8}" for k, v in row.items()), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps({"set": asked.set, "seed": seed, "studies": asked.studies, **found}, indent=1)
                             + "\n")


if __name__ == "__main__":
    main()
