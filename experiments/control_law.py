"""How often the law of updates per sample has intervals, and how often they hold: simulated studies of a planted law.

    python experiments/control_law.py --studies 250 --out experiments/results/control_law.json

Each study is the default pilot (`planner.control.pilot`): a star of batch and rate at three or five values of sigma,
five seeds, of a truth of its own: exponent 0.4 to 1.2, floor 0.2 to 0.7 of the samples at sigma 1, slopes of the best
batch and rate -0.5 to -0.1, spread between seeds 0.18 to 0.35 (as on the pendulum), price such that the cheapest sigma
lies within the grid. The record holds, for each grid: how often 90 % intervals hold, of samples at each sigma run
(`samples`), of both slopes and of the cheapest sigma; and among identifiable studies the share that was `refused`, with
`reasons`. A study is identifiable if an oracle that knows batch, rate and spread, and not the three numbers of the law
of samples, has an interval of the cheapest sigma whose ends are at most a factor 1.5 apart (delta method, with the
prior of the exponent that the fit has), and if that sigma lies within what was run.

`refused_by_oracle` has the number of studies and the share refused by that factor, of all.

`censored`: the bias of the mean ln T of 20 seeds with a spread of 0.3, 30 % of them beyond the end, by the censored fit
and with these seeds dropped, over 1,000 samples.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import made_with
from isocost.errors import UserError
from isocost.laws.papers.value import DataLaw
from isocost.laws.value_fit import EXPONENT_SD, Arrivals, ControlPrice, censored_fit, exponential, fit_control
from isocost.planner.control.pilot import GRIDS, plan_control_pilot
from isocost.planner.control.prescribe import unidentified
from isocost.runs.arm import Arm
from truth.control import PlantedControl

LENGTH, SEEDS, FACTOR, SPREAD = 4000.0, 5, 1.5, 0.3


def planted(rng: np.random.Generator, sigmas: tuple[float, ...]) -> tuple[PlantedControl, ControlPrice, float]:
    """A truth, a price, and the cheapest sigma at it."""
    middle = float(np.exp(np.mean(np.log(sigmas))))
    exponent, share = rng.uniform(0.4, 1.2), rng.uniform(0.2, 0.7)
    at_one = 2000.0
    law = DataLaw(exponent, ((1 - share) * at_one) ** (1 / exponent), share * at_one)
    slopes = -rng.uniform(0.1, 0.5, 2)
    heights = rng.uniform(0.7, 1.4, 2) * middle ** -slopes
    truth = PlantedControl(law, (64 * heights[0], slopes[0]), (1e-3 * heights[1], slopes[1]),
                           spread=rng.uniform(0.18, 0.35), noise=0.005)
    cheapest = float(np.exp(rng.uniform(np.log(sigmas[0]) + 0.2, np.log(sigmas[-1]) - 0.2)))
    step = 1e-4
    rise = [float(np.log(law(s) * 1.0)) for s in (cheapest * np.exp(-step), cheapest * np.exp(step))]
    fall = -(rise[1] - rise[0]) / (2 * step)                          # -d ln D / d ln sigma
    work = cheapest * truth.best(cheapest)[0]
    sample = work * (1 + slopes[0]) / fall - work                     # where d ln F / d ln sigma = 0
    return truth, ControlPrice(max(sample, 0.0), 0.0, 1.0, "examples"), cheapest


def oracle(truth: PlantedControl, price: ControlPrice, sigmas: tuple[float, ...], cheapest: float) -> float:
    """The factor between the ends of an oracle's 90 % interval of the cheapest sigma."""
    law, s = truth.law, np.array(sigmas)
    at = np.array([law.scale * law.c, law.b**law.a, law.a])

    def log_law(p: np.ndarray, sigma: np.ndarray) -> np.ndarray:
        return np.log(p[0] + p[1] * sigma ** -p[2])

    def slope(p: np.ndarray, x: float) -> float:
        u = np.array([x - 1e-3, x + 1e-3])
        sigma = np.exp(u)
        cost = log_law(p, sigma) + np.log(price.of(sigma, truth.best(1.0)[0] * sigma ** truth.batch[1]))
        return float((cost[1] - cost[0]) / 2e-3)

    steps = at * 1e-4
    rows = np.array([(log_law(at + np.eye(3)[i] * steps[i], s) - log_law(at, s)) / steps[i] for i in range(3)]).T
    error = truth.spread / np.sqrt(5 * SEEDS)
    information = rows.T @ rows / error**2 + np.diag([0, 0, 1 / (at[2] * EXPONENT_SD) ** 2])
    x = np.log(cheapest)
    bend = (slope(at, x + 1e-2) - slope(at, x - 1e-2)) / 2e-2
    moves = -np.array([(slope(at + np.eye(3)[i] * steps[i], x) - slope(at, x)) / steps[i] for i in range(3)]) / bend
    return float(np.exp(2 * 1.645 * np.sqrt(moves @ np.linalg.inv(information) @ moves)))


