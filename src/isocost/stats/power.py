"""What a few runs can tell: differences with intervals that hold for three seeds, and the seeds that an effect takes.

A percentile bootstrap over three seeds cannot give a 90 % interval: resampling a mean never leaves the range of the
runs. So the interquartile mean and the stratified bootstrap of rliable (Agarwal et al. 2021, arXiv 2108.13264) describe
here, and Student's intervals decide.
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
PAIRS = 5               # seeds that both arms have from which on runs are compared in pairs: see `difference`
LEVEL = 0.9             # of intervals that describe
RESAMPLES = 2000
MOST = 10_000           # seeds per arm beyond which an effect is called too small to detect


def iqm(values: ndarray) -> ndarray:
    """The interquartile mean over the last axis, (..., R) -> (...): the mean of the middle half of all runs together.

    As in rliable, a quarter of the values, rounded down, is cut off at either end.
    """
    ranked = np.sort(values, axis=-1)
    cut = ranked.shape[-1] // 4
    return np.asarray(ranked[..., cut : ranked.shape[-1] - cut].mean(-1))


def bootstrap(
    strata: Sequence[ndarray], statistic: Callable[[ndarray], ndarray] = iqm, *, level: float = LEVEL, seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """A percentile interval by the stratified bootstrap: the runs of every stratum are drawn anew, within it.

    `statistic` takes samples (S, R) of all runs to (S,).
    Never wider than from the lowest run to the highest: with few runs it describes them and decides nothing.
    """
    rng = generator(seed, Purpose.BOOTSTRAP, resamples)
    drawn = [np.sort(s)[rng.integers(len(s), size=(resamples, len(s)))] for s in strata]
    low, high = np.quantile(statistic(np.concatenate(drawn, axis=1)), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def pooled_sd(samples: Sequence[ndarray]) -> tuple[float, int] | None:
    """The standard deviation that samples (S,) of unlike means share, and its degrees of freedom, sum of (S - 1).

    None where no sample has two values, or none that differ: then nothing was measured.
    """
    dof = sum(max(len(s) - 1, 0) for s in samples)
    square = sum(float(((s - s.mean()) ** 2).sum()) for s in samples if len(s))
    return (sqrt(square / dof), dof) if dof and square > 0 else None


@dataclass(frozen=True)
class Estimate:
    """A difference with its standard error and the degrees of freedom behind that."""

    value: float
    se: float
    dof: float

    @property
    def p(self) -> float:
        """The two-sided p-value of no difference."""
        return float(2 * stdtr(self.dof, -abs(self.value) / self.se))

    def interval(self, alpha: float) -> tuple[float, float]:
        """The central Student interval of level 1 - alpha."""
        half = float(stdtrit(self.dof, 1 - alpha / 2)) * self.se
        return self.value - half, self.value + half


Runs = Mapping[str, Mapping[int, float]]      # family -> seed -> a number of that run


def difference(a: Runs, b: Runs, floor: float) -> Estimate | None:
    """Mean of a less mean of b, averaged over families with equal weights; None where a spread cannot be known.

    In a family with `PAIRS` seeds or more in common the differences of runs of one seed, Student with one degree of
    freedom fewer than pairs; else Welch (1947), who lets the arms differ in spread, with Satterthwaite's degrees of
    freedom. Pairs cost half of the degrees of freedom, which three or four seeds cannot spare, and are worth much where
    runs of one seed end alike: on the built-in problems hardly at high learning rates, closely at low ones. Families
    add up by the same rule. `floor` is the smallest standard deviation of a run that is believed.
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
    """One family: the difference of means, and the variances that make up its own with their degrees of freedom."""
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
    """The minimum detectable difference of a two-sided Student test at `alpha`, of an estimate with this standard
    error: the true difference that the test finds, with the right sign, with this power. Infinite without a degree of
    freedom.

    se d, where a noncentral t with `dof` degrees of freedom and noncentrality d exceeds t(dof, 1 - alpha / 2) with
    probability `power` (Lehmann and Romano 2005, Testing Statistical Hypotheses, section 5.2; Cohen 1988, chapter 2).
    This is exact. The usual sum of two central quantiles, t(dof, 1 - alpha / 2) + t(dof, power), is not: the spread is
    estimated once, not twice. At alpha 0.1 and power 0.8 the sum is 6 % too small at 1 degree of freedom and 1 % too
    large at 3 to 10.
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


# Three tests compare two arms of so many seeds. The difference of their means has the standard error sd sqrt(2 / seeds)
# in all of them, `sd` of one run of either arm; they differ in the degrees of freedom of the estimated sd, and so in
# what they detect: with three seeds and sd 0.02, 0.065 in pairs (2), 0.054 by Welch's test (3), 0.044 in a grid of five
# arms (10).


def detectable(seeds: int, arms: int, sd: float, *, level: float = LEVEL, power: float = POWER) -> float:
    """Minimum detectable difference between two arms of a grid, whose spread is pooled over all its `arms`:
    arms (seeds - 1) degrees of freedom. Infinite with one seed, which says nothing of the noise."""
    return smallest(sd * sqrt(2 / seeds), arms * (seeds - 1), 1 - level, power)


def detectable_paired(seeds: int, sd: float, *, level: float = LEVEL, power: float = POWER) -> float:
    """The same of runs in pairs of one seed, as an audit compares them: seeds - 1 degrees of freedom.

    A shared seed shares the order of the problems but hardly how far a run gets, so the two runs of a pair are taken to
    differ as any two do.
    """
    return smallest(sd * sqrt(2 / seeds), seeds - 1, 1 - level, power)


def effect_seen(seeds: int, sd: float, alpha: float) -> float:
    """The same of a comparison (`difference`): in pairs from `PAIRS` seeds on, else by Welch's test, which has about
    one degree of freedom fewer than a test that pools the two spreads."""
    welch = max(1, 2 * seeds - 3) if seeds > 1 else 0
    return smallest(sd * sqrt(2 / seeds), seeds - 1 if seeds >= PAIRS else welch, alpha)


def seeds_for(effect: float, sd: float, *, level: float = LEVEL, power: float = POWER) -> int | None:
    """The fewest seeds per arm at which `detectable_paired` is at most |effect|; None where `MOST` do not suffice.

    Raises:
        UserError: for a negative sd or an effect that is not a number.
    """
    if not (isfinite(effect) and isfinite(sd) and sd >= 0):
        raise UserError(f"seeds are counted for a finite effect and spread, not {effect:g} and {sd:g}")
    return _fewest(effect, sd, 1 - level, power, lambda seeds: detectable_paired(seeds, sd, level=level, power=power))


def seeds_that_see(effect: float, sd: float, alpha: float) -> int | None:
    """The fewest seeds per arm at which `effect_seen` is at most |effect|; None where `MOST` do not suffice."""
    return _fewest(effect, sd, alpha, POWER, lambda seeds: effect_seen(seeds, sd, alpha))


def _fewest(effect: float, sd: float, alpha: float, power: float, detected: Callable[[int], float]) -> int | None:
    if effect == 0:
        return None
    known = float(ndtri(1 - alpha / 2) + ndtri(power)) * sd / abs(effect)      # with a spread that is known, and fewer
    return next((k for k in range(max(2, ceil(2 * known**2)), MOST + 1) if detected(k) <= abs(effect)), None)


def shares(p: Sequence[Sequence[float]], alphas: Sequence[float]) -> list[list[float]]:
    """The error allowed to every pair (inner) of every question (outer), so that all calls together keep their sum.

    Within a question Holm's (1979): the i-th smallest of m p-values is held to alpha / (m - i), until one fails; those
    left are held to what the failed one was. A question all of whose pairs are told hands its share on to the next
    (Wiens 2003): what is not needed is not wasted.
    """
    out, carried = [], 0.0
    for own, alpha in zip(p, alphas, strict=True):
        alpha += carried
        held, told = [0.0] * len(own), True
        at = alpha / max(len(own), 1)
        for rank, i in enumerate(sorted(range(len(own)), key=lambda i: own[i])):
            if told:
                at = alpha / (len(own) - rank)
                told = own[i] < at
            held[i] = at
        out.append(held)
        carried = alpha if told else 0.0
    return out
