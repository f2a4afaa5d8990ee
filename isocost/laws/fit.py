"""From curves to a law: what each n reaches with how much compute, how surely, and which n to take.

One curve per n is fitted to the mean over seeds of *unfiltered* evaluations; the frontier is the upper envelope of
the fitted curves (a running maximum of noisy evaluations rises with the number of evaluations; it is for display).
`select` rewards choose, `audit` rewards are reported. Everything from the noise to the choice of n is redone in each
draw of a studentised bootstrap over runs. A refusal is a result: it says what would settle it and what that costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.errors import UserError
from isocost.laws.forms import LOG_SIGMOID, Form, fit_many, rise, risen
from isocost.laws.noise import Interval, Kind, Noise, mixture_quantiles, spread
from isocost.laws.table import Curve

LEVEL = 0.9
SELECT, AUDIT = 0, 1
TAILS = (1.0, 0.3, math.inf)        # the sigmoid first; a slower and a faster approach to the asymptote


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the records cannot tell (`reason`), what would settle it, and about how many rollouts that costs."""

    reason: str
    settle: str
    rollouts: float


@dataclass(frozen=True, slots=True)
class Flag:
    """A named caution: edge_of_grid, natural_bound, extrapolation, epochs, identifiability, few_seeds, diverged,
    falling, short, fixed_batch, ties. `text` is one sentence for the reader."""

    name: str
    text: str


@dataclass(frozen=True, eq=False)
class Fit:
    """One arm's curve on one split.

    `parameters` are the sigmoid's R0, A, Cmid, b. `draws` (D, 4) are bootstrap draws of tail, A, Cmid, b; `folds`
    (S, 3) are A, Cmid, b with one run left out at a time, empty with one run.
    """

    parameters: dict[str, float]
    draws: ndarray
    folds: ndarray


@dataclass(frozen=True, eq=False)
class Arm:
    """One n: S runs that count, evaluated at K common points C > 0, and their fitted curves.

    `select` and `audit` are rewards (S, K); `epochs` and `seconds` (K,) are means over runs; `diverged` counts the
    runs left out because they fell below their start. `risen` is False where the mean has not moved enough for its
    curve to be known.
    """

    n: int
    B: int
    lr: float
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    diverged: int
    C: ndarray
    select: ndarray
    audit: ndarray
    epochs: ndarray
    seconds: ndarray
    risen: bool
    fits: tuple[Fit, Fit]


@dataclass(frozen=True, eq=False)
class Band:
    """A curve over compute with its interval: C, value, low, high, all (K,)."""

    C: ndarray
    value: ndarray
    low: ndarray
    high: ndarray
    level: float
    kind: Kind


@dataclass(frozen=True, eq=False)
class Frontier:
    """The upper envelope of fitted curves: at each C (K,) the best n by `select`, its `audit` value and band."""

    C: ndarray
    n: ndarray
    value: ndarray
    low: ndarray
    high: ndarray
    level: float


@dataclass(frozen=True, eq=False)
class Growth:
    """n*(C) where it is identified: log2 n* = L + (U - L) / (1 + exp(-k (ln C - ln C0))), natural logarithm of C.

    `parameters` has an interval for each of L, U, k, C0; `draws` (D, 4) are theirs.
    """

    parameters: dict[str, Interval]
    draws: ndarray

    def at(self, C: float) -> Interval:
        """n* at C, not rounded."""
        values = 2.0 ** LOG_SIGMOID.f(np.array(float(C)), *self.draws.T)
        centre = 2.0 ** LOG_SIGMOID.f(np.array(float(C)), *(p.value for p in self.parameters.values()))
        any_of = next(iter(self.parameters.values()))
        low, high = np.quantile(values, [(1 - any_of.level) / 2, (1 + any_of.level) / 2])
        return Interval(float(centre), float(min(low, centre)), float(max(high, centre)), any_of.level,
                        "confidence", any_of.dof)


