"""A verdict on a run while it trains: continue, stop, or change n.

The reward at the end of the run's budget is predicted from its evaluations so far. Candidate curves are weighted by
their likelihood under these evaluations. There are three kinds: the curves of the arm's law, if there is one; the same
curves slower or faster and with a smaller or larger gain, which covers most failures of runs; and a grid of rising and
falling curves, for a run that is unlike all of the pilot's. The last two have a tenth of the prior weight each. A run
deviates from its curve by autocorrelated noise, so the prediction is for the run, not for the curve.

    stop      the probability that the run reaches its target, or that the rest of its budget gains at least `worth`, is
              at most 3 %
    change n  more than half of the run's groups are dead, and another n of the equal set has at most half dead; each at
              95 % confidence over all looks (evaluations) together
    continue  otherwise, with the expected gain of the next half of the remaining budget

Frequent looks do not increase the share of wrong stops. The probability p of reaching the target is a martingale: its
expectation after the next evaluation is its value now, and at the end it is 0 or 1. So whenever the rule p <= 0.05
stops a run, E[p at the end | stopped] <= 0.05 (Doob's optional stopping theorem), for any number of looks. This holds
if the candidates and the noise are right. experiments/results/verdicts.json measures it on simulated runs: the wrong
stops are of runs that learn much more slowly than their law and rise late. For these the threshold is lower (`UNSURE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy import ndarray
from scipy.special import stdtr

from isocost.disk.shape import Plain
from isocost.errors import UserError
from isocost.laws.curves import PASS, Curve, attempts_of
from isocost.laws.fit import TAILS
from isocost.laws.law import AUDIT, DRIFT, SELECT, Law
from isocost.stats.forms import gain_share
from isocost.stats.intervals import Interval, mixture_quantiles, prior_noise, spread
from isocost.stats.passk import SOLVED_MEAN, Dead, dead_groups
from isocost.stats.posterior import SHAPE, SHARED, SLOPE, SLOPE_SPREAD, SLOPES, correlation, thinned
from isocost.stats.power import LEVEL

WRONG = 0.05            # largest probability of a wrong verdict, over all looks at a run
UNSURE = 0.03           # a run is stopped at this probability of reaching the target: below WRONG, because predictions
                        # are slightly too low. Of 408 simulated runs stopped at 0.05 one in thirteen reached it
UNLIKE = 0.1            # prior weight of the stretched curves, and of the grid of other curves
SLOWER = np.geomspace(0.5, 16.0, 11)    # times the law's rollouts that a stretched run takes
GAINS = np.linspace(0.3, 1.1, 9)        # times the law's gain that it makes
STRETCHED = 100         # number of the law's draws that are stretched
FALL = 0.3              # lowest asymptote of a candidate, as a distance below its start in reward
LATEST = 4.0            # the latest midpoint of a candidate, in units of the run's end
HEIGHTS, MIDPOINTS = 31, 28
KEPT = 0.7              # autocorrelation of a run's noise over a doubling of C, without a pilot
LEAST = 0.25            # least share of the variance between runs that is not from sampling
DEAD = 0.5              # share of dead groups above which a change of n is considered
WINDOW = 256            # latest groups whose pass rates are used
FEWEST = 32             # least number of groups for a verdict on them
DRAWS = 200             # candidates that an interval is computed from
FAINT = 12.0            # candidates with log weights this far below the best are dropped
NOW, NEXT, END = 0, 1, 2


@dataclass(frozen=True)
class Groups:
    """The latest groups of a run: `right` of `n` rollouts, one count per group, oldest first."""

    n: int
    right: tuple[int, ...]


@dataclass(frozen=True)
class StoppingVerdict(Plain):
    """The verdict on a run, with the numbers behind it.

    `C` rollouts of `end` are spent; `reward` is the latest on the validation split. `target` is a held-out reward at
    the end and `reach` its probability; None without a target. `final` is the predicted reward at the end. `gain` is
    the change of the run's level over the next `stretch` rollouts, `remaining` that over the rest of the budget;
    `worth` is the least that `remaining` must be, `worthy` the probability that it is. `dead` are dead-group shares
    now, the run's n first; `n` is the n to change to. `looks` is the number of evaluations after the first.
    """

    run: str
    word: str               # continue, stop or change n
    why: str
    C: float
    end: float
    looks: int
    reward: float
    target: float | None
    reach: float | None
    final: Interval
    stretch: float
    gain: Interval
    remaining: Interval
    worth: float | None
    worthy: float | None
    dead: tuple[Dead, ...]
    n: int | None
    prior: str              # "law" if the candidates include the law's curves, else "none"
    metric: str = PASS      # what reward, target, gain and worth are means of

    HEAD: ClassVar = {"schema": 1}


def judge(
    run: Curve,
    end: float,
    *,
    law: Law | None = None,
    target: float | None = None,
    worth: float | None = None,
    groups: Groups | None = None,
    others: Sequence[int] = (),
    looks: int = 16,
) -> StoppingVerdict:
    """The verdict on a run that may spend `end` rollouts, from its evaluations so far.

    `law` is used if it has an arm of the run's n. `target` is an audit reward at the end, `worth` the least gain that
    the rest of the budget must have. `groups` are the run's latest, `others` the other n of the equal set (by default
    two and four times the run's), `looks` the number of evaluations of the run, at each of which dead groups are
    tested. The decision is made on `select` rewards. Raises UserError if the end is not after the start, or a target or
    worth is outside [0, 1].
    """
    if not end > 0:
        raise UserError(f"run {run.run}: expected an end above 0 rollouts, got {end:g}")
    for name, value in (("target", target), ("worth", worth)):
        if value is not None and not 0 <= value <= 1:
            raise UserError(f"expected a {name} (held-out reward) from 0 to 1, got {value:g}")
    arm = law if law is not None and run.arm["n"] in law.ns else None
    ahead = _Prediction.of(run, end, arm)
    reach = None if target is None else ahead.chance(ahead.shown(target))
    worthy = None if worth is None else ahead.chance_of_gain(worth)
    dead = _dead(groups, others, looks)
    word, n = _word(ahead, reach, worthy, dead)
    verdict = StoppingVerdict(
        run.run, word, "", ahead.spent, float(end), int((run.C > 0).sum()), float(run.select[-1]), target, reach,
        ahead.final(), ahead.stretch, ahead.gain(NEXT), ahead.gain(END), worth, worthy, dead, n,
        "law" if arm else "none", run.metric,
    )
    return replace(verdict, why=_why(verdict))


def _word(
    ahead: _Prediction, reach: float | None, worthy: float | None, dead: tuple[Dead, ...]
) -> tuple[str, int | None]:
    """(verdict, n to change to)."""
    if ahead.spent >= ahead.end:
        return "continue", None
    if (reach is not None and reach <= UNSURE) or (worthy is not None and worthy <= UNSURE):
        return "stop", None
    n = _better(dead)
    return ("continue", None) if n is None else ("change n", n)


def _why(v: StoppingVerdict) -> str:
    """A verdict's reason in one sentence."""
    if v.end <= v.C:
        return "its budget is spent"
    if v.word == "stop" and v.target is not None and v.reach is not None and v.reach <= UNSURE:
        return f"will miss the target {v.target:.3f}: {v.reach:.1%} to reach it, expected {v.final.value:.3f}"
    if v.word == "stop" and v.worth is not None and v.worthy is not None:
        return f"the rest gains less than {v.worth:g}: {v.worthy:.1%} to gain more, expected {v.remaining.value:+.3f}"
    dead = _dead_text(v.dead, v.n)
    if v.word == "change n":
        return dead
    why = f"{v.gain.value:+.3f} [{v.gain.low:+.3f}, {v.gain.high:+.3f}] expected of the next {v.stretch:,.0f} rollouts"
    if v.target is not None and v.reach is not None:
        why += f"; {v.reach:.0%} to reach {v.target:.3f}"
    return why + (f"; {dead}" if dead else "")


