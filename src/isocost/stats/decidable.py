"""Is a comparison decidable? Ten rules over the runs of a pilot, each a line that names what to change.

    learns     the baseline gains enough for a difference to show (claims "more than")
    headroom   the reward above the baseline is several half-widths (claims "more than")
    margin     the half-width is at most the margin (claims "no worse by", "same within")
    steady     no pilot run fell
    rate       the best learning rate is not at an edge of those tried, and the one used is a step below it
    acts       the arms differ in what they do
    visits     methods that use a problem's history meet each problem often enough
    points     what is read of a run is not its end alone
    level      the level of each interval
    asked      how often the method was asked before

Everything is a function of arrays. Rewards are in [0, 1]. A half-width is that of the planned interval: Student's, of
the mean difference between runs of one seed, with the pilot's spread. The thresholds were checked on the kept records
of `experiments/results/claims` (docs/claims.md has the table).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, inf, sqrt
from types import MappingProxyType

import numpy as np
from numpy import ndarray
from scipy.optimize import brentq
from scipy.special import chdtri, nctdtr, ndtr, stdtrit

from isocost.screen.words import counted
from isocost.stats.power import MOST, PAIRS, POWER, comparison_dof, smallest, standard_errors

GAIN = 0.15             # least gain of the baseline
HALVES = 3.0            # least headroom, in half-widths
FALL, NEAR = 0.2, 0.25  # a run fell: so far below its arm's median, or gained less than this share of what the arm did
VISITS = 3.0            # of each problem, for methods that use its history
EFFECT = 0.05           # the smallest difference in reward that is usually worth a comparison
SURE = 0.95             # of the interval of a spread
MANY = 30               # degrees of freedom from which a noncentral t is nearly normal
_AT, _WEIGHT = np.polynomial.legendre.leggauss(32)      # of the integral over the spreads that a pilot allows


@dataclass(frozen=True)
class Ruling:
    """What a rule found: `passed` is None where it was not asked or is not known. A failure's `text` ends with what to
    change."""

    name: str
    passed: bool | None
    text: str


@dataclass(frozen=True)
class Spread:
    """The standard deviation of a difference between two runs of one seed, in reward, and its degrees of freedom."""

    sd: float
    dof: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the standard deviation, of differences that are normal: of 4 seeds 0.57 to 3.7 times
        it."""
        low, high = (float(chdtri(self.dof, q)) for q in ((1 - SURE) / 2, (1 + SURE) / 2))
        return self.sd * sqrt(self.dof / low), self.sd * sqrt(self.dof / high)

    def half_width(self, seeds: int, alpha: float) -> float:
        """The half-width of a central interval of level 1 - alpha with so many seeds per arm; infinite with one."""
        dof = comparison_dof(seeds)
        return inf if dof < 1 else float(stdtrit(dof, 1 - alpha / 2)) * self.sd / sqrt(seeds)

    def power(self, effect: float, seeds: int, alpha: float) -> float:
        """The probability that an interval of level 1 - alpha shows a true difference `effect`, with the right sign,
        averaged over the spreads that the pilot allows."""
        return _power(effect * sqrt(seeds) / self.sd, self.dof, comparison_dof(seeds), alpha)

    def detectable(self, seeds: int, alpha: float) -> float:
        """The least true difference that is shown with 80 % power, averaged like `power`. Infinite with one seed."""
        return self.sd * _standardized(seeds, self.dof, alpha) / sqrt(seeds) if comparison_dof(seeds) > 0 else inf

    def needed(self, effect: float, alpha: float) -> int | None:
        """The fewest seeds per arm, at least `PAIRS`, that show a true difference `effect` with 80 % power."""
        return _fewest(effect, self.sd, alpha, lambda n: self.detectable(n, alpha))

    def seeds(self, effect: float, alpha: float) -> Seeds:
        """`needed`, with what the ends of the spread's interval would need."""
        low, high = self.interval

        def known(sd: float) -> int | None:
            return _fewest(effect, sd, alpha, lambda n: smallest(sd / sqrt(n), comparison_dof(n), alpha))

        return Seeds(self.needed(effect, alpha), known(low), known(high))

    def to_show(self, half: float, alpha: float) -> int | None:
        """The fewest seeds per arm whose half-width is at most `half`; None if `MOST` are too few."""
        return _fewest(half, self.sd, alpha, lambda n: self.half_width(n, alpha), power=0.5)


