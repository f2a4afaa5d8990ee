"""The interval of an oracle that knows the form and the noise: what a law's width is measured against.

Everything else is the law's own: the same runs, the same points, the same prior over A, Cmid, b and over how n changes
them. What the law is wider by is the price of not knowing which curve it is and how runs differ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.stats.forms import gain_share
from isocost.stats.intervals import Interval, mixture_quantiles
from isocost.stats.posterior import ArmMean, joint, thinned
from truth.planted import TAILS, Planted

READ = 0.004        # of one evaluation, where it is not on a finite set (`Planted.curve`)
DRAWS = 300


def oracle(truth: Planted, curves: Sequence[Curve], C: float, rng: np.random.Generator, *, level: float = 0.9,
           held_out: int = 0, runs: int = 3) -> dict[int, tuple[Interval, Interval]]:
    """For each n with a whole run: (confidence of the mean curve at C, prediction of the mean of `runs` new runs).

    `held_out` is the design's. Raises UserError for a kind that is not one rise, whose form cannot be known.
    """
    seen = _seen(truth, curves, held_out)
    if not seen:
        return {}
    drawn, tail = _drawn(truth, seen, rng), TAILS[truth.kind]
    out, probabilities = {}, ((1 - level) / 2, 0.5, (1 + level) / 2)
    for own, (A, Cmid, b) in zip(seen, np.moveaxis(drawn, -1, 1), strict=True):
        paths = truth.R0 + (A - truth.R0) * gain_share(np.array(C), Cmid, b, tail)
        new = float(truth.covariance(own.n, np.array([C]))[0, 0]) / runs
        low, middle, high = np.quantile(paths, probabilities)
        wide = mixture_quantiles(paths, np.full(DRAWS, np.sqrt(new)), probabilities)
        out[own.n] = (Interval(float(middle), float(low), float(high), level, "confidence", np.inf),
                      Interval(float(middle), float(wide[0]), float(wide[2]), level, "prediction", np.inf))
    return out


def choose(truth: Planted, curves: Sequence[Curve], C: float, rng: np.random.Generator, *, held_out: int = 0) -> int:
    """The n that an oracle that knows form and noise takes at C: that of the smallest expected shortfall."""
    seen = _seen(truth, curves, held_out)
    A, Cmid, b = np.moveaxis(_drawn(truth, seen, rng), -1, 0)
    mean = ((A - truth.R0) * gain_share(np.array(C), Cmid, b, TAILS[truth.kind])).mean(1)
    return seen[int(mean.argmax())].n


def _drawn(truth: Planted, seen: Sequence[ArmMean], rng: np.random.Generator) -> ndarray:
    """Joint draws (arms, D, 3). Raises UserError for a kind that is not one rise, whose form cannot be known."""
    if truth.kind not in TAILS:
        raise UserError(f"an oracle knows the form of {', '.join(TAILS)}, not of {truth.kind}")
    u = rng.random((len(seen), 3, DRAWS))
    return joint(seen, truth.R0, TAILS[truth.kind], u)[0].draws(u)


def _seen(truth: Planted, curves: Sequence[Curve], held_out: int) -> list[ArmMean]:
    out = []
    for n in sorted({c.arm["n"] for c in curves}):
        every = [c for c in curves if c.arm["n"] == n and not c.diverged]
        whole = [c for c in every if len(c.C) == max(len(e.C) for e in every)]
        if not whole:
            continue
        C = whole[0].C[1:]
        at = thinned(C)
        mean = np.mean([c.audit[1:] for c in whole], axis=0)[at]
        out.append(ArmMean(n, C[at], mean, (truth.covariance(n, C[at]) + _read(mean, held_out)) / len(whole), np.inf))
    return out


def _read(mean: ndarray, held_out: int) -> ndarray:
    variance = mean * (1 - mean) / held_out if held_out else np.full(len(mean), READ**2)
    return np.diag(np.maximum(variance, 1e-6))
