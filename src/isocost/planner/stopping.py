"""A verdict on a run while it trains: go on, stop, or change n.

What is asked of a run is where it will stand when its budget is spent, given how it stood so far. Candidate curves are
weighed by the run's own evaluations: those of the arm's law, where there is one; beside them, with a tenth of the
prior weight each, the same curves learnt slower or faster and to a lesser or greater gain, which is how runs mostly go
wrong, and every rise and fall of a grid, for a run may be unlike any that the pilot saw. About its curve a run wanders
as the noise says, each doubling of C keeping a part of it; so what is predicted is the run, not the curve.

    stop      the chance that the run reaches its target, or that what is left of its budget still gains what it must
              be worth, is at most 3 %
    change n  more than half of the run's groups are dead, and another n as good by the law has at most half dead; each
              at 95 % over all looks together
    continue  else, with what the next half of what is left should bring

Looking often does not make stops wrong more often. The chance p of reaching the target is a martingale: what it will
be after the next evaluation is, on average, what it is now, and at the end it is 0 or 1. So whenever the rule
p <= 0.05 stops a run, E[p at the end | stopped] <= 0.05 (Doob's optional stopping), however many looks there were. That
holds as far as the candidates and the noise are right: experiments/results/verdicts.json tells it of simulated runs,
of which those that learn far more slowly than their law, and rise late, are the ones stopped wrongly. For their sake
the rule asks for less than that (`UNSURE`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import stdtr

from isocost.errors import UserError
from isocost.laws.curves import PASS, Curve, attempts_of
from isocost.laws.fit import TAILS
from isocost.laws.law import AUDIT, DRIFT, SELECT, Law
from isocost.stats.forms import risen
from isocost.stats.intervals import Interval, mixture_quantiles, prior_noise, spread
from isocost.stats.passk import SOLVED_MEAN, Dead, dead_groups
from isocost.stats.posterior import SHAPE, SHARED, SLOPE, SLOPE_SPREAD, SLOPES, correlation, thinned
from isocost.stats.power import LEVEL

WRONG = 0.05            # what a verdict may be wrong in, over all looks at a run
UNSURE = 0.03           # the chance of reaching the target at which a run is stopped: less than that, for curves are
                        # foretold a little too low. Of 408 simulated runs stopped at 0.05 one in thirteen got there
UNLIKE = 0.1            # prior weight of a run that is its arm's curve stretched, and of one that is no such curve
SLOWER = np.geomspace(0.5, 16.0, 11)    # times the law's rollouts that a stretched run takes
GAINS = np.linspace(0.3, 1.1, 9)        # times the law's gain that it makes
STRETCHED = 100         # of the law's draws that are stretched
FALL = 0.3              # how far below its start a run may be heading, in reward
LATEST = 4.0            # the latest midpoint of a candidate, in units of the run's end
HEIGHTS, MIDPOINTS = 31, 28
KEPT = 0.7              # of a run's distance from its curve, kept over a doubling, where no pilot told
LEAST = 0.25            # of the variance between runs that is theirs, however much sampling would explain
DEAD = 0.5              # share of dead groups above which most of what is paid for teaches nothing
WINDOW = 256            # latest groups whose pass rates are read
FEWEST = 32             # groups below which nothing is said of them
DRAWS = 200             # candidates that an interval is drawn from
FAINT = 12.0            # log weights this far below the best are left out
NOW, NEXT, END = 0, 1, 2


@dataclass(frozen=True)
class Groups:
    """The latest groups of a run: `right` of `n` rollouts, one count per group, oldest first."""

    n: int
    right: tuple[int, ...]


@dataclass(frozen=True)
class StoppingVerdict:
    """What to do with a run, and what that rests on.

    `C` rollouts are spent of `end`; `reward` is the latest on the validation split. `target` is held-out reward at
    the end and `reach` the chance of it; None without a target. `final` is the reward predicted at the end. `gain` is
    the change of the run's own level over the next `stretch` rollouts, `remaining` that over all that is left; `worth`
    what the latter must be at least, `worthy` the chance that it is. `dead` are dead-group shares now, the run's n
    first; `n` is what to change to. `looks` are evaluations after the first.
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
    prior: str              # what the candidates were: "law" or "none"
    metric: str = PASS      # what reward, target, gain and worth are means of

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"schema": 1, **asdict(self)}


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

    `law` is used where it has an arm of the run's n. `target` is audit reward at the end, `worth` the least that what
    is left must still gain. `groups` are the run's latest, `others` the n that are as good by the law (twice and four
    times the run's where none are named), `looks` the evaluations the run will have: dead groups are tested at each.
    The choice is made on `select` rewards.

    Raises:
        UserError: if the end is not after the start, or a target or worth is outside [0, 1].
    """
    if not end > 0:
        raise UserError(f"run {run.run}: its end must be after its start, not at {end:g} rollouts")
    for name, value in (("target", target), ("worth", worth)):
        if value is not None and not 0 <= value <= 1:
            raise UserError(f"a {name} is held-out reward between 0 and 1, not {value:g}")
    arm = law if law is not None and run.n in law.ns else None
    ahead = _Ahead.of(run, end, arm)
    reach = None if target is None else ahead.chance(ahead.shown(target))
    worthy = None if worth is None else ahead.chance_of_gain(worth)
    dead = _dead(groups, others, looks)
    word, n = _word(ahead, reach, worthy, dead)
    said = StoppingVerdict(
        run.run, word, "", ahead.spent, float(end), int((run.C > 0).sum()), float(run.select[-1]), target, reach,
        ahead.final(), ahead.stretch, ahead.gain(NEXT), ahead.gain(END), worth, worthy, dead, n,
        "law" if arm else "none", run.metric,
    )
    return replace(said, why=_why(said))


def _word(
    ahead: _Ahead, reach: float | None, worthy: float | None, dead: tuple[Dead, ...]
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
        return "its budget is spent: there is nothing left to stop"
    if v.word == "stop" and v.target is not None and v.reach is not None and v.reach <= UNSURE:
        return f"will miss the target {v.target:.3f}: {v.reach:.1%} to reach it, expected {v.final.value:.3f}"
    if v.word == "stop" and v.worth is not None and v.worthy is not None:
        return f"what is left gains less than {v.worth:g}: {v.worthy:.1%} of more, expected {v.remaining.value:+.3f}"
    dead = _told(v.dead, v.n)
    if v.word == "change n":
        return dead
    said = f"{v.gain.value:+.3f} [{v.gain.low:+.3f}, {v.gain.high:+.3f}] expected of the next {v.stretch:.0f} rollouts"
    if v.target is not None and v.reach is not None:
        said += f"; {v.reach:.0%} to reach {v.target:.3f}"
    return said + (f"; {dead}" if dead else "")


# dead groups ------------------------------------------------------------------------------------------------------


def _dead(groups: Groups | None, others: Sequence[int], looks: int) -> tuple[Dead, ...]:
    """Dead-group shares of the latest groups at the run's n, then at larger n, ascending; empty if too few were seen.

    Intervals are two-sided at 1 - 2 x 5 % / looks, so that a bound is wrong in 5 % of runs over all their looks
    (Bonferroni).
    """
    if groups is None or len(groups.right) < FEWEST or groups.n < 2:
        return ()
    n, right = groups.n, groups.right[-WINDOW:]
    if sum(right) >= SOLVED_MEAN * n * len(right):      # solved: what is dead is dead at any n, and little is left
        return ()
    larger = sorted({k for k in others if k > n}) if others else [2 * n, 4 * n]
    level = 1 - 2 * WRONG / max(looks, 1)
    return tuple(dead_groups(right, n, [n, *larger], level=level, draws=1000))


def _better(dead: tuple[Dead, ...]) -> int | None:
    """The n to change to, if one is called for.

    The principle is the one by which n is taken where nothing was compared: the smallest of which half of the groups
    carry signal.
    """
    if not dead or dead[0].low <= DEAD:
        return None
    return next((d.n for d in dead[1:] if d.high <= DEAD), None)


def _told(dead: tuple[Dead, ...], n: int | None) -> str:
    """What the groups say; empty where half of them may be alive."""
    if not dead or dead[0].low <= DEAD:
        return ""
    now = f"{dead[0].share:.0%} of the latest groups are dead at n = {dead[0].n}"
    for d in dead[1:]:
        if d.n == n:
            return f"{now}; at n = {n} it would be {d.share:.0%} [{d.low:.0%}, {d.high:.0%}]"
    tried = ", ".join(str(d.n) for d in dead[1:])
    return now + (f", and n = {tried} is not known to have half of them alive" if tried else "")


# where a run is going ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Noise:
    """How a run wanders about its curve, in units of `spread`: `size(C)`, what a doubling keeps, degrees of freedom.

    `attempts` are those that one evaluation is the mean of, k for best@k counted as one; 0 where it is exact. What they
    scatter an evaluation by is its own, however near the next one is, and is taken off what the pilot's runs differ by,
    of which it was a part.
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
        """The variance in reward that an evaluation has of its own, beside its part of `size`: sampling, and shape.

        r (1 - r) / attempts, the widest it can be for problems of unlike difficulty.
        """
        return spread(reward) / self.attempts + SHAPE**2 if self.attempts else np.full(np.shape(reward), SHAPE**2)

    def size(self, C: ndarray) -> ndarray:
        return np.interp(np.log(C), np.log(self.C), self.pooled)

    def alike(self, a: ndarray, b: ndarray) -> ndarray:
        """The correlation (A, B) of a run's level between C of a and of b, what an evaluation has of its own apart."""
        return np.asarray(SHARED * self.rho ** np.abs(np.log2(a)[:, None] - np.log2(b)[None, :]))