@dataclass(frozen=True)
class Seeds:
    """Seeds per arm, at least `PAIRS`, as fewer are not paired: `needed` keeps the promised power averaged over the
    spreads that the pilot allows; `low` and `high` would at the ends of the spread's 95 % interval. None: more than
    `MOST`."""

    needed: int | None
    low: int | None
    high: int | None

    def __str__(self) -> str:
        if self.needed is None:
            return f"more than {MOST:,} seeds"
        high = f"more than {MOST:,}" if self.high is None else f"{self.high:,}"
        return f"{self.needed:,} seeds ({self.low or PAIRS:,} to {high})"


def spread(differences: Sequence[ndarray], floor: float = 0.0) -> Spread | None:
    """The spread of differences between runs of one seed, pooled over samples (S,) with means of their own, such as two
    learning rates. None if no sample has two. `floor` is the smallest standard deviation of a run that is believed."""
    dof = sum(max(len(d) - 1, 0) for d in differences)
    square = sum(float(((d - d.mean()) ** 2).sum()) for d in differences if len(d))
    return Spread(max(sqrt(square / dof), sqrt(2) * floor, 1e-9), dof) if dof else None


# A pilot of few seeds does not know the spread. Its estimate s is sigma sqrt(chi2(dof) / dof), so a comparison planned
# for a difference of k s / sqrt(seeds) meets it at a noncentrality of k sqrt(chi2(dof) / dof). The power is averaged
# over that: with seeds from a known spread of the same value it would be far below what is promised.


@cache
def _ratios(dof: int) -> ndarray:
    """s / sigma (K,) at the K nodes of a Gauss-Legendre rule over its distribution function."""
    return np.asarray(np.sqrt(chdtri(dof, 1 - (_AT + 1) / 2) / dof))


def _power(k: float, dof: int, own: float, alpha: float) -> float:
    """Power at a planned noncentrality k, with `dof` degrees of freedom of the pilot and `own` of the comparison."""
    at, critical = k * _ratios(dof), stdtrit(own, 1 - alpha / 2)
    if own < MANY:
        return float(_WEIGHT @ (1 - np.nan_to_num(nctdtr(own, at, critical)))) / 2      # NaN: a probability too small
    return float(_WEIGHT @ ndtr((at - critical * (1 - 1 / (4 * own))) / sqrt(1 + critical**2 / (2 * own)))) / 2


@cache
def _standardized(seeds: int, dof: int, alpha: float) -> float:
    """The k at which `_power` is the promised power."""
    return float(brentq(lambda k: _power(k, dof, comparison_dof(seeds), alpha) - POWER, 0.0, 1e4, xtol=1e-6))


def _fewest(value: float, sd: float, alpha: float, reached: Callable[[int], float], power: float = POWER) -> int | None:
    """The fewest seeds, from `PAIRS` on, at which `reached`, which falls with seeds, is at most `value`."""
    if value <= 0:
        return None
    known = standard_errors(alpha, power) * sd / value     # a known sd takes fewer: a lower bound
    low = max(PAIRS, ceil(known**2))
    high = low
    while high <= MOST and reached(high) > value:
        low, high = high + 1, 2 * high
    if high > MOST and (low > MOST or reached(MOST) > value):
        return None
    high = min(high, MOST)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if reached(middle) > value else (low, middle)
    return low


# the rules ------------------------------------------------------------------------------------------------------------


def learns(name: str, base: float | None, ends: ndarray) -> Ruling:
    """Whether the baseline's runs, which end at `ends` (S,), gain at least `GAIN` over the reward before training."""
    if base is None:
        return Ruling("learns", None, f"the runs of {name} were not evaluated before training")
    gain = float(np.mean(ends)) - base
    said = f"{name} gains {gain:.2f} over {base:.2f} (at least {GAIN:g})"
    fix = "train longer, or on problems that it learns"
    return Ruling("learns", gain >= GAIN, said if gain >= GAIN else f"{said}: {fix}")