def study(seed: int, sigmas: tuple[float, ...]) -> dict[str, Any]:
    """One study: which intervals hold, the oracle's factor, and why it was refused."""
    rng = np.random.default_rng([seed, len(sigmas)])
    truth, price, cheapest = planted(rng, sigmas)
    pilot = plan_control_pilot(Arm(batch=64, rate=1e-3), int(LENGTH), price, None, sigmas=sigmas, seeds=SEEDS)
    curves = [truth.run(r.arm, r.seed, r.samples, rng) for r in pilot.runs]
    factor = oracle(truth, price, sigmas, cheapest)
    try:
        law = fit_control(curves, truth.wanted, seed=seed)
    except UserError as why:
        return {"oracle": factor, "refused": str(why)}
    held: dict[str, bool] = {}

    def samples(sigma: float) -> float:
        """The true samples with batch and rate as the fit has them."""
        lines = {axis: float(law.best(axis, sigma)) for axis in ("batch", "rate")}
        return float(np.exp(truth.mean(Arm(sigma=sigma, **lines))))

    for i, s in enumerate(sigmas):
        held[f"samples@{s:g}"] = law_holds(exponential(law.interval(law.least[:, i])), samples(s))
    for axis, line in (("batch", truth.batch), ("rate", truth.rate)):
        if (slope := law.slope(axis)) is not None:
            held[axis] = law_holds(slope, line[1])
    grid = np.exp(np.linspace(np.log(sigmas[0] / 2), np.log(sigmas[-1] * 2), 241))
    cost = [samples(s) * float(price.of(s, law.best("batch", s))) for s in grid]
    found = law.cheapest(price)
    held["sigma"], held["sigma of the best lines"] = (
        law_holds(found, float(grid[int(np.argmin(cost))])), law_holds(found, cheapest))
    return {"oracle": factor, "held": held, "missed": law.missed, "refused": unidentified(law, price)}


def law_holds(interval: Any, value: float) -> bool:
    return bool(interval.holds(value))


def censored(samples: int = 1000, size: int = 20) -> dict[str, float]:
    """The bias of the mean of a normal with sd 0.3 of which 30 % lie beyond the end."""
    rng, end = np.random.default_rng(0), 0.5244 * SPREAD
    with_them, without = [], []
    for _ in range(samples):
        x = SPREAD * rng.standard_normal(size)
        seen = Arrivals(np.minimum(x, end), x < end)
        fit = censored_fit(np.ones((size, 1)), seen, np.zeros(size, int), np.ones((1, size)))
        with_them.append(fit.beta[0, 0])
        without.append(x[x < end].mean())
    return {"censored": float(np.mean(with_them)), "dropped": float(np.mean(without))}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of one grid."""
    names = list(dict.fromkeys(k for r in rows for k in r.get("held", ())))
    asked = [r for r in rows if r["oracle"] <= FACTOR]
    refused = [r["refused"] for r in asked if r["refused"]]
    pooled = [v for r in rows for k, v in r.get("held", {}).items() if k.startswith("samples")]
    return {
        "studies": len(rows), "missed": float(np.mean([r["missed"] for r in rows if "missed" in r])),
        "cover": {"samples": float(np.mean(pooled)),
                  **{k: float(np.mean([r["held"][k] for r in rows if k in r.get("held", ())])) for k in names}},
        "counts": {k: sum(k in r.get("held", ()) for r in rows) for k in names},
        "identifiable": len(asked), "refused": len(refused) / max(len(asked), 1),
        "refused_of_all": float(np.mean([bool(r["refused"]) for r in rows])),
        "refused_by_oracle": {f"{low:g} to {high:g}": [len(own), float(np.mean([bool(r["refused"]) for r in own]))]
                              for low, high in itertools.pairwise((1, 1.5, 2, 3, 4, 100))
                              if (own := [r for r in rows if low < r["oracle"] <= high])},
        "reasons": dict(Counter(" ".join(r.split()[:4]) for r in refused)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--studies", type=int, default=250)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    found = {
        "command": f"python experiments/control_law.py --studies {asked.studies}",
        "censored": censored(),
        "grids": {",".join(f"{s:g}" for s in grid): summary([study(i, grid) for i in range(asked.studies)])
                  for grid in GRIDS},
    }
    text = json.dumps(found, indent=1)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")
        made_with.note(asked.out, ("laws/value_fit.py",))


if __name__ == "__main__":
    main()