# dead groups ------------------------------------------------------------------------------------------------------


def _dead(groups: Groups | None, others: Sequence[int], looks: int) -> tuple[Dead, ...]:
    """Dead-group shares of the latest groups at the run's n and larger n; bounds err in 5 % of runs over `looks`."""
    if groups is None or len(groups.right) < FEWEST or groups.n < 2:
        return ()
    n, right = groups.n, groups.right[-WINDOW:]
    if sum(right) >= SOLVED_MEAN * n * len(right):      # solved: such groups are dead at any n
        return ()
    larger = sorted({k for k in others if k > n}) if others else [2 * n, 4 * n]
    level = 1 - 2 * WRONG / max(looks, 1)
    return tuple(dead_groups(right, n, [n, *larger], level=level, draws=1000))


def _better(dead: tuple[Dead, ...]) -> int | None:
    """The n to change to, or None: the smallest n with at most half of its groups dead, like a plan without pilot."""
    if not dead or dead[0].low <= DEAD:
        return None
    return next((d.n for d in dead[1:] if d.high <= DEAD), None)


def _dead_text(dead: tuple[Dead, ...], n: int | None) -> str:
    """The dead-group shares as text; empty if at most half may be dead."""
    if not dead or dead[0].low <= DEAD:
        return ""
    now = f"{dead[0].share:.0%} of the latest groups are dead at n = {dead[0].n}"
    for d in dead[1:]:
        if d.n == n:
            return f"{now}; at n = {n} it would be {d.share:.0%} [{d.low:.0%}, {d.high:.0%}]"
    tried = ", ".join(str(d.n) for d in dead[1:])
    return now + (f", and n = {tried} is not known to have at most half dead" if tried else "")