@dataclass(frozen=True, eq=False)
class Law:
    """What a pilot says. `data()` and `of()` are its JSON; `predict`, `equal_set`, `frontier` its questions."""

    arms: tuple[Arm, ...]
    R0: tuple[float, float]
    noise: Noise
    inflate: ndarray
    margin: float
    level: float
    seed: int
    tails: tuple[float, ...]
    flags: tuple[Flag, ...] = ()
    refused: Refusal | None = None
    n_star: Growth | Refusal | None = field(default=None)

    @property
    def sd(self) -> float:
        """Run-to-run standard deviation of audit reward at the pilot's largest budget, in reward at R = 1/2."""
        return float(self.noise.sd(np.array(self.noise.C[-1]), np.array(0.5)))

    @property
    def dof(self) -> float:
        """Degrees of freedom of the pooled run-to-run variance."""
        return self.noise.dof

    @property
    def ns(self) -> tuple[int, ...]:
        """The n that have a curve, ascending."""
        return tuple(arm.n for arm in self.arms)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest C of the pilot that is above 0, in rollouts."""
        return min(float(a.C[0]) for a in self.arms), max(float(a.C[-1]) for a in self.arms)

    def arm(self, n: int) -> Arm:
        """The arm of this n. Raises UserError naming the n there are."""
        for arm in self.arms:
            if arm.n == n:
                return arm
        raise UserError(f"the law has no curve for n={n}; it has {', '.join(map(str, self.ns))}")

    def _paths(self, n: int, C: ndarray, split: int) -> ndarray:
        """The bootstrap's curves of one arm at C (K,): (D, K)."""
        tail, A, Cmid, b = self.arm(n).fits[split].draws.T[:, :, None]
        out = np.empty((len(tail), len(C)))
        for value in np.unique(tail):
            at = tail[:, 0] == value
            out[at] = risen(C[None, :], Cmid[at], b[at], float(value))
        return self.R0[split] + (A - self.R0[split]) * out

    def _point(self, n: int, C: ndarray, split: int) -> ndarray:
        """The fitted sigmoid of one arm at C (K,)."""
        p = self.arm(n).fits[split].parameters
        return np.asarray(p["R0"] + (p["A"] - p["R0"]) * risen(C, np.array(p["Cmid"]), np.array(p["b"])))

    def predict(self, n: int, C: float, runs: int = 3) -> tuple[Interval, Interval]:
        """Audit reward of arm n after C rollouts: (confidence of the mean curve, prediction of a mean of `runs`)."""
        confidence, prediction = (self._band(n, _grid(C), kind, runs) for kind in ("confidence", "prediction"))
        return _first(confidence, self.dof), _first(prediction, self.dof)

    def curve(self, n: int, C: ndarray, kind: Kind = "confidence", runs: int = 3) -> Band:
        """The fitted curve of arm n on a grid of C (K,), with its band; for plots."""
        return self._band(n, _grid(C), kind, runs)

    def _band(self, n: int, C: ndarray, kind: Kind, runs: int) -> Band:
        paths = self._paths(n, C, AUDIT)
        sd = np.zeros_like(paths)
        if kind == "prediction":
            sd = self.noise.sd(C, paths) * self.inflate[:, None] / math.sqrt(runs)
        tail = (1 - self.level) / 2
        low, high = np.clip(mixture_quantiles(paths, sd, (tail, 1 - tail)), 0.0, 1.0)
        value = self._point(n, C, AUDIT)
        return Band(C, value, np.minimum(low, value), np.maximum(high, value), self.level, kind)

    def equal_set(self, C: float, margin: float | None = None) -> list[int]:
        """Every n whose reward at C is within the margin of the best, or within what can be told apart.

        Chosen on `select`. The margin is widened, for each n, to the half-width of the interval of its difference
        from the best. An n whose own reward at C is not known to within `KNOWN` is not equal, it is unknown, and
        is left out; see `unknown`.
        """
        margin = self.margin if margin is None else margin
        grid = _grid(C)
        known = [n for n in self.ns if n not in self.unknown(C)] or list(self.ns)
        value = {n: float(self._point(n, grid, SELECT)[0]) for n in known}
        best = max(known, key=lambda n: (value[n], -n))
        paths = {n: self._paths(n, grid, SELECT)[:, 0] for n in known}
        chosen = []
        for n in known:
            low, high = np.quantile(paths[best] - paths[n], [(1 - self.level) / 2, (1 + self.level) / 2])
            if value[best] - value[n] <= max(margin, float(high - low) / 2):
                chosen.append(n)
        return chosen

    def unknown(self, C: float) -> list[int]:
        """The n whose mean reward at C the pilot leaves open by more than `KNOWN` either way."""
        out = []
        for n in self.ns:
            low, high = np.quantile(self._paths(n, _grid(C), SELECT)[:, 0],
                                    [(1 - self.level) / 2, (1 + self.level) / 2])
            if (high - low) / 2 > KNOWN:
                out.append(n)
        return out

    def frontier(self, C: ndarray) -> Frontier:
        """The upper envelope on a grid of C (K,): the n chosen by select, its audit curve, its confidence band."""
        grid = _grid(C)
        which = self._winners(np.stack([self._point(n, grid, SELECT) for n in self.ns]))
        bands = [self.curve(n, grid) for n in self.ns]
        at = np.arange(len(grid))
        value, low, high = (np.stack([getattr(b, k) for b in bands])[which, at] for k in ("value", "low", "high"))
        return Frontier(grid, np.array(self.ns)[which], value, low, high, self.level)

    def _winners(self, values: ndarray) -> ndarray:
        return np.asarray(values.argmax(0))

    def best(self, C: float) -> int:
        """The n with the highest fitted `select` reward at C among those that are known there."""
        grid = _grid(C)
        known = [n for n in self.ns if n not in self.unknown(C)] or list(self.ns)
        return max(known, key=lambda n: (float(self._point(n, grid, SELECT)[0]), -n))

    def fallback(self) -> int:
        """What to take if the law refuses: the n whose mean `select` reward is best at the pilot's largest budget."""
        top = max(float(arm.C[-1]) for arm in self.arms)
        ended = [arm for arm in self.arms if arm.C[-1] >= 0.5 * top]
        return max(ended, key=lambda arm: (float(arm.select[:, -1].mean()), -arm.n)).n