@dataclass(frozen=True, eq=False)
class _Ahead:
    """What is believed of a run at three places ahead: now, after the next half of what is left, at the end.

    N candidates with weights (N,), the level (N, 3) each expects given the run's evaluations, the covariance (N, 3, 3)
    of that, and the variance (N,) that an evaluation at the end has of its own; Student, `dof` degrees of freedom.
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
    def of(run: Curve, end: float, law: Law | None) -> _Ahead:
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
            known, last = law.arm(run.n).C[-1], places[-1:]
            parts += [(_alike(law.paths(run.n, at, SELECT)), known, 1 - 2 * UNLIKE),
                      (_alike(_stretched(law, run.n, at)), known, UNLIKE)]
            gap = float((law.paths(run.n, last, AUDIT) - law.paths(run.n, last, SELECT)).mean())
        told = [_scored(curves, prior + np.log(share), C, y, noise, known) for (curves, prior), known, share in parts]
        best = max(float(t.max()) for t in told)
        kept = [_predicted(curves[t > best - FAINT], t[t > best - FAINT], C, y, places, noise, known)
                for ((curves, _), known, _), t in zip(parts, told, strict=True)]
        scores, level, covariance, own = (np.concatenate(x) for x in zip(*kept, strict=True))
        weights = np.exp(scores - scores.max())
        return _Ahead(spent, float(end), float(places[NEXT] - spent), gap, weights / weights.sum(), level, covariance,
                      own, noise.dof + len(y))

    def shown(self, target: float) -> float:
        """A target of audit reward, on the validation split: the law knows how the two halves differ."""
        return target - self.gap

    def chance(self, target: float) -> float:
        """That the evaluation at the end is at least this."""
        sd = np.sqrt(self.covariance[:, END, END] + self.own)
        return float(self.weights @ stdtr(self.dof, (self.level[:, END] - target) / sd))

    def chance_of_gain(self, worth: float) -> float:
        """That the run's level rises by at least this from now to the end."""
        mean, sd = self._rise(END)
        return float(self.weights @ stdtr(self.dof, (mean - worth) / np.maximum(sd, 1e-9)))

    def final(self) -> Interval:
        """Audit reward at the end."""
        sd = np.sqrt(self.covariance[:, END, END] + self.own)
        value, low, high = self._interval(self.level[:, END], sd)
        value, low, high = (float(np.clip(x + self.gap, 0, 1)) for x in (value, low, high))
        return Interval(value, low, high, LEVEL, "prediction", self.dof)

    def gain(self, place: int) -> Interval:
        """The change of the run's level from now to a place ahead."""
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
    """The evaluations (K,) that count: the latest, and before it those at least half a doubling of C apart."""
    keep: list[int] = []
    for i in range(len(C) - 1, -1, -1):
        if not keep or np.log2(C[keep[-1]] / C[i]) > 0.45:
            keep.append(i)
    return C[keep[::-1]], y[keep[::-1]]


