"""Simulated pilots with a known truth, inside the fitted forms and outside them, and what intervals cover of them.

    python tests/law_truths.py 100          coverage and width by truth, at 1, 2, 4 and 8 times the pilot's budget
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from numpy import ndarray

from isocost.laws import Curve, Law, fit_law
from isocost.laws.forms import risen

Truth = Callable[[ndarray], ndarray]
NS = (2, 4, 8, 16, 32)
END = 8000.0
INSIDE = ("sigmoid", "slow", "fast")
OUTSIDE = ("power", "gompertz", "two-stage", "decline", "collapse")


def truths(kind: str, rng: np.random.Generator, ns: tuple[int, ...] = NS) -> tuple[float, dict[int, Truth]]:
    """The base's reward and one mean curve per n. Larger n start later and may end higher."""
    R0, top, slope = rng.uniform(0.25, 0.45), rng.uniform(0.75, 0.95), rng.uniform(0.8, 1.8)
    middle, later = END * rng.uniform(0.08, 0.35), rng.uniform(0.15, 0.7)
    out = {}
    for place, n in enumerate(ns):
        A = min(0.98, top + rng.uniform(-0.04, 0.04) + 0.01 * place)
        b, Cmid = slope * rng.uniform(0.85, 1.15), middle * np.exp(later * place * rng.uniform(0.7, 1.3))
        loss = 0.03 * (len(ns) - place) / len(ns) * rng.uniform(0.3, 1.7)
        share = _share(kind, b, Cmid, rng)
        out[n] = _curve(R0, A, share, kind, loss)
    return R0, out


def _curve(R0: float, A: float, share: Truth, kind: str, loss: float) -> Truth:
    def curve(C: ndarray) -> ndarray:
        reward = R0 + (A - R0) * share(C)
        if kind == "decline":       # over-fitting: reward falls off slowly after the pilot
            reward = reward - loss * np.log1p(C / END) / np.log(2) * C / (C + END)
        if kind == "collapse":      # the smallest n of the grid lose a part of what they gained, late and for good
            reward = reward - 4 * loss * np.maximum(loss - 0.02, 0) / 0.03 * (A - R0) * risen(C, 3 * END, 4.0)
        return np.clip(reward, 0.0, 1.0)
    return curve


def _share(kind: str, b: float, Cmid: float, rng: np.random.Generator) -> Truth:
    if kind == "slow":
        return lambda C: risen(C, Cmid, b, 0.4)
    if kind == "fast":
        return lambda C: risen(C, Cmid, b, np.inf)
    if kind == "power":
        return lambda C: 1 - (1 + 2 * C / Cmid) ** (-0.6 * b)
    if kind == "gompertz":
        return lambda C: np.exp(-np.log(2) * (C / Cmid) ** (-0.9 * b))
    if kind == "two-stage":
        first, second = rng.uniform(0.55, 0.75), END * rng.uniform(0.7, 3)
        return lambda C: first * risen(C, Cmid / 2, 1.3 * b) + (1 - first) * risen(C, second, 2.0)
    return lambda C: risen(C, Cmid, b)


def run(truth: Truth, C: ndarray, R0: float, rng: np.random.Generator, sd: float = 0.02) -> ndarray:
    """One run's reward: another speed of learning, and checkpoints correlated with their neighbours."""
    mean = truth(C)
    level = np.empty(len(C))
    level[0] = rng.normal()
    for k in range(1, len(C)):
        keep = 0.6 ** (np.log(C[k] / C[k - 1]) / 0.5)
        level[k] = keep * level[k - 1] + np.sqrt(1 - keep**2) * rng.normal()
    moved = np.clip((mean - R0) / 0.15, 0, 1)
    return np.clip(truth(C * np.exp(0.12 * rng.normal())) + 0.85 * sd * level * 4 * mean * (1 - mean) * moved, 0, 1)