KNOWN = 0.1         # an n whose reward is open by more than this either way is unknown, not equal


def _grid(C: float | ndarray) -> ndarray:
    grid = np.atleast_1d(np.asarray(C, dtype=float))
    if not (np.all(np.isfinite(grid)) and np.all(grid > 0)):
        raise UserError(f"a law is asked at rollouts above 0 and finite, got {C}")
    return grid


def _first(band: Band, dof: float) -> Interval:
    return Interval(float(band.value[0]), float(band.low[0]), float(band.high[0]), band.level, band.kind, dof)


def fit_law(curves: Sequence[Curve], *, margin: float = 0.01, draws: int = 300, seed: int = 0,
            level: float = LEVEL) -> Law:
    """The law of a pilot's curves (rewards in [0, 1], one problems-per-update B, evaluated at common C).

    Probes and runs off the learning-rate rule are not read. `draws` is the number of bootstrap draws. Raises
    UserError for records that cannot mean one thing: several B or learning rates for one n, a run twice, no
    evaluation of the base.
    """
    arms = _arms(_pilot(curves))
    R0 = _base(_pilot(curves))
    noise = _pool(arms, R0)
    rng = generator(seed, Purpose.BOOTSTRAP, draws)
    inflate = np.sqrt(noise.dof / rng.chisquare(noise.dof, size=draws))
    fitted = _fit_arms(arms, R0, noise, inflate, rng)
    return Law(tuple(fitted), R0, noise, inflate, margin, level, seed, TAILS)


@dataclass(frozen=True, eq=False)
class _Raw:
    n: int
    B: int
    lr: float
    runs: list[Curve]
    diverged: int
    C: ndarray
    rewards: ndarray         # (2, S, K)
    epochs: ndarray
    seconds: ndarray


def _pilot(curves: Sequence[Curve]) -> list[Curve]:
    pilot = [c for c in curves if c.multiplier == 1.0 and c.purpose == "pilot"]
    pilot = pilot or [c for c in curves if c.multiplier == 1.0 and c.purpose != "probe"]
    return sorted(pilot, key=lambda c: (c.n, c.seed, c.run))


def _arms(curves: list[Curve]) -> list[_Raw]:
    out = []
    for n in sorted({c.n for c in curves}):
        every = [c for c in curves if c.n == n]
        runs = [c for c in every if not c.diverged]
        if runs:
            out.append(_raw(n, runs, len(every) - len(runs)))
    return out


def _raw(n: int, runs: list[Curve], diverged: int) -> _Raw:
    end = min(float(c.C[-1]) for c in runs)
    longest = max(runs, key=lambda c: len(c.C))
    C = np.unique(longest.C[(longest.C > 0) & (longest.C <= end)])

    def at(values: str) -> ndarray:
        return np.array([_resample(c.C, getattr(c, values), C) for c in runs])

    return _Raw(n, runs[0].B, runs[0].lr, runs, diverged, C, np.stack([at("select"), at("audit")]),
                at("epochs").mean(0), at("seconds").mean(0))