# where a run is going ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Noise:
    """The noise of a run about its curve, in units of `spread`: its sd `size(C)`, autocorrelation `rho`, and `dof`.

    `attempts` is the number that one evaluation is the mean of, with k of best@k counted as one; 0 if it is exact.
    Their sampling noise is independent between evaluations, and is subtracted from the variance between the pilot's
    runs, which includes it.
    """

    C: ndarray
    pooled: ndarray
    rho: float
    dof: float
    attempts: float

    @staticmethod
    def of(law: Law | None, run: Curve) -> _Noise:
        noise = prior_noise(np.ones(1)) if law is None else law.noise
        attempts = 0.0 if run.samples is None else run.problems / 2 * run.samples / attempts_of(run.metric)
        total = (noise.residuals[SELECT] ** 2).sum(0) / noise.dof
        if law is None:
            return _Noise(noise.C, np.sqrt(total), KEPT, noise.dof, attempts)
        sampled = 4 / attempts if attempts else 0.0
        at = thinned(noise.C)
        rho = correlation(noise.C[at], noise.residuals[SELECT][:, at])
        return _Noise(noise.C, np.sqrt(np.maximum(total - sampled, total * LEAST)), rho, noise.dof, attempts)

    def own(self, reward: ndarray) -> ndarray:
        """The independent variance of an evaluation, in reward: `SHAPE`, and sampling, at most r (1 - r) / attempts."""
        return spread(reward) / self.attempts + SHAPE**2 if self.attempts else np.full(np.shape(reward), SHAPE**2)

    def size(self, C: ndarray) -> ndarray:
        return np.interp(np.log(C), np.log(self.C), self.pooled)

    def alike(self, a: ndarray, b: ndarray) -> ndarray:
        """The correlation (A, B) of a run's level between C in a and C in b, without the independent variance."""
        return np.asarray(SHARED * self.rho ** np.abs(np.log2(a)[:, None] - np.log2(b)[None, :]))


