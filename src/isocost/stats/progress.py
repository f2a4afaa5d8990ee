"""Pass rates per problem relative to the base policy: histogram, problems learned and forgotten, uniformity of gains.

Evaluations record these numbers; `isocost.laws.interference` reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

BINS = 16               # bin k holds the rates nearest to k of 16, the samples of a profile
SOLVED = 1 / 16         # a pass rate of at least this counts as above zero: 1 of 16
UNSOLVED = 1 / 32       # a pass rate below this counts as zero; between the two, fluctuations are not counted


def bins_of(rates: ndarray) -> ndarray:
    """The bin of each pass rate: (P,) integers 0..16, halves rounded up; rates outside [0, 1] go to the end bins."""
    return np.clip(np.floor(np.asarray(rates, dtype=float) * BINS + 0.5), 0, BINS).astype(int)


def against(rates: Sequence[float] | ndarray, base: Sequence[float | None] | ndarray) -> dict[str, Any]:
    """What an evaluation records of pass rates (P,) now and at the base, as plain data; NaN or None: not scored.

    `histogram` counts problems in each of 17 bins of the rate now. `by_base` is the mean rate now of the problems in
    each bin of the base rate (None: no problem). `forgotten` counts problems at 1/16 or more at the base and below 1/32
    now; `learned` counts the opposite.
    """
    now, then = np.array(rates, dtype=float), np.array(base, dtype=float)
    scored = np.isfinite(now)
    both = scored & np.isfinite(then)
    now_of, then_of = now[both], then[both]
    began = bins_of(then_of)
    return {
        "histogram": np.bincount(bins_of(now[scored]), minlength=BINS + 1).tolist(),
        "by_base": [float(now_of[began == k].mean()) if (began == k).any() else None for k in range(BINS + 1)],
        "forgotten": int(((then_of >= SOLVED) & (now_of < UNSOLVED)).sum()),
        "learned": int(((then_of < UNSOLVED) & (now_of >= SOLVED)).sum()),
    }


def uniformity(by_base: Sequence[float | None] | ndarray, then: Sequence[float | None] | ndarray,
               weights: Sequence[int] | ndarray) -> float:
    """How uniform the gains of bins (17,) are, from `then` to now, weighted by their numbers of problems.

    With g the share of 1 - then that a bin has gained, and m its mean: 1 - mean|g - m| / 2m, one minus Hoover's index,
    at least 0; NaN if m <= 0. Bins within 1/32 of 1 cannot gain and are left out.
    """
    now, before, w = (np.array(x, dtype=float) for x in (by_base, then, weights))
    room = np.isfinite(now) & np.isfinite(before) & (w > 0)
    room[room] = 1 - before[room] >= UNSOLVED
    if not room.any():
        return float("nan")
    g = (now[room] - before[room]) / (1 - before[room])
    w = w[room] / w[room].sum()
    mean = float(w @ g)
    return max(0.0, 1 - float(w @ np.abs(g - mean)) / (2 * mean)) if mean > 1e-12 else float("nan")


def chance_of_zero(histogram: Sequence[int] | ndarray, samples: int | None) -> float | None:
    """The expected share of problems with a right sample at one evaluation and none at the next, if no rate changed.

    From a beta-binomial fitted to the base's histogram: E[(1 - q^s) q^s] with q = 1 - p. None for more than 16 samples,
    which 17 bins do not resolve. Evaluations of one run share random numbers and differ less, so this is a bound.
    """
    if samples is None:
        return 0.0
    from scipy.special import betaln  # here: processes that only run import no scipy, which takes 0.25 s

    from isocost.stats.passk import beta_binomial

    h = np.array(histogram, dtype=float)
    at = bins_of(np.arange(samples + 1) / samples)
    if samples > BINS or h[at].sum() < h.sum() or not h.sum():
        return None
    a, b = (float(x[0]) for x in beta_binomial(h[at]))
    once, twice = (np.exp(betaln(a, b + k * samples) - betaln(a, b)) for k in (1, 2))
    return float(once - twice)
