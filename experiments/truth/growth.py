"""Whether the best n grows with compute, by a statistic that is fixed before any result is seen.

At each compute C and for each seed the best n is that of the highest reward (ties: the smaller). C counts if n matters
there: best less worst n, by their means over seeds, is more than `MARGIN` and its interval over seeds is above 0. Over
the C that count, `slope` is the least-squares slope of log2 n* against log10 C (doublings per decade) and `change` is
mean log2 n* over the last decade less that over the first. Intervals are Student's t over seeds at `LEVEL`.

grows            both intervals are above 0
falls            both are below 0
does not grow    not falls, and the slope's interval is below `LEAST` doublings per decade
not identified   anything else, and if n matters over less than `SPAN` decades
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import stdtrit

LEVEL, MARGIN, LEAST, SPAN = 0.9, 0.01, 0.5, 1.5
GROWS, FALLS, FLAT, UNKNOWN = "grows", "falls", "does not grow", "not identified"


def interval(x: ndarray) -> list[float]:
    """[mean, low, high] of x (seeds,) at `LEVEL`."""
    half = float(stdtrit(len(x) - 1, (1 + LEVEL) / 2) * x.std(ddof=1) / sqrt(len(x)))
    mean = float(x.mean())
    return [round(mean, 4), round(mean - half, 4), round(mean + half, 4)]


def growth(reward: ndarray, ns: ndarray, C: ndarray) -> dict[str, Any]:
    """The verdict on reward (seeds, n, C).

    `winners` are the best n by seed and C, `n_star` their geometric means, `counts` the C at which n matters, `worth`
    what the best n at the end has over the n that was best over the first decade, there.
    """
    ns, C = np.asarray(ns), np.asarray(C, dtype=float)
    winners = ns[reward.argmax(1)]
    mean, counts = reward.mean(0), np.zeros(len(C), dtype=bool)
    for k in range(len(C)):
        lead, low, _ = interval(reward[:, mean[:, k].argmax(), k] - reward[:, mean[:, k].argmin(), k])
        counts[k] = lead > MARGIN and low > 0
    out: dict[str, Any] = {"winners": winners.tolist(), "n_star": np.round(2 ** np.log2(winners).mean(0), 2).tolist(),
                           "counts": counts.tolist()}
    x, y = np.log10(C[counts]), np.log2(winners[:, counts])
    if len(x) < 2 or x[-1] - x[0] < SPAN - 1e-9:
        return out | {"verdict": UNKNOWN, "why": "n matters over too little of C"}
    slope = interval((y - y.mean(1, keepdims=True)) @ (x - x.mean()) / ((x - x.mean()) ** 2).sum())
    first, last = x <= x[0] + 1 - 1e-9, x > x[-1] - 1 + 1e-9
    change = interval(y[:, last].mean(1) - y[:, first].mean(1))
    verdict = UNKNOWN
    if slope[1] > 0 and change[1] > 0:
        verdict = GROWS
    elif slope[2] < 0 and change[2] < 0:
        verdict = FALLS
    elif slope[2] < LEAST:
        verdict = FLAT
    early = int(abs(np.log2(ns) - y[:, first].mean()).argmin())
    worth = interval(reward[:, mean[:, -1].argmax(), -1] - reward[:, early, -1])
    return out | {"verdict": verdict, "why": "", "slope": slope, "change": change, "worth": worth,
                  "early": int(ns[early]), "late": int(ns[mean[:, -1].argmax()])}
