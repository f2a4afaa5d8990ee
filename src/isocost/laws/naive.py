"""Forecasts that need no law, and are hard to beat: a law is worth its intervals where it scores better than these.

On public logs a line through the end of a curve is the strongest of them, and a mixture of the law with the last level
was as good as either (docs/outside_curves.md).
"""

from __future__ import annotations

import numpy as np
from numpy import ndarray

from isocost.stats.intervals import student

QUARTER = 0.25      # share of the run that a line is fitted to, and weight of the law beside the last level
DAMPED = 0.5        # share of the line's slope that is kept up beyond the run
FEWEST = 3          # points of a line
ORIGINS = 12        # earlier ends from which the line's own errors are measured, at most


def line(C: ndarray, reward: ndarray, at: float) -> float:
    """Reward at `at` by a line in ln C through the last quarter of a curve (C (K,) > 0, reward (K,)), damped."""
    last = slice(min(int(np.searchsorted(C, (1 - QUARTER) * C[-1])), max(len(C) - FEWEST, 0)), None)
    x, y = np.log(C[last] / C[-1]), reward[last]
    apart = x - x.mean()
    slope = float(apart @ y / (apart @ apart)) if apart.any() else 0.0
    ahead = np.log(at / C[-1])
    return float(np.clip(y.mean() + slope * (DAMPED * ahead - x.mean()), 0, 1))


def line_interval(C: ndarray, reward: ndarray, at: float, level: float) -> tuple[float, float, float]:
    """(value, low, high) of `line`, its scale from its errors at earlier ends of the curve; (0, 1) without any."""
    value, errors, ahead = line(C, reward, at), [], np.log(at / C[-1])
    for k in np.unique(np.linspace(FEWEST, len(C) - 1, ORIGINS).astype(int)) if len(C) > FEWEST and ahead > 0 else ():
        to = min(C[k - 1] * at / C[-1], C[-1])
        true = np.interp(np.log(to), np.log(C), reward)
        errors.append((line(C[:k], reward[:k], to) - true) * np.sqrt(ahead / np.log(to / C[k - 1])))
    if not errors:
        return value, 0.0, 1.0
    half = student(level, len(errors)) * float(np.sqrt(np.mean(np.square(errors))))
    return value, max(0.0, value - half), min(1.0, value + half)


def mixture(law: float, last: float) -> float:
    """A quarter of the law's forecast, and three quarters of the last level."""
    return QUARTER * law + (1 - QUARTER) * last
