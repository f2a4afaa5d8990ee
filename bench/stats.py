"""Medians, paired ratios and their intervals. No resampling: order statistics and Student's t, the same every time."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, sqrt
from statistics import mean, median, stdev
from typing import Any

LEVEL = 0.95
# Student's t at 97.5 %, by degrees of freedom: what a 95 % interval from a few seeds takes.
T975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}


def spread(values: Sequence[float], level: float = LEVEL) -> dict[str, Any]:
    """The median and an interval for it that assumes nothing of the distribution (the sign test's, inverted).

    The interval runs between the k-th smallest and the k-th largest value, with the largest k that covers the median
    with at least `level`; with fewer than six values that is the whole range, and `coverage` says what it covers.
    Raises ValueError for no values.
    """
    if not values:
        raise ValueError("no values: nothing was measured")
    x, n = sorted(values), len(values)
    k = max([0, *(j for j in range(n // 2) if coverage(n, j) >= level)])
    return {"median": median(x), "low": x[k], "high": x[n - 1 - k], "coverage": coverage(n, k), "count": n}


def coverage(n: int, k: int) -> float:
    """The chance that a median lies between the (k+1)-th smallest and the (k+1)-th largest of n draws."""
    return 1 - 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n if n > 1 else 0.0


def paired(slow: Sequence[float], fast: Sequence[float]) -> dict[str, Any]:
    """How many times faster: `spread` of slow / fast, block by block. Raises ValueError unless they pair up."""
    if len(slow) != len(fast):
        raise ValueError(f"{len(slow)} blocks of one and {len(fast)} of the other: they do not pair up")
    return spread([a / b for a, b in zip(slow, fast, strict=True)])


def difference(a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """The mean of a - b over pairs, with Student's 95 % interval, and whether that holds 0; from two pairs on."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} values of one and {len(b)} of the other: they do not pair up")
    d = [x - y for x, y in zip(a, b, strict=True)]
    out: dict[str, Any] = {"mean": mean(d), "pairs": len(d), "values": d}
    if len(d) > 1:
        half = T975.get(len(d) - 1, 1.96) * stdev(d) / sqrt(len(d))
        out |= {"low": out["mean"] - half, "high": out["mean"] + half}
        out["holds_zero"] = out["low"] <= 0 <= out["high"]
    return out
