"""The posterior over a curve's shape given its runs, on a grid, so that nothing has to converge.

A lower asymptote and a steeper rise fit a short curve almost equally well. Least squares returns one point of that
ridge, and a bootstrap around it stays there. If a pilot stopped before its midpoint, its asymptote is uncertain up to
1. So every (tail, A, Cmid, b) of a grid gets its likelihood under the runs' pooled noise as weight.

All arms have one posterior: from one n to the next A, Cmid and b change little (IsoCompute, arXiv 2603.12151, figures
over n), so an arm with short runs borrows strength from the others. On the grid this is exact: forward filtering from
the smallest n to the largest, then backward sampling, gives joint draws of all curves. Whether n are alike is itself
weighed by the evidence: a second model has steps `APART` times as wide. So is whether arms rise a second time.

The mean over runs does not follow a form exactly, even without noise: before an arm has gained much, its reward moves
with the few problems of the held-out set that are near a change, in all runs alike (`transient`). A smooth form that is
fitted through that early part has the wrong asymptote, with too small an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy import ndarray

from isocost.stats.forms import gain_share
from isocost.stats.second import Seconds, gained, reached_by

ASYMPTOTES, MIDPOINTS = 41, 40
SLOPES = np.geomspace(0.35, 5.0, 13)
SLOPE, SLOPE_SPREAD = 1.2, 0.5      # prior of b, log-normal: published runs lie in 0.8 to 2 (ScaleRL: 1.56 to 2.01)
REACH = 64.0                        # the latest midpoint allowed, in units of the pilot's end
SHARED = 0.95                       # share of a run's variance that neighbouring evaluations have in common
USUAL = 9                           # evaluations of a run that are used; more add hardly any information
SHAPE = 0.004                       # standard deviation of a true curve from the form, in reward
ALL = 0.1                           # prior weight of A = 1 (every problem can be learned), which sets with a verifier
                                    # often reach; a density alone would give this value no weight
STEP_A = 0.025                      # change of A per doubling of n, a standard deviation: n is worth 0.04 (hard) to
                                    # 0.09 (easy) of reward over the whole of IsoCompute's range, six doublings
LATER, STEP_CMID = 0.35, 0.35       # change of ln Cmid: from 0, where only rollouts count, to ln 2, where updates do
STEP_B = 0.2                        # change of ln b
BLUR = 3.0                          # factor on the errors in the first, coarse search over the whole range
STRANGE = 0.05                      # share of steps that are four times as wide
APART = 6.0                         # factor on the steps between n that are not alike
FINER = 3                           # times as many b in their grid, which is wide: without, the posterior mean of an
                                    # arm whose error was 0.002 missed its data by 0.008
TRANSIENT = 0.02                    # standard deviation of what all runs of an arm have in common before it has gained,
                                    # in reward: on the 256 problems of the built-in sums, n=32 first loses 0.017
LINKED = 0.7                        # correlation of that at evaluations a doubling of C apart
TWICE = 0.25                        # prior probability that all arms of a study rise a second time (`stats.second`)
MOST = 0.7                          # greatest weight of that, whatever the evidence
TINY = 1e-300                       # added before a logarithm
LEFT = 0.05                         # least weight of a form, whatever its likelihood: the true form may be another, and
                                    # a study observes only a part of a curve


def correlation(C: ndarray, residuals: ndarray) -> float:
    """The correlation per doubling of C of a run's evaluations, from residuals (I, K) at C (K,); 0.3 to 0.95."""
    if len(C) < 2:
        return 0.3
    before, after = residuals[:, :-1], residuals[:, 1:]
    size = np.sqrt((before**2).sum() * (after**2).sum())
    neighbours = np.clip((before * after).sum() / size, 0.01, 0.99) if size > 0 else 0.99
    return float(np.clip(neighbours ** (1 / np.log2(C[1:] / C[:-1]).mean()), 0.3, 0.95))