def headroom(name: str, room: float, known: Spread, seeds: int, alpha: float) -> Ruling:
    """Whether the reward above the baseline, `room`, is at least `HALVES` half-widths of the planned interval."""
    half = known.half_width(seeds, alpha)
    passed, ratio = room >= HALVES * half, room / half
    said = (f"{room:.2f} above {name}, {ratio:{',.0f' if ratio >= 10 else '.2g'}} half-widths of {half:.3f} (at least "
            f"{HALVES:g})")
    if passed:
        return Ruling("headroom", True, said)
    more = known.to_show(room / HALVES, alpha) if room > 0.02 else None
    fix = "use harder problems or shorter runs" if more is None else f"use {more:,} seeds, or harder problems"
    return Ruling("headroom", False, f"{said}: {fix}")


def margin(within: float, known: Spread, seeds: int, alpha: float) -> Ruling:
    """Whether the half-width is at most the margin of a claim "no worse by" or "same within"."""
    half = known.half_width(seeds, alpha)
    said = f"half-width {half:.3f}, margin {within:g}"
    if half <= within:
        return Ruling("margin", True, said)
    more = known.to_show(within, alpha)
    fix = f"use {more:,} seeds" if more else f"{MOST:,} seeds are too few"
    return Ruling("margin", False, f"{said}: {fix}, or ask for a margin of {half:.2g}")


def fell(base: float | None, ends: ndarray) -> ndarray:
    """Which runs (S,) fell: `FALL` below the median, or near the base where the arm as a whole learned."""
    middle = float(np.median(ends))
    fallen = ends < middle - FALL
    if base is not None and middle - base >= GAIN:
        fallen |= ends < base + NEAR * (middle - base)
    return np.asarray(fallen)


def steady(arms: Mapping[str, tuple[float | None, ndarray]], lower: str = "a lower learning rate") -> Ruling:
    """Whether no run fell, by arm (reward before training, ends (S,)). `lower` is the remedy."""
    down = {name: ends[fell(base, ends)] for name, (base, ends) in arms.items()}
    runs = sum(len(ends) for _, ends in arms.values())
    if not any(len(x) for x in down.values()):
        return Ruling("steady", True, f"none of {counted(runs, 'pilot run')} ended near the base or {FALL:g} below its "
                      "arm's median")
    said = "; ".join(f"{len(x)} of {counted(len(arms[name][1]), 'run')} of {name} fell to "
                     f"{', '.join(f'{v:.2f}' for v in x)} (median {np.median(arms[name][1]):.2f})"
                     for name, x in down.items() if len(x))
    return Ruling("steady", False, f"{said}: use {lower}")


def rate(name: str, probed: Mapping[float, float], full: Mapping[float, ndarray], used: float) -> Ruling:
    """Whether the best learning rate of an arm is not at an edge of those tried, and the one used is not above it.

    `probed` are mean rewards of short probe runs by rate, empty if there were none; `full` are the rewards (S,) of runs
    at full length by rate. Where there were probes, the lowest full-length rate is at an edge only if it is ahead of
    the next one by more than two standard errors, and the highest only if no probe ran above it.
    """
    rates = sorted({*probed, *full})
    if len(rates) < 2:
        return Ruling("rate", None, f"{name}: only {rates[0]:.2g} was tried, so whether it is at an edge is not known")
    tried = sorted(full)
    means = {x: float(np.mean(full[x])) for x in tried}
    best = max(means, key=lambda x: means[x])
    said = f"{name}: best {best:.2g} of {rates[0]:.2g} to {rates[-1]:.2g}"
    again = f"{said}, {{}} tried {{}}: pilot again around it, --lr {best:.2g}"
    if probed and (edge := _edge(probed)):
        first = max(probed, key=lambda x: probed[x])
        return Ruling("rate", False, f"{name}: best {first:.2g} of {min(probed):.2g} to {max(probed):.2g} probed, the "
                      f"{edge}: pilot again around it, --lr {first:.2g}")
    if best == rates[-1]:
        return Ruling("rate", False, again.format("the highest", "at full length"))
    if best == tried[0] and (best == rates[0] or (len(tried) > 1 and _ahead(full[best], full[tried[1]]))):
        return Ruling("rate", False, again.format("the lowest", "at full length"))
    if used > best * (1 + 1e-9):
        return Ruling("rate", False, f"{said}, below the {used:.2g} that would be used: use {best:.2g} or less")
    return Ruling("rate", True, f"{said}, not at an edge; used: {used:.2g}")


