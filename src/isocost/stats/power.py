"""Statistics of few runs: differences with intervals that are valid for three seeds, power, and seeds for an effect.

A percentile bootstrap over three seeds cannot give a 90 % interval: resampling a mean never leaves the range of the
runs. So the interquartile mean and the stratified bootstrap of rliable (Agarwal et al. 2021, arXiv 2108.13264) only
describe, and decisions use Student's intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, inf, isfinite, sqrt

import numpy as np
from numpy import ndarray
from scipy.special import nctdtr, ndtri, stdtr, stdtrit

from isocost.chance import Purpose, generator
from isocost.errors import UserError

POWER = 0.8
PAIRS = 5               # common seeds of two arms from which on runs are compared in pairs: see `difference`
LEVEL = 0.9             # of every interval, unless stated
RESAMPLES = 2000
MOST = 10_000           # an effect that needs more seeds per arm is reported as too small to detect


def iqm(values: ndarray) -> ndarray:
    """The interquartile mean over the last axis, (..., R) -> (...), of all runs together, as in rliable."""
    ranked = np.sort(values, axis=-1)
    cut = ranked.shape[-1] // 4
    return np.asarray(ranked[..., cut : ranked.shape[-1] - cut].mean(-1))


def bootstrap(
    strata: Sequence[ndarray], statistic: Callable[[ndarray], ndarray] = iqm, *, level: float = LEVEL, seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """A percentile interval by the stratified bootstrap: runs are resampled within their stratum."""
    rng = generator(seed, Purpose.BOOTSTRAP, resamples)
    drawn = [np.sort(s)[rng.integers(len(s), size=(resamples, len(s)))] for s in strata]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=1)), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def pooled_sd(samples: Sequence[ndarray]) -> tuple[float, int] | None:
    """The pooled standard deviation of samples (S,) and its degrees of freedom; None if no spread was measured."""
    dof = sum(max(len(s) - 1, 0) for s in samples)
    square = sum(float(((s - s.mean()) ** 2).sum()) for s in samples if len(s))
    return (sqrt(square / dof), dof) if dof and square > 0 else None


@dataclass(frozen=True)
class Estimate:
    """A mean or a difference with its standard error, in the unit of the values, and the degrees of freedom of that."""

    value: float
    se: float
    dof: float

    @property
    def p(self) -> float:
        """The two-sided p-value of 0."""
        if not self.se:
            return float(self.value == 0)
        return float(2 * stdtr(self.dof, -abs(self.value) / self.se))

    def interval(self, alpha: float) -> tuple[float, float]:
        """The central Student interval of level 1 - alpha."""
        half = float(stdtrit(self.dof, 1 - alpha / 2)) * self.se if self.se else 0.0
        return self.value - half, self.value + half


Runs = Mapping[str, Mapping[int, float]]      # family -> seed -> a number of that run


def difference(a: Runs, b: Runs, floor: float) -> Estimate | None:
    """Mean of a minus mean of b, averaged over families with equal weights; None if a spread cannot be estimated.

    A family with `PAIRS` or more common seeds uses the differences between runs of one seed, with one degree of freedom
    fewer than pairs. Other families use Welch's test (1947), which allows the arms different spreads, with
    Satterthwaite's degrees of freedom. Pairing halves the degrees of freedom, too costly with three or four seeds. It
    gains much if runs of one seed end at similar rewards: on the built-in problems hardly at high learning rates,
    closely at low ones. Families are combined by Satterthwaite's rule too. `floor` is the smallest standard deviation
    of a run that is assumed.
    """
    families = sorted(set(a) & set(b))
    parts = [_part(a[f], b[f], floor) for f in families]
    if not parts or any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    pieces = [piece for _, own in known for piece in own]
    total = sum(v for v, _ in pieces)
    dof = total**2 / sum(v**2 / k for v, k in pieces)
    return Estimate(float(np.mean([value for value, _ in known])), sqrt(total) / len(families), float(dof))


def _part(a: Mapping[int, float], b: Mapping[int, float], floor: float
          ) -> tuple[float, list[tuple[float, int]]] | None:
    """One family: the difference of means, and (variance, degrees of freedom) of each term of its variance."""
    both = sorted(set(a) & set(b))
    if len(both) >= PAIRS:
        d = np.array([a[s] - b[s] for s in both])
        return float(d.mean()), [(max(float(d.var(ddof=1)), 2 * floor**2) / len(d), len(d) - 1)]
    sides = [np.array([x[s] for s in sorted(x)]) for x in (a, b)]
    if min(map(len, sides)) < 2:
        return None
    pieces = [(max(float(x.var(ddof=1)), floor**2) / len(x), len(x) - 1) for x in sides]
    return float(sides[0].mean() - sides[1].mean()), pieces


def smallest(se: float, dof: float, alpha: float, power: float = POWER) -> float:
    """The minimum detectable difference of a two-sided Student test at `alpha` for an estimate with this standard
    error: the true difference that the test detects, with the right sign, with this power. Infinite if `dof` is 0.

    se d, where a noncentral t with `dof` degrees of freedom and noncentrality d exceeds t(dof, 1 - alpha / 2) with
    probability `power` (Lehmann and Romano 2005, Testing Statistical Hypotheses, section 5.2; Cohen 1988, chapter 2).
    This is exact. The usual sum of two central quantiles, t(dof, 1 - alpha / 2) + t(dof, power), is not, because the
    spread is estimated once, not twice. At alpha 0.1 and power 0.8 the sum is 6 % too small at 1 degree of freedom and
    1 % too large at 3 to 10.
    """
    return se * _standardized(dof, alpha, power) if dof > 0 else inf


@cache
def _standardized(dof: float, alpha: float, power: float) -> float:
    """`smallest` in units of the standard error."""
    critical = float(stdtrit(dof, 1 - alpha / 2))
    low, high = 0.0, critical + 1.0
    while nctdtr(dof, high, critical) > 1 - power:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if nctdtr(dof, middle, critical) > 1 - power else (low, middle)
    return high


# Three tests compare two arms with so many seeds each. In all of them the difference of the means has the standard
# error sd sqrt(2 / seeds), with `sd` of one run. They differ in the degrees of freedom (in brackets) of the estimated
# sd, and so in the minimum detectable difference: with three seeds and sd 0.02 it is 0.065 in pairs (2), 0.054 by
# Welch's test (3), and 0.044 in a grid of five arms (10).


def detectable(seeds: int, arms: int, sd: float, *, level: float = LEVEL, power: float = POWER) -> float:
    """Minimum detectable difference between two arms of a grid, with the spread pooled over all its `arms`:
    arms (seeds - 1) degrees of freedom. Infinite with one seed, which does not measure the noise."""
    return smallest(sd * sqrt(2 / seeds), arms * (seeds - 1), 1 - level, power)


def detectable_paired(seeds: int, sd: float, *, level: float = LEVEL, power: float = POWER) -> float:
    """The same for runs paired by seed, as in an audit, taken as independent: seeds - 1 degrees of freedom."""
    return smallest(sd * sqrt(2 / seeds), seeds - 1, 1 - level, power)


def detectable_in_comparison(seeds: int, sd: float, alpha: float) -> float:
    """The same for a comparison (`difference`): in pairs from `PAIRS` seeds on, else by Welch's test, which has about
    one degree of freedom fewer than a test that pools the two spreads."""
    return smallest(sd * sqrt(2 / seeds), comparison_dof(seeds), alpha)


def comparison_dof(seeds: int) -> int:
    """Degrees of freedom of a comparison with so many seeds per arm (`difference`)."""
    return seeds - 1 if seeds >= PAIRS else max(2 * seeds - 3, 0)


def standard_errors(alpha: float, power: float = POWER) -> float:
    """How many standard errors, known ones, a difference must be to be detected with this power."""
    return float(ndtri(1 - alpha / 2) + ndtri(power))


def seeds_for(effect: float, sd: float, *, level: float = LEVEL, power: float = POWER) -> int | None:
    """The fewest seeds per arm at which `detectable_paired` is at most |effect|; None if `MOST` are too few."""
    if not (isfinite(effect) and isfinite(sd) and sd >= 0):
        raise UserError(f"expected a finite effect and a finite sd of at least 0, got {effect:g} and {sd:g}")
    return _fewest(effect, sd, 1 - level, power, lambda seeds: detectable_paired(seeds, sd, level=level, power=power))


def seeds_for_comparison(effect: float, sd: float, alpha: float) -> int | None:
    """The fewest seeds per arm at which `detectable_in_comparison` is at most |effect|; None if `MOST` are too few."""
    return _fewest(effect, sd, alpha, POWER, lambda seeds: detectable_in_comparison(seeds, sd, alpha))


def _fewest(effect: float, sd: float, alpha: float, power: float, detected: Callable[[int], float]) -> int | None:
    if effect == 0:
        return None
    known = standard_errors(alpha, power) * sd / abs(effect)      # a known sd takes fewer: a lower bound
    return next((k for k in range(max(2, ceil(2 * known**2)), MOST + 1) if detected(k) <= abs(effect)), None)


def error_shares(p: Sequence[Sequence[float]], alphas: Sequence[float]) -> list[list[float]]:
    """The error level of every pair (inner) of every question (outer): all tests together err at most at sum(alphas).

    Within a question Holm's method (1979): the i-th smallest of m p-values is tested at alpha / (m - i), until one is
    not significant; the rest are tested at that level too. If all pairs of a question are significant, its alpha is
    added to the next question's (fallback procedure, Wiens 2003).
    """
    out, carried = [], 0.0
    for own, alpha in zip(p, alphas, strict=True):
        alpha += carried
        levels, significant = [0.0] * len(own), True
        at = alpha / max(len(own), 1)
        for rank, i in enumerate(sorted(range(len(own)), key=lambda i: own[i])):
            if significant:
                at = alpha / (len(own) - rank)
                significant = own[i] < at
            levels[i] = at
        out.append(levels)
        carried = alpha if significant else 0.0
    return out
