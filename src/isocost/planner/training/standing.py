"""How the n of a pilot stand at its end, at equal cost: which are ahead of which, and by how many standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from isocost.laws.curves import Curve
from isocost.planner.training.learning_rate import NOISE, by_n

BEHIND = 2.0        # standard errors of a difference from which on an n is worse than another


def ends(curves: Sequence[Curve], each: Mapping[int, float]) -> dict[int, float]:
    """n -> the largest C at which runs of every n have cost the same, at `each` n's price (all 0: in rollouts)."""
    last = {n: min(float(c.C[-1]) for c in curves if c.arm["n"] == n) for n in sorted({c.arm["n"] for c in curves})}
    most = min(each[n] * last[n] for n in last)
    return {n: most / each[n] if most > 0 else min(last.values()) for n in last}


def rewards(curves: Sequence[Curve], at: Mapping[int, float]) -> dict[int, list[float]]:
    """n -> the `select` reward of each of its runs at C = at[n]."""
    return {n: by_n([c for c in curves if c.arm["n"] == n], C)[n] for n, C in at.items()}


def means(curves: Sequence[Curve], each: Mapping[int, float]) -> dict[int, float]:
    """n -> the mean `select` reward of its runs where those of every n have cost the same (`ends`)."""
    return {n: sum(v) / len(v) for n, v in rewards(curves, ends(curves, each)).items()}


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """(mean of `a` minus mean of `b`, its standard error), from the spread within both, and from `NOISE` where each has
    one value."""
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    free = len(x) + len(y) - 2
    sd = np.sqrt((((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()) / free) if free else NOISE
    return float(x.mean() - y.mean()), float(sd * np.sqrt(1 / len(x) + 1 / len(y)))


def ahead(curves: Sequence[Curve], each: Mapping[int, float]) -> dict[int, list[int]]:
    """n -> the n that are better by more than `BEHIND` standard errors, each pair at the end of the shorter runs."""
    ns = sorted({c.arm["n"] for c in curves})
    out: dict[int, list[int]] = {n: [] for n in ns}
    for n, k in combinations(ns, 2):
        pair = [c for c in curves if c.arm["n"] in (n, k)]
        by = rewards(pair, ends(pair, each))
        gap, error = difference(by[k], by[n])
        if abs(gap) > BEHIND * error:
            worse, better = (n, k) if gap > 0 else (k, n)
            out[worse].append(better)
    return out