def _alike(curves: ndarray) -> tuple[ndarray, ndarray]:
    """Candidates with a prior that prefers none."""
    return curves, np.full(len(curves), -np.log(len(curves)))


def _stretched(law: Law, n: int, C: ndarray) -> ndarray:
    """The law's curves of arm n at C (K,), slower or faster and with lesser or greater gains: (N, K)."""
    base = law.R0[SELECT]
    gains = np.stack([law.paths(n, C / slower, SELECT)[:STRETCHED] - base for slower in SLOWER])
    return np.asarray((base + GAINS[:, None, None, None] * gains[None]).reshape(-1, len(C)))


def _shapes(C: ndarray, base: float, first: float, end: float) -> tuple[ndarray, ndarray]:
    """Curves (N, K) at C (K,) of every shape of the grid, and their log prior (N,), which sums to 1 as weights.

    Flat in the asymptote, from a fall to 1, and in ln Cmid; log-normal in b; each tail alike. The grid is fixed before
    the run begins, so that looking at it does not change it.
    """
    A = np.linspace(max(base - FALL, 0.0), 1.0, HEIGHTS)
    Cmid = np.geomspace(first / 2, LATEST * end, MIDPOINTS)
    shares = np.concatenate([
        risen(C, Cmid[:, None, None], SLOPES[None, :, None], tail).reshape(-1, len(C)) for tail in TAILS
    ])
    slope = -0.5 * ((np.log(SLOPES) - np.log(SLOPE)) / SLOPE_SPREAD) ** 2
    slope -= np.log(np.exp(slope).sum())
    prior = np.tile(slope, len(TAILS) * MIDPOINTS) - np.log(len(TAILS) * MIDPOINTS * HEIGHTS)
    curves = base + (A - base)[:, None, None] * shares[None]
    return curves.reshape(-1, len(C)), np.tile(prior, HEIGHTS)


