"""The choice of a strategy and its size: for a budget per answer, or for an accuracy.

The best of many candidates is chosen on nine tenths of the problems and measured on the rest, ten times over, so that
the accuracy that is stated is not that of the luckiest candidate. More than one sample is prescribed only where its
gain over one sample, so measured, has an interval above 0; a strategy for each band of difficulty only where its gain
over the best single strategy has one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.stats.intervals import Interval, student

FOLDS = 10
TIE = 0.005         # of accuracy, at most 1 % of the best: within it of the best, the cheapest is chosen
WORTH = 0.01        # a gain over one sample below this is none
LEVEL = 0.9

Rule = Callable[[ndarray, ndarray], int]    # (S,) mean accuracies, (S,) mean costs -> the number of the chosen one


def within(budget: float, exact: bool = False) -> Rule:
    """The most accurate candidate that costs at most `budget`; of those within `TIE` of it the cheapest.

    With an `exact` scorer more samples are never worse: where nothing was ever right, all that the budget pays for.
    """

    def choose(accuracy: ndarray, cost: ndarray) -> int:
        fits = cost <= budget * (1 + 1e-9)
        best = np.where(fits, accuracy, -np.inf).max()
        if exact and best == 0:
            return int(np.where(fits, cost, -np.inf).argmax())
        near = fits & (accuracy >= best - min(TIE, best / 100))
        return int(np.where(near, cost, np.inf).argmin())

    return choose


def reaching(target: float) -> Rule:
    """The cheapest candidate of at least this accuracy; without one, the most accurate."""

    def choose(accuracy: ndarray, cost: ndarray) -> int:
        enough = accuracy >= target
        return int(np.where(enough, cost, np.inf).argmin()) if enough.any() else int(accuracy.argmax())

    return choose


@dataclass(frozen=True, eq=False)
class Chosen:
    """A choice by number; `accuracy` (P,) is each problem's without it, `optimism` what the chosen mean has above
    it."""

    single: int
    accuracy: ndarray
    optimism: float


def choose(accuracy: ndarray, cost: ndarray, rule: Rule, seed: int) -> Chosen:
    """The choice of a rule from (S, P) accuracies and (S, P) costs of S candidates on P problems."""
    mean_cost = cost.mean(1)
    fold = _folds(accuracy.shape[1], seed)
    without = np.empty(accuracy.shape[1])
    for k in range(fold.max() + 1):
        out = fold == k
        without[out] = accuracy[rule(accuracy[:, ~out].mean(1), mean_cost), out]
    best = rule(accuracy.mean(1), mean_cost)
    return Chosen(best, without, float(accuracy[best].mean() - without.mean()))


@dataclass(frozen=True, eq=False)
class ByBand:
    """A choice for each band, by the candidates' numbers; `accuracy` and `cost` (P,) as of `Chosen`."""

    each: tuple[int, ...]
    accuracy: ndarray
    cost: ndarray


def choose_by_band(accuracy: ndarray, cost: ndarray, band: ndarray, budget: float, seed: int) -> ByBand | None:
    """A candidate for each band, of mean cost at most `budget`: cost has one price in all bands. None if none fits."""
    fold = _folds(len(band), seed)
    without, paid = np.empty(len(band)), np.empty(len(band))
    for k in range(fold.max() + 1):
        out = fold == k
        found = _allot(accuracy[:, ~out], cost[:, ~out], band[~out], budget, int(band.max()) + 1)
        if found is None:
            return None
        mine = np.array(found)[band[out]]
        without[out], paid[out] = accuracy[mine, out], cost[mine, out]
    each = _allot(accuracy, cost, band, budget, int(band.max()) + 1)
    return None if each is None else ByBand(each, without, paid)


def _allot(accuracy: ndarray, cost: ndarray, band: ndarray, budget: float, bands: int) -> tuple[int, ...] | None:
    here = [band == k for k in range(bands)]
    share = np.array([h.mean() for h in here])
    gain = np.array([accuracy[:, h].mean(1) if h.any() else accuracy.mean(1) for h in here])        # (bands, S)
    paid = np.array([cost[:, h].mean(1) if h.any() else cost.mean(1) for h in here])
    best, most = None, -np.inf
    for price in (0.0, *np.geomspace(1e-4, 10, 120) / max(float(cost.mean(1).min()), 1e-12)):
        each = (gain - price * paid).argmax(1)
        rows = np.arange(bands)
        if share @ paid[rows, each] <= budget and share @ gain[rows, each] > most:
            best, most = tuple(int(x) for x in each), float(share @ gain[rows, each])
    return best


def _folds(problems: int, seed: int) -> ndarray:
    """(P,) the fold of each problem: `FOLDS` of nearly equal size, fewer with fewer problems."""
    order = chance.generator(seed, chance.Purpose.SPLIT, problems, 1).permutation(problems)
    fold = np.empty(problems, dtype=np.int64)
    fold[order] = np.arange(problems) % min(FOLDS, problems)
    return fold


def paired(difference: ndarray, level: float = LEVEL) -> Interval:
    """The mean of (P,) differences with its confidence interval: the problem is the unit."""
    mean, count = float(difference.mean()), len(difference)
    reach = student(level, count - 1) * float(difference.std(ddof=1)) / count**0.5
    return Interval(mean, mean - reach, mean + reach, level, "confidence", count - 1)


def predicted(accuracy: ndarray, new: int, level: float = LEVEL) -> Interval:
    """The prediction interval of the mean over `new` other problems, from (P,) accuracies."""
    mean, count = float(accuracy.mean()), len(accuracy)
    # One problem of the rarer kind more, on each side: where all P agree, the next one may not.
    spread = max(float(accuracy.var(ddof=1)), mean * (1 - mean) / count, 1 / (count + 2) ** 2)
    reach = student(level, count - 1) * (spread * (1 / count + 1 / new)) ** 0.5
    return Interval(mean, max(0.0, mean - reach), min(1.0, mean + reach), level, "prediction", count - 1)


def decide(gain: Interval) -> str:
    """ "more" samples than one, "one" sample, or "cannot tell", by the interval of the gain over one sample."""
    if gain.low > 0:
        return "more"
    return "one" if gain.high < WORTH else "cannot tell"