@dataclass(frozen=True, eq=False)
class ArmMean:
    """One arm's mean reward (K,) at C (K,), its covariance (K, K) and the degrees of freedom of that."""

    n: int
    C: ndarray
    mean: ndarray
    covariance: ndarray
    dof: float

    def score(self, squares: ndarray) -> ndarray:
        """The log likelihood, up to a constant, of weighted sums of squares (...): Student with `dof`, normal if that
        is infinite."""
        squares = np.maximum(squares, 0.0)
        if np.isinf(self.dof):
            return np.asarray(-squares / 2)
        return np.asarray(-(self.dof + len(self.C)) / 2 * np.log1p(squares / self.dof))

    def second_rises(self, base: float, drawn: ndarray, seconds: Seconds, u: ndarray) -> ndarray:
        """A second rise for each draw (D, 3) of A, Cmid, b, from its posterior given them, by uniforms u (D,): (D, 3),
        as `Seconds.rows`."""
        A, Cmid, b = drawn.T[:, :, None]
        share = seconds.joined(gain_share(self.C, Cmid, b), self.C)                                  # (D, X, K)
        off = self.mean - base - (A - base)[:, None] * share
        score = self.score(((off @ np.linalg.inv(self.covariance)) * off).sum(-1))
        likely = np.exp(score - score.max(1, keepdims=True)) * seconds.allowed(Cmid[:, 0]) + TINY
        return seconds.rows(_pick(likely.T, u))


@dataclass(frozen=True, eq=False)
class Grid:
    """Every (A, Cmid, b) that gets a weight: three axes, the same for all arms of a study."""

    A: ndarray
    Cmid: ndarray
    b: ndarray = field(default_factory=lambda: SLOPES)

    @staticmethod
    def of(seen: Sequence[ArmMean]) -> Grid:
        """A from the lowest asymptote that the noise allows to 1, Cmid from before the first point to `REACH` x the
        end."""
        lowest = min(float(s.mean[-1] - 3 * np.sqrt(s.covariance[-1, -1])) for s in seen)
        Cmid = np.geomspace(min(s.C[0] for s in seen) / 2, REACH * max(s.C[-1] for s in seen), MIDPOINTS)
        return Grid(np.linspace(np.clip(lowest, 0.0, 0.98), 1.0, ASYMPTOTES), Cmid)

    def around(self, draws: ndarray, slopes: int = 1) -> Grid:
        """A grid with as many points around draws (..., 3) of this one, of b `slopes` times as many: two steps beyond
        them on every side."""
        def axis(old: ndarray, values: ndarray, times: int = 1) -> ndarray:
            low, high = np.searchsorted(old, [values.min(), values.max()])
            ends = float(old[max(low - 2, 0)]), float(old[min(high + 2, len(old) - 1)])
            return np.asarray(np.linspace(*ends, times * len(old)))
        A, Cmid = axis(self.A, draws[..., 0]), axis(np.log(self.Cmid), np.log(draws[..., 1]))
        b = axis(np.log(self.b), np.log(draws[..., 2]), slopes)
        return Grid(A, np.exp(Cmid), np.exp(b))

    def extent(self) -> float:
        """The prior mass of this grid, up to a factor that is the same for all grids of a study."""
        ln_b = np.log(self.b)
        b = np.exp(-0.5 * ((ln_b - np.log(SLOPE)) / SLOPE_SPREAD) ** 2).mean() * (ln_b[-1] - ln_b[0])
        return float(self.ends().sum() * np.log(self.Cmid[-1] / self.Cmid[0]) * b)

    def likelihood(self, seen: ArmMean, base: float, tail: float, seconds: Seconds | None = None) -> ndarray:
        """The log likelihood (A, Cmid, b) of one arm, summed over its second rises if there are any."""
        precision = np.linalg.inv(seen.covariance)
        share = gain_share(seen.C, self.Cmid[:, None, None], self.b[None, :, None], tail)        # (Cmid, b, K)
        if seconds is not None:
            share = seconds.joined(share, seen.C)                                           # (Cmid, b, X, K)
        gap, weighted = seen.mean - base, share @ precision
        gain = (self.A - base).reshape(-1, *[1] * (share.ndim - 1))
        squares = gap @ precision @ gap - 2 * gain * (weighted @ gap) + gain**2 * (weighted * share).sum(-1)
        score = seen.score(squares)
        if seconds is None:
            return score
        best = score.max()
        likely = np.exp(score - best) * seconds.allowed(self.Cmid)[:, None]
        return np.asarray(np.log(likely.mean(-1) + TINY) + best)

    def prior(self) -> ndarray:
        """The prior of the first arm: `ends` on A, flat on ln Cmid, log-normal on b: (A, Cmid, b), summing to 1."""
        b = np.exp(-0.5 * ((np.log(self.b) - np.log(SLOPE)) / SLOPE_SPREAD) ** 2)
        out = np.broadcast_to(self.ends()[:, None, None] * b, (len(self.A), len(self.Cmid), len(self.b)))
        return np.asarray(out / out.sum())

    def ends(self) -> ndarray:
        """The prior mass of each asymptote (A,): `ALL` at 1, and Jeffreys' prior for a share, density
        1 / (pi sqrt(A (1 - A))), because A is the share of problems that can be learned.
        """
        middles = (self.A[:-1] + self.A[1:]) / 2
        below = 2 / np.pi * np.arcsin(np.sqrt(np.concatenate([self.A[:1], middles, self.A[-1:]])))
        return np.asarray((1 - ALL) * np.diff(below) + ALL * (self.A == 1.0))

    def steps(self, doublings: float, apart: float = 1.0) -> tuple[ndarray, ndarray, ndarray]:
        """The transition of each parameter to an n `doublings` larger: each row sums to 1. `apart` widens the steps."""
        wide = apart * np.sqrt(doublings)
        return (_step(self.A, 0.0, STEP_A * wide, self.ends()),
                _step(np.log(self.Cmid), LATER * doublings, STEP_CMID * wide),
                _step(np.log(self.b), 0.0, STEP_B * wide))