def _beyond(C: ndarray, known: float) -> ndarray:
    """How far a law's curve may have drifted at C (K,), in units of the spread: nothing was seen beyond `known`."""
    return 4 * DRIFT * np.maximum(np.log2(C / known), 0.0) if known > 0 else np.zeros(len(C))


def _seen(C: ndarray, y: ndarray, noise: _Noise, known: float) -> ndarray:
    """The covariance (K, K) of a run's evaluations y at C (K,) about its curve."""
    here, drift = noise.size(C) * spread(y), _beyond(C, known) * spread(y)
    alike = noise.alike(C, C) + (1 - SHARED) * np.eye(len(C))
    return np.asarray(np.outer(here, here) * alike + np.outer(drift, drift) + np.diag(noise.own(y)))


def _squares(curves: ndarray, y: ndarray, precision: ndarray) -> ndarray:
    away = y - curves[:, : len(y)]
    return np.asarray(np.einsum("nk,nk->n", away @ precision, away))


def _scored(curves: ndarray, prior: ndarray, C: ndarray, y: ndarray, noise: _Noise, known: float) -> ndarray:
    """Log weights (N,) of candidates `curves` (N, K + 3), of which the first K are at C (K,), given y (K,) there.

    The run's distance from its curve is a multivariate Student, in units of the spread at what was seen. Beyond
    `known` rollouts, where the law saw nothing, its curve may drift with every doubling; 0 allows none.
    """
    if not len(C):
        return prior
    S = _seen(C, y, noise, known)
    squares = _squares(curves, y, np.linalg.inv(S))
    return np.asarray(prior - (noise.dof + len(C)) / 2 * np.log1p(squares / noise.dof) - np.linalg.slogdet(S)[1] / 2)


def _predicted(
    curves: ndarray, scores: ndarray, C: ndarray, y: ndarray, places: ndarray, noise: _Noise, known: float
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """(scores, levels (N, 3), covariances (N, 3, 3), own variance (N,)) of candidates at the three places, given y.

    Ahead the run wanders in units of each candidate's own spread.
    """
    K = len(C)
    ahead, size, off = spread(curves[:, K:]), noise.size(places), _beyond(places, known)
    V = np.outer(size, size) * noise.alike(places, places) + np.outer(off, off)
    level, scale = curves[:, K:], np.ones(len(curves))
    if K:
        precision = np.linalg.inv(_seen(C, y, noise, known))
        U = np.outer(size, noise.size(C) * spread(y)) * noise.alike(places, C)
        U += np.outer(off, _beyond(C, known) * spread(y))
        scale = (noise.dof + _squares(curves, y, precision)) / (noise.dof + K)
        level = level + ahead * ((y - curves[:, :K]) @ (precision @ U.T))
        V = V - U @ precision @ U.T
    covariance = ahead[:, :, None] * ahead[:, None, :] * V * scale[:, None, None]
    own = (1 - SHARED) * (size[END] * ahead[:, END]) ** 2 + noise.own(curves[:, -1])
    return scores, level, covariance, own * scale