def curve(n: int, seed: int, C: ndarray, select: ndarray, audit: ndarray, **changes: object) -> Curve:
    """A run's curve from its base (C = 0) on; n = 16 problems per update, 1000 training problems."""
    rest = {"run": f"n{n}-s{seed}", "B": 16, "lr": 1e-3, "seconds": C / 1000, "epochs": C / n / 1000, **changes}
    return Curve(n=n, seed=seed, C=C, select=select, audit=audit, **rest)  # type: ignore[arg-type]  # plain data


def study(kind: str, rng: np.random.Generator, *, points: int = 8, seeds: int = 3, ns: tuple[int, ...] = NS,
          span: float = 32.0, times: tuple[float, ...] = (1, 2, 4, 8), new: int = 3,
          ) -> tuple[list[Curve], dict[int, ndarray], dict[int, Truth]]:
    """A pilot's curves; for each n the mean of `new` further runs at `times` its largest budget; the truths."""
    R0, every = truths(kind, rng, ns)
    C = np.geomspace(END / span, END, points)
    beyond = np.concatenate([C, END * np.array(times)])
    curves, outcome = [], {}
    for n, truth in every.items():
        for seed in range(seeds):
            reward = np.concatenate([[R0], run(truth, beyond, R0, rng)[:points]])
            split = np.concatenate([[0], rng.normal(size=points) * 0.004])
            curves.append(curve(n, seed, np.concatenate([[0], C]), np.clip(reward + split, 0, 1),
                                np.clip(reward - split, 0, 1)))
        outcome[n] = np.mean([run(truth, beyond, R0, rng)[points:] for _ in range(new)], axis=0)
    return curves, outcome, every


def score(law: Law, outcome: dict[int, ndarray], every: dict[int, Truth], times: tuple[float, ...]) -> ndarray:
    """For each n and time: covered by the prediction, its width, interval score, mean covered, error of the value."""
    rows = []
    for n in law.ns:
        for place, ratio in enumerate(times):
            confidence, prediction = law.predict(n, END * ratio)
            seen, true = float(outcome[n][place]), float(every[n](np.array(END * ratio)))
            miss = max(0.0, prediction.low - seen, seen - prediction.high)
            rows.append([prediction.holds(seen), prediction.width, prediction.width + 20 * miss,
                         confidence.holds(true), prediction.value - true])
    return np.array(rows, dtype=float).reshape(len(law.ns), len(times), 5)


def main(studies: int, kinds: tuple[str, ...], times: tuple[float, ...] = (1, 2, 4, 8)) -> None:
    print(f"90 % intervals, {studies} studies each, at {times} times the pilot's largest run; every n of the grid")
    print("truth      | prediction covers, median width, interval score, root mean squared error of the value "
          "| at the best n: covers, width | regret of the largest equal n at 4, 8; size of the set; refused")
    for kind in kinds:
        rng = np.random.default_rng(sum(map(ord, kind)))
        every_n, at_best, regret, sizes, refused = [], [], [], [], 0
        for seed in range(studies):
            curves, outcome, true = study(kind, rng, times=times)
            law = fit_law(curves, seed=seed)
            refused += law.refused is not None
            scores = score(law, outcome, true, times)
            every_n.append(scores)
            at_best.append([scores[law.ns.index(law.best(END * t)), i] for i, t in enumerate(times)])
            ends = [(law.equal_set(END * t), np.array(END * t)) for t in times[-2:]]
            regret.append([max(f(C) for f in true.values()) - true[max(equal)](C) for equal, C in ends])
            sizes.append([len(equal) for equal, _ in ends])
        a, b = np.concatenate(every_n), np.array(at_best)
        cells = [a[..., 0].mean(0), np.median(a[..., 1], 0), a[..., 2].mean(0), np.sqrt((a[..., 4] ** 2).mean(0))]
        best = [b[..., 0].mean(0), np.median(b[..., 1], 0)]
        print(f"{kind:10s}", " ".join(_row(c) for c in cells), "|", " ".join(_row(c) for c in best), "|",
              _row(np.mean(regret, 0)), _row(np.mean(sizes, 0)), refused, flush=True)


def _row(values: ndarray) -> str:
    return " ".join(f"{v:.3f}" for v in values) + " "


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, tuple(sys.argv[2:]) or INSIDE + OUTSIDE)