def _step(x: ndarray, shift: float, sd: float, prior: ndarray | float = 1.0) -> ndarray:
    """The transition (from, to) on one axis: normal, with a share `STRANGE` of steps four times as wide."""
    z = (x[None, :] - x[:, None] - shift) / sd
    out = ((1 - STRANGE) * np.exp(-0.5 * z**2) + STRANGE / 4 * np.exp(-0.5 * (z / 4) ** 2) + 1e-12) * prior
    return np.asarray(out / out.sum(1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Chain:
    """The joint posterior of arms, by n, under one form: `filtered[i]` (A, Cmid, b) is arm i given 0..i."""

    grid: Grid
    steps: list[tuple[ndarray, ndarray, ndarray]]
    filtered: list[ndarray]
    evidence: float

    def draws(self, u: ndarray) -> ndarray:
        """Joint draws (arms, D, 3) of A, Cmid, b from uniforms u (arms, 3, D), the last arm first."""
        arms = len(self.filtered)
        places = np.empty((arms, 3, u.shape[-1]), dtype=int)
        for i in reversed(range(arms)):
            own, count = self.filtered[i], u.shape[-1]
            to_A, to_C, to_b = (np.ones((len(axis), 1)) for axis in (self.grid.A, self.grid.Cmid, self.grid.b))
            a = c = b = np.zeros(count, dtype=int)
            if i + 1 < arms:
                to_A, to_C, to_b = self.steps[i]
                a, c, b = places[i + 1]
            of_b = own @ to_b                                       # (A, Cmid, b')
            of_C = np.matmul(to_C.T, of_b)                          # (A, Cmid', b')
            A = _pick(of_C[:, c, b] * to_A[:, a], u[i, 0])
            Cmid = _pick(of_b[A, :, b].T * to_C[:, c], u[i, 1])
            places[i] = A, Cmid, _pick(own[A, Cmid, :].T * to_b[:, b], u[i, 2])
        return np.stack([self.grid.A[places[:, 0]], self.grid.Cmid[places[:, 1]], self.grid.b[places[:, 2]]], -1)


def _pick(weights: ndarray, u: ndarray) -> ndarray:
    """For each column of weights (X, D) the index at which its cumulative sum passes u (D,) of the total."""
    reached = np.cumsum(weights, axis=0)
    return np.minimum((reached < u * reached[-1]).sum(0), len(weights) - 1)


def chain(ns: Sequence[int], scores: Sequence[ndarray], grid: Grid, apart: float = 1.0) -> Chain:
    """The posterior of every arm given all arms, under one form, from their log likelihoods (A, Cmid, b): exact."""
    ahead, evidence = grid.prior(), 0.0
    filtered: list[ndarray] = []
    steps = [grid.steps(float(np.log2(b / a)), apart) for a, b in pairwise(ns)]
    for i, score in enumerate(scores):
        if i:
            to_A, to_C, to_b = steps[i - 1]
            ahead = (to_A.T @ filtered[-1].reshape(len(grid.A), -1)).reshape(filtered[-1].shape)
            ahead = np.matmul(to_C.T, ahead) @ to_b
        own = ahead * np.exp(score - score.max())
        evidence += float(np.log(own.sum()) + score.max())
        filtered.append(own / own.sum())
    return Chain(grid, steps, filtered, evidence)


def joint(seen: Sequence[ArmMean], base: float, tail: float, u: ndarray, aparts: Sequence[float] = (1.0,),
          seconds: Seconds | None = None) -> list[Chain]:
    """The posterior of every arm given all arms, under one form, on a grid that is fine where the posterior is.

    One chain for each factor of `aparts` on the steps between n. A first pass covers the whole range, with errors
    `BLUR` times as large, so that no ridge falls between cells. The draws from it, by uniforms u (arms, 3, D), define
    the fine grid. The evidence is then rescaled to the whole range, which is the same for every form. With `seconds`
    every arm rises a second time, each in its own way; A is then the asymptote of both rises.
    """
    whole, ns = Grid.of(seen), [arm.n for arm in seen]
    blurred = [whole.likelihood(replace(arm, covariance=BLUR**2 * arm.covariance), base, tail, seconds)
               for arm in seen]
    out = []
    for apart in aparts:
        close = whole.around(chain(ns, blurred, whole, apart).draws(u), 1 if apart == 1 or seconds else FINER)
        fine = chain(ns, [close.likelihood(arm, base, tail, seconds) for arm in seen], close, apart)
        out.append(replace(fine, evidence=fine.evidence + np.log(close.extent() / whole.extent())))
    return out


def form_weights(evidence: ndarray, prior: ndarray) -> ndarray:
    """The weight of each model (kinships, forms) from its log evidence over all arms; each form keeps about `LEFT`."""
    own = np.exp(evidence - evidence.max(0)) * prior[:, None]
    form = own.sum(0) * np.exp(evidence.max(0) - evidence.max())
    floored = form / form.sum() + LEFT
    return np.asarray(own / own.sum(0) * floored / floored.sum())


def second_weight(evidence: ndarray, twice: ndarray, prior: ndarray) -> ndarray:
    """The weights (kinships,) of arms that rise a second time, from log evidence; what is left of 1 is one rise."""
    one = np.logaddexp.reduce((evidence + np.log(prior)[:, None]).ravel()) - np.log(evidence.shape[1])
    two = np.exp(np.minimum(twice + np.log(prior) - one, 600.0)) * TWICE / (1 - TWICE)
    total = two.sum()
    return np.asarray(two / (1 + total) if total <= MOST / (1 - MOST) else MOST * two / total)


def dearer(drawn: ndarray, second: ndarray, tails: Sequence[float], base: float, C: float, most: float) -> ndarray:
    """ln of the factor on C, at most `most`, that each arm needs for the reward of the best at C: (arms, D)."""
    A = drawn[..., 1]
    reward = base + (A - base) * gained(np.array(C), drawn, second, tails)
    need = reached_by((reward.max(0) - base) / np.maximum(A - base, 1e-9), drawn, second, tails)
    behind = reward < reward.max(0) - 1e-9      # at its asymptote to the last digit, even the best arm would need inf
    return np.asarray(np.where(behind, np.log(np.clip(need / C, 1.0, most)), 0.0))


def thinned(C: ndarray) -> ndarray:
    """Indices of at most `USUAL` of the evaluation points C (K,), evenly spaced in ln C: neighbours are correlated."""
    wanted = np.linspace(np.log(C[0]), np.log(C[-1]), USUAL)
    nearest = np.abs(np.log(C)[None, :] - wanted[:, None]).argmin(1)
    return np.arange(len(C)) if len(C) <= USUAL else np.unique(nearest)


def covariance(C: ndarray, sd: ndarray, rho: float) -> ndarray:
    """The covariance (K, K) of a mean curve with standard errors sd (K,) at C (K,): correlation rho^doublings."""
    apart = np.abs(np.log2(C)[:, None] - np.log2(C)[None, :])
    shared = SHARED * rho**apart + (1 - SHARED) * np.eye(len(C))
    return np.asarray(np.outer(sd, sd) * shared + SHAPE**2 * np.eye(len(C)))


def transient(C: ndarray, mean: ndarray, base: float) -> ndarray:
    """The covariance (K, K) that is added for what all runs of an arm have in common before it has gained.

    With g the share of its gain that the arm's mean (K,) at C (K,) has made, from 0 at the base to 1 at its last point,
    the standard deviation is `TRANSIENT` (1 - g)^2: it ends where the gain does. 0 <= g <= 1; g is 0 in an arm that has
    not gained.
    """
    gain = mean[-1] - base
    share = np.clip((mean - base) / gain, 0.0, 1.0) if gain > 0 else np.zeros(len(mean))
    sd = TRANSIENT * (1 - share) ** 2
    apart = np.abs(np.log2(C)[:, None] - np.log2(C)[None, :])
    return np.asarray(np.outer(sd, sd) * LINKED**apart)