def _resample(C: ndarray, values: ndarray, at: ndarray) -> ndarray:
    """A run's values at the common points, linear in ln C between its own; repeated points count once, averaged."""
    points, index = np.unique(C[C > 0], return_inverse=True)
    mean = np.bincount(index, weights=values[C > 0]) / np.bincount(index)
    return np.interp(np.log(at), np.log(points), mean)


def _base(curves: list[Curve]) -> tuple[float, float]:
    return tuple(float(np.mean([getattr(c, k)[0] for c in curves])) for k in ("select", "audit"))


def _pool(arms: list[_Raw], R0: tuple[float, float]) -> Noise:
    C = np.unique(np.concatenate([arm.C for arm in arms]))
    rows = [[], []]
    dof = 0
    gains = [arm.rewards[SELECT].mean(0)[-1] - R0[SELECT] for arm in arms]
    for arm, gain in zip(arms, gains):
        if len(arm.runs) < 2 or gain < 0.25 * max(gains):
            continue
        dof += len(arm.runs) - 1
        for split in (SELECT, AUDIT):
            mean = arm.rewards[split].mean(0)
            z = (arm.rewards[split] - mean) / spread(mean)
            rows[split] += [np.interp(np.log(C), np.log(arm.C), row) for row in z]
    return Noise(C, np.array(rows), float(dof))


def _fit_arms(arms: list[_Raw], R0: tuple[float, float], noise: Noise, inflate: ndarray, rng) -> list[Arm]:
    D = len(inflate)
    results = []
    for arm in arms:
        shifts = noise.shifts(arm.C, len(arm.runs), rng.standard_normal((D, noise.residuals.shape[1])), inflate)
        per = []
        for split in (SELECT, AUDIT):
            rewards = arm.rewards[split]
            mean = rewards.mean(0)
            y = np.clip(mean + spread(mean) * shifts[split], 0, 1)
            S = len(rewards)
            folds = (S * mean - rewards) / (S - 1) if S > 1 else rewards[:0]
            fits = [fit_many(rise(t), arm.C, np.concatenate([mean[None], folds, y]), LATE(arm.C), {"R0": R0[split]})
                    for t in TAILS]
            per.append(fits)
        results.append(per)
    weights = WEIGH(arms, results, noise)
    out = []
    order = np.repeat(np.arange(len(TAILS)), np.diff(np.round(np.concatenate([[0], np.cumsum(weights)]) * D).astype(int)))
    which = rng.permutation(order)
    for arm, per in zip(arms, results):
        S = len(arm.runs)
        nf = S if S > 1 else 0
        pair = []
        for split in (SELECT, AUDIT):
            v = np.stack([f[0] for f in per[split]])            # T,N,4
            main = dict(zip(("R0", "A", "Cmid", "b"), map(float, v[0, 0])))
            d = v[which, 1 + nf + np.arange(D)]
            pair.append(Fit(main, np.column_stack([np.array(TAILS)[which], d[:, 1:]]), v[0, 1:1 + nf, 1:]))
        out.append(Arm(arm.n, arm.B, arm.lr, tuple(c.run for c in arm.runs), tuple(c.seed for c in arm.runs),
                       arm.diverged, arm.C, arm.rewards[0], arm.rewards[1], arm.epochs, arm.seconds, True, tuple(pair)))
    return out


def equal_weights(arms, results, noise) -> ndarray:
    return np.ones(len(TAILS)) / len(TAILS)


def evidence(arms, results, noise, floor=.05, eff=.5) -> ndarray:
    q = np.zeros(len(TAILS))
    for arm, per in zip(arms, results):
        mean = arm.rewards.mean(1)
        for s in (0, 1):
            sd = noise.sd(arm.C, mean[s], s) / math.sqrt(len(arm.runs))
            sd = np.maximum(sd, np.median(sd))
            for t, tail in enumerate(TAILS):
                p = per[s][t][0][0]
                f = p[0] + (p[1] - p[0]) * risen(arm.C, p[2], p[3], tail)
                q[t] += .5 * eff * (((mean[s] - f) / sd) ** 2).sum()
    w = np.log1p((q - q.min()) / noise.dof) * -.5 * (noise.dof + 1) if False else -.5 * (q - q.min())
    w = np.exp(w)
    w = w / w.sum()
    return (w + floor) / (w + floor).sum()


WEIGH = equal_weights
LATE = lambda C: None