@dataclass(frozen=True, eq=False)
class _Prediction:
    """The prediction for a run at three places: now, after the next half of the rest, and at the end.

    N candidates with weights (N,), the level (N, 3) that each predicts given the run's evaluations, its covariance
    (N, 3, 3), and the independent variance (N,) of an evaluation at the end; Student with `dof` degrees of freedom.
    """

    spent: float
    end: float
    stretch: float
    gap: float
    weights: ndarray
    level: ndarray
    covariance: ndarray
    own: ndarray
    dof: float

    @staticmethod
    def of(run: Curve, end: float, law: Law | None) -> _Prediction:
        noise = _Noise.of(law, run)
        base = law.R0[SELECT] if law is not None else float(run.select[0])
        C, y = _apart(run.C[run.C > 0], run.select[run.C > 0])
        spent = float(run.C[-1])
        now = max(spent, min(end, float(C[-1]) if len(C) else end / 1024))
        places = np.array([now, max(now, min(end, (spent + end) / 2)), max(now, end)])
        first = float(C[0]) if len(C) else end / 32
        at = np.concatenate([C, places])
        parts = [(_shapes(at, base, first, end), 0.0, UNLIKE if law is not None else 1.0)]
        gap = 0.0
        if law is not None:
            known, last = law.arm(run.arm["n"]).C[-1], places[-1:]
            parts += [(_equal_prior(law.paths(run.arm["n"], at, SELECT)), known, 1 - 2 * UNLIKE),
                      (_equal_prior(_stretched(law, run.arm["n"], at)), known, UNLIKE)]
            gap = float((law.paths(run.arm["n"], last, AUDIT) - law.paths(run.arm["n"], last, SELECT)).mean())
        scored = [_scored(curves, prior + np.log(share), C, y, noise, known) for (curves, prior), known, share in parts]
        best = max(float(t.max()) for t in scored)
        kept = [_predicted(curves[t > best - FAINT], t[t > best - FAINT], C, y, places, noise, known)
                for ((curves, _), known, _), t in zip(parts, scored, strict=True)]
        scores, level, covariance, own = (np.concatenate(x) for x in zip(*kept, strict=True))
        weights = np.exp(scores - scores.max())
        return _Prediction(spent, float(end), float(places[NEXT] - spent), gap, weights / weights.sum(), level,
                           covariance, own, noise.dof + len(y))

    def shown(self, target: float) -> float:
        """A target of audit reward converted to the validation split, by the law's difference between the splits."""
        return target - self.gap

    def chance(self, target: float) -> float:
        """The probability that the evaluation at the end is at least this."""
        sd = np.sqrt(self.covariance[:, END, END] + self.own)
        return float(self.weights @ stdtr(self.dof, (self.level[:, END] - target) / sd))

    def chance_of_gain(self, worth: float) -> float:
        """The probability that the run's level rises by at least this from now to the end."""
        mean, sd = self._rise(END)
        return float(self.weights @ stdtr(self.dof, (mean - worth) / np.maximum(sd, 1e-9)))

    def final(self) -> Interval:
        """The predicted audit reward at the end."""
        sd = np.sqrt(self.covariance[:, END, END] + self.own)
        value, low, high = self._interval(self.level[:, END], sd)
        value, low, high = (float(np.clip(x + self.gap, 0, 1)) for x in (value, low, high))
        return Interval(value, low, high, LEVEL, "prediction", self.dof)

    def gain(self, place: int) -> Interval:
        """The predicted change of the run's level from now to a place (`NEXT` or `END`)."""
        return Interval(*self._interval(*self._rise(place)), LEVEL, "prediction", self.dof)

    def _rise(self, place: int) -> tuple[ndarray, ndarray]:
        c = self.covariance
        variance = c[:, place, place] + c[:, NOW, NOW] - 2 * c[:, place, NOW]
        return self.level[:, place] - self.level[:, NOW], np.sqrt(np.maximum(variance, 0.0))

    def _interval(self, mean: ndarray, sd: ndarray) -> tuple[float, float, float]:
        """(value, low, high) of the mixture, from candidates at evenly spaced quantiles of their means."""
        ranked = np.argsort(mean, kind="stable")
        reached = np.cumsum(self.weights[ranked])
        at = np.searchsorted(reached, (np.arange(DRAWS) + 0.5) / DRAWS * reached[-1])
        drawn = ranked[np.minimum(at, len(ranked) - 1)]
        low, high = mixture_quantiles(mean[drawn], sd[drawn], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        value = float(self.weights @ mean)
        return value, min(float(low), value), max(float(high), value)


def _apart(C: ndarray, y: ndarray) -> tuple[ndarray, ndarray]:
    """The evaluations (K,) that are used: the latest, and earlier ones at least about half a doubling of C apart."""
    keep: list[int] = []
    for i in range(len(C) - 1, -1, -1):
        if not keep or np.log2(C[keep[-1]] / C[i]) > 0.45:
            keep.append(i)
    return C[keep[::-1]], y[keep[::-1]]


def _equal_prior(curves: ndarray) -> tuple[ndarray, ndarray]:
    """Candidates with a uniform log prior."""
    return curves, np.full(len(curves), -np.log(len(curves)))


def _stretched(law: Law, n: int, C: ndarray) -> ndarray:
    """The law's curves of arm n at C (K,), slower or faster and with smaller or larger gains: (N, K)."""
    base = law.R0[SELECT]
    gains = np.stack([law.paths(n, C / slower, SELECT)[:STRETCHED] - base for slower in SLOWER])
    return np.asarray((base + GAINS[:, None, None, None] * gains[None]).reshape(-1, len(C)))


def _shapes(C: ndarray, base: float, first: float, end: float) -> tuple[ndarray, ndarray]:
    """Curves (N, K) at C (K,) of every shape of the grid, and their log prior (N,); the priors sum to 1."""
    A = np.linspace(max(base - FALL, 0.0), 1.0, HEIGHTS)
    Cmid = np.geomspace(first / 2, LATEST * end, MIDPOINTS)
    shares = np.concatenate([
        gain_share(C, Cmid[:, None, None], SLOPES[None, :, None], tail).reshape(-1, len(C)) for tail in TAILS
    ])
    slope = -0.5 * ((np.log(SLOPES) - np.log(SLOPE)) / SLOPE_SPREAD) ** 2
    slope -= np.log(np.exp(slope).sum())
    prior = np.tile(slope, len(TAILS) * MIDPOINTS) - np.log(len(TAILS) * MIDPOINTS * HEIGHTS)
    curves = base + (A - base)[:, None, None] * shares[None]
    return curves.reshape(-1, len(C)), np.tile(prior, HEIGHTS)


def _beyond(C: ndarray, known: float) -> ndarray:
    """The sd of a law's drift at C (K,), in units of `spread`: 0 up to `known`, the pilot's largest C."""
    return 4 * DRIFT * np.maximum(np.log2(C / known), 0.0) if known > 0 else np.zeros(len(C))


def _covariance(C: ndarray, y: ndarray, noise: _Noise, known: float) -> ndarray:
    """The covariance (K, K) of a run's evaluations y at C (K,) about its curve."""
    here, drift = noise.size(C) * spread(y), _beyond(C, known) * spread(y)
    alike = noise.alike(C, C) + (1 - SHARED) * np.eye(len(C))
    return np.asarray(np.outer(here, here) * alike + np.outer(drift, drift) + np.diag(noise.own(y)))


def _squares(curves: ndarray, y: ndarray, precision: ndarray) -> ndarray:
    away = y - curves[:, : len(y)]
    return np.asarray(np.einsum("nk,nk->n", away @ precision, away))


def _scored(curves: ndarray, prior: ndarray, C: ndarray, y: ndarray, noise: _Noise, known: float) -> ndarray:
    """Log weights (N,) of candidates `curves` (N, K + 3) given y (K,) at C (K,); laws drift beyond `known`."""
    if not len(C):
        return prior
    S = _covariance(C, y, noise, known)
    squares = _squares(curves, y, np.linalg.inv(S))
    return np.asarray(prior - (noise.dof + len(C)) / 2 * np.log1p(squares / noise.dof) - np.linalg.slogdet(S)[1] / 2)


def _predicted(
    curves: ndarray, scores: ndarray, C: ndarray, y: ndarray, places: ndarray, noise: _Noise, known: float
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """(scores, levels (N, 3), covariances (N, 3, 3), own variance (N,)) of candidates at the three places, given y."""
    K = len(C)
    ahead, size, off = spread(curves[:, K:]), noise.size(places), _beyond(places, known)
    V = np.outer(size, size) * noise.alike(places, places) + np.outer(off, off)
    level, scale = curves[:, K:], np.ones(len(curves))
    if K:
        precision = np.linalg.inv(_covariance(C, y, noise, known))
        U = np.outer(size, noise.size(C) * spread(y)) * noise.alike(places, C)
        U += np.outer(off, _beyond(C, known) * spread(y))
        scale = (noise.dof + _squares(curves, y, precision)) / (noise.dof + K)
        level = level + ahead * ((y - curves[:, :K]) @ (precision @ U.T))
        V = V - U @ precision @ U.T
    covariance = ahead[:, :, None] * ahead[:, None, :] * V * scale[:, None, None]
    own = (1 - SHARED) * (size[END] * ahead[:, END]) ** 2 + noise.own(curves[:, -1])
    return scores, level, covariance, own * scale