def _edge(rewards: Mapping[float, float]) -> str:
    """"lowest" or "highest" if the best of two rates or more is there, else empty."""
    best = max(rewards, key=lambda x: rewards[x])
    if len(rewards) < 2:
        return ""
    return "lowest" if best == min(rewards) else "highest" if best == max(rewards) else ""


def _ahead(a: ndarray, b: ndarray) -> bool:
    """Whether the mean of a exceeds that of b by more than two standard errors of the difference."""
    if min(len(a), len(b)) < 2:
        return bool(a.mean() > b.mean())
    return bool(a.mean() - b.mean() > 2 * sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b)))


def acts(a: str, b: str, equal: int, pairs: int, counts: Mapping[str, tuple[int, int]] = MappingProxyType({})
         ) -> Ruling:
    """Whether two arms differ: `equal` of `pairs` of runs of one seed have equal rewards; `counts`: groups acted in."""
    if never := next((arm for arm, (acted, _) in counts.items() if not acted), ""):
        return Ruling("acts", False, f"{never} acted in none of {counted(counts[never][1], 'group')}: change its "
                      "settings or the problems, so that it acts")
    if not pairs:
        return Ruling("acts", None, "no two runs have one seed, so it is not known whether they are equal")
    if equal == pairs:
        return Ruling("acts", False, f"{b} equals {a} bit for bit in {equal} of {counted(pairs, 'pair')} of runs: "
                      "change its settings or the problems, so that it acts")
    same = f"{equal} of {counted(pairs, 'pair')} of runs equal" if equal else "no pair of runs is equal bit for bit"
    if counts:
        return Ruling("acts", True, "; ".join(f"{arm} acted in {acted:,} of {counted(groups, 'group')}"
                                              for arm, (acted, groups) in counts.items()) + f"; {same}")
    return Ruling("acts", None, f"{same}; how often the method acted is not counted")


def visits(name: str, times: float | None, needed: bool) -> Ruling:
    """Whether a run meets each problem often enough: `times` in the mean. `needed` of a method that uses history."""
    if times is None:
        return Ruling("visits", None, "the number of problems is not recorded")
    said = f"{times:.2g} of each problem"
    if not needed:
        return Ruling("visits", None, f"{said} (not asked: no method here uses a problem's history; others need "
                      f"{VISITS:g})")
    if times >= VISITS:
        return Ruling("visits", True, f"{said} ({name} uses their history; at least {VISITS:g})")
    return Ruling("visits", False, f"{said} ({name} uses their history; at least {VISITS:g}): use fewer problems or "
                  "longer runs")


def points(read: Sequence[float | str]) -> Ruling:
    """Whether a claim reads its runs at a quarter, a half and the end, or in the mean: `read` are shares, or "mean"."""
    if "mean" in read:
        return Ruling("points", True, "the mean over the run")
    if {0.25, 0.5, 1.0} <= set(read):
        return Ruling("points", True, "a quarter, a half and the end of the run")
    where = ", ".join("the end" if x == 1.0 else f"{x:g} of the run" for x in sorted(set(map(float, read))))
    return Ruling("points", False, f"{where} alone: read 0.25, 0.5 and 1, or the mean")


def planned(known: Spread, seeds: int, alpha: float, effect: float = EFFECT) -> Ruling:
    """What the planned seeds decide, and how many decide `effect`. Fewer than `PAIRS` are a refusal."""
    least = known.detectable(seeds, alpha)
    wanted = known.seeds(effect, alpha)
    said = (f"{counted(seeds, 'seed')} decide {least:.2g} with {POWER:.0%} power; {effect:g} needs {wanted}")
    if seeds < PAIRS:
        return Ruling("seeds", False, f"{said}: fewer than {PAIRS} are not paired, use --seeds {PAIRS} or more")
    return Ruling("seeds", True, said)


def worst(lines: Sequence[Ruling]) -> Ruling:
    """One line for several of one rule: the failures if there are any, else the first that passed, else the first."""
    failed = [x for x in lines if x.passed is False]
    if failed:
        return Ruling(failed[0].name, False, "; ".join(dict.fromkeys(x.text for x in failed)))
    return next((x for x in lines if x.passed), lines[0])


def best(lines: Sequence[Ruling]) -> Ruling:
    """One line for several of one rule of which one has to pass: that one, else one that is not known, else all."""
    return next((x for known in (True, None) for x in lines if x.passed is known), worst(lines))
