"""What a pilot says: a curve per n with its doubt, and the questions a plan asks of it.

A curve's value is the mean over posterior draws, and the draws are over shapes *and* over forms: the sigmoid, a slower
and a faster approach to the asymptote (`forms.risen`), each weighted by how well it fits the pilot. Reward at
several times the pilot's compute depends on the form more than on the noise, so an interval from the sigmoid alone
is far too narrow when the truth is another curve. For shapes outside all of these a stated drift is added for every
doubling beyond the pilot (`DRIFT`), and bands lean upward there (`BELOW`), twice as far where the last evaluations bend
up against every form (`Law.bend`). `records` of simulated studies hold what this buys in coverage and width.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.shape import OPEN, AtLeast, Share
from isocost.stats.forms import LOG_SIGMOID, risen, steepness
from isocost.stats.intervals import Interval, Kind, Noise, mixture_quantiles, spread
from isocost.stats.posterior import SHAPE, dearer, thinned

SELECT, AUDIT = 0, 1
KNOWN = 0.1         # an n whose mean reward is open by more than this either way is unknown, not equal
DRIFT = 0.004       # allowed per doubling beyond the pilot for shapes outside the forms: a standard deviation of
                    # reward at R = 1/2, less near 0 and 1
BELOW = 0.65        # of what draws lie below their middle, how much counts two doublings beyond the pilot and further:
                    # curves that stop right after what was seen keep a weight there that truths do not bear out. Of
                    # simulated studies of the fitted forms 1 outcome in 160 fell below a 5 % quantile, and 1 in 55
                    # above a 95 % one; real runs went on rising, too
BENT = 0.8          # bend, in standard errors, from which on a second rise may have begun
ABOVE = 2.0         # how many times what draws lie above their middle counts then, two doublings beyond and further
PARAMETERS = ("A", "Cmid", "b")     # of a curve, as `Fit.draws` has them after the form's place
FINEST = 2.0**0.125     # n* is read between n a doubling apart: nothing finer than an eighth of that is claimed
DEAREST = 4.0       # rollouts beyond this many times C are as bad as never: nobody would pay them
RISEN = 3.0         # standard errors of its gain from which on an arm has improved measurably
EXTRAPOLATION = 8   # times the pilot's largest run: the longest run that a plan may prescribe
DECADE = 10.0       # IsoCompute reads its laws within one decade of extrapolation (arXiv 2603.12151)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the records do not identify (`reason`), what would resolve it, and about how many rollouts that costs.

    `option` is that of `isocost pilot` which adds it to the pilot, where it is an addition.
    """

    reason: str
    settle: str
    rollouts: float
    option: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """A named caution, `text` one sentence for the reader.

    Names: edge_of_grid, natural_bound, extrapolation, epochs, identifiability, few_seeds, diverged, falling, misfit,
    bent, short, cut, fixed_batch, metric, overfitting.
    """

    name: str
    text: str


@dataclass(frozen=True, eq=False)
class Fit:
    """One arm's curve on one split: F forms, D draws, S folds.

    `parameters` are the sigmoid's R0, A, Cmid, b (ScaleRL's letters). `points` (F, 3) are A, Cmid, b of each form;
    `draws` (D, 4) posterior draws of the form's place in `Law.tails`, A, Cmid, b; `folds` (S, F, 3) the points with
    one run left out at a time, empty where an arm has one run.
    """

    parameters: dict[str, float]
    points: ndarray
    draws: ndarray
    folds: ndarray


@dataclass(frozen=True, eq=False)
class FittedArm:
    """One n: S runs that count, evaluated at K common points C > 0, and their fitted curves.

    `select` and `audit` are rewards (S, K); `epochs` and `seconds` (K,) are means over runs, NaN where unrecorded;
    `diverged` counts the runs left out because they diverged (NaN, or below their start). `moved` is False where the
    mean has not risen enough for the arm's curve to be known. `fits` are (select, audit).
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
    moved: bool
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
    """The upper envelope of fitted curves: at each C (K,) the best n by `select`, its `audit` value and band.

    The value is corrected for the winner's luck: runs that chose are not the runs that are read (`Law.frontier`).
    """

    C: ndarray
    n: ndarray
    value: ndarray
    low: ndarray
    high: ndarray
    level: float


@dataclass(frozen=True, eq=False)
class Growth:
    """n*(C) where it is identified: log2 n* = L + (U - L) / (1 + exp(-k (ln C - ln C0))), natural logarithm of C.

    `parameters` has an interval for each of L, U, k, C0; `draws` (D, 4) are theirs. The form is IsoCompute's
    (arXiv 2603.12151); n* saturates at 2^U.
    """

    parameters: dict[str, Interval]
    draws: ndarray

    def at(self, C: float) -> Interval:
        """n* at C, not rounded, with its confidence interval."""
        own = list(self.parameters.values())
        values = 2.0 ** LOG_SIGMOID.f(np.array(float(C)), *self.draws.T)
        centre = float(2.0 ** LOG_SIGMOID.f(np.array(float(C)), *(np.array(p.value) for p in own)))
        low, high = (float(q) for q in np.quantile(values, _tails(own[0].level), method="weibull"))
        return Interval(centre, min(low, centre) / FINEST, max(high, centre) * FINEST, own[0].level, "confidence",
                        own[0].dof)


class Predicted(NamedTuple):
    """Held-out reward on the test split at one C: the mean curve's confidence interval, and the prediction interval of
    the mean of new runs."""

    confidence: Interval
    prediction: Interval


@dataclass(frozen=True, eq=False)
class Law:
    """The fitted pilot. `predict`, `curve`, `equal_set`, `best`, `frontier`, `refusal` are its questions.

    `R0` is the base's (select, audit) reward; `tails` the forms (1 is the sigmoid) and `weights` their shares of the
    draws; `inflate` (D,) the draws' sqrt(dof / chi-squared). `refused` says that no prediction should be trusted:
    take `fallback()` then. `data()` and `Law.of` are its JSON.
    """

    arms: tuple[FittedArm, ...]
    R0: tuple[float, float]
    noise: Noise
    inflate: ndarray
    tails: tuple[Annotated[float, OPEN, AtLeast(1e-3)], ...]
    weights: tuple[float, ...]
    margin: float
    level: Share
    seed: int
    flags: tuple[Flag, ...] = ()
    refused: Refusal | None = None
    n_star: Growth | Refusal | None = None

    @property
    def ns(self) -> tuple[int, ...]:
        """The n that have a curve, ascending."""
        return tuple(arm.n for arm in self.arms)

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest C > 0 that the pilot's curves were fitted at, in rollouts."""
        if not self.arms:
            return math.nan, math.nan
        return min(float(a.C[0]) for a in self.arms), max(float(a.C[-1]) for a in self.arms)

    @property
    def sd(self) -> float:
        """Run-to-run standard deviation of audit reward at the pilot's largest C, for an arm at reward 1/2."""
        return float(self.noise.sd(self.noise.C[-1:], np.array([0.5]))[0])

    @property
    def dof(self) -> float:
        """Degrees of freedom of the pooled run-to-run variance."""
        return self.noise.dof

    @property
    def measured(self) -> bool:
        """Whether the run-to-run variance was measured: some n has two runs. Otherwise it is assumed."""
        return any(len(arm.runs) > 1 for arm in self.arms)

    @property
    def how_runs_differ(self) -> str:
        """What is known of the run-to-run standard deviation, in words: how large, and measured on what or assumed."""
        known = f"run-to-run sd {self.sd:.3f} at reward 1/2"
        if self.measured:
            return f"{known}, pooled over arms ({self.dof:g} degrees of freedom)"
        return f"{known}: assumed, not measured, because no n has two runs"

    def arm(self, n: int) -> FittedArm:
        """The arm of this n. Raises UserError naming the n there are."""
        for arm in self.arms:
            if arm.n == n:
                return arm
        raise UserError(f"the law has no curve for n={n}; it has {', '.join(map(str, self.ns)) or 'none'}")

    def gain(self, n: int) -> tuple[float, float]:
        """(rise of an arm's mean `select` reward from the base to its last evaluation, standard error of it)."""
        arm = self.arm(n)
        mean = arm.select[:, -1].mean()
        sd = self.noise.sd(arm.C[-1:], np.array([mean]), SELECT)[0]
        return float(mean - self.R0[SELECT]), float(sd / math.sqrt(len(arm.runs)))

    @property
    def flat(self) -> bool:
        """Whether even the best arm rose by less than `RISEN` standard errors: which n is ahead is then chance."""
        if not self.arms:
            return False
        gain, error = self.gain(self.fallback())
        return gain < RISEN * error

    def predict(self, n: int, C: float, runs: int = 3) -> Predicted:
        """Reward on the test split of arm n after C rollouts: of the mean curve, and of the mean of `runs` new runs."""
        confidence, prediction = (self.curve(n, C, kind, runs) for kind in ("confidence", "prediction"))
        return Predicted(_first(confidence, self.dof), _first(prediction, self.dof))

    def curve(self, n: int, C: float | ndarray, kind: Kind = "confidence", runs: int = 3) -> Band:
        """The curve of arm n at C (K,) with its band; `runs` counts only for a prediction. Raises UserError."""
        grid = _grid(C)
        if runs < 1:
            raise UserError(f"a prediction is of the mean of 1 run or more, got {runs}")
        paths = self.paths(n, grid, AUDIT)
        value, far = paths.mean(0), self._doublings(n, grid)
        variance = (DRIFT * 4 * spread(paths) * far) ** 2
        paths = self._leaning(paths, far)
        if kind == "prediction":
            variance = variance + (self.noise.sd(grid, paths) * self.inflate[:, None]) ** 2 / runs
        low, high = np.clip(mixture_quantiles(paths, np.sqrt(variance), _tails(self.level)), 0.0, 1.0)
        return Band(grid, value, np.minimum(low, value), np.maximum(high, value), self.level, kind)

    def paths(self, n: int, C: ndarray, split: int = AUDIT) -> ndarray:
        """The posterior's mean curves of one arm at C (K,): (D, K). Draw d of every arm stands for the same luck."""
        which, A, Cmid, b = self.arm(n).fits[split].draws.T[:, :, None]
        share = np.empty((len(which), len(C)))
        for place, tail in enumerate(self.tails):
            at = which[:, 0] == place
            share[at] = risen(C[None, :], Cmid[at], b[at], tail)
        return np.asarray(self.R0[split] + (A - self.R0[split]) * share)

    def parameter(self, n: int, name: str) -> Interval:
        """The confidence interval of one parameter of arm n's mean curve on audit: A, Cmid (rollouts) or b.

        Over the draws of every form: Cmid is where half of the gain is made, b the exponent of the sigmoid that is as
        steep there (`forms.steepness`), so that both mean one thing whatever the form. Raises UserError for another
        name.
        """
        which, *columns = self.arm(n).fits[AUDIT].draws.T
        if name not in PARAMETERS:
            raise UserError(f"a curve has the parameters {', '.join(PARAMETERS)}, not {name!r}")
        values = columns[PARAMETERS.index(name)]
        if name == "A":
            values = self._leaning(values[:, None], np.array([np.inf]))[:, 0]
        if name == "b":
            values = values * np.array([steepness(1.0, tail) for tail in self.tails])[which.astype(int)]
        low, middle, high = np.quantile(values, [_tails(self.level)[0], 0.5, _tails(self.level)[1]], method="weibull")
        return Interval(float(middle), float(low), float(high), self.level, "confidence", self.dof)

    @cached_property
    def bend(self) -> float:
        """How far the last evaluations bend upward against the fitted curves, in standard errors, the mean over arms.

        Residuals r of the arms' means at the points that count: r(last) - 2 r(two before) + r(four before). Curves of
        the forms here level off, so runs that begin to rise again leave it above 0; 0 where no arm has five points.
        """
        bends = []
        for arm in self.arms:
            at = thinned(arm.C)
            fitted = self.paths(arm.n, arm.C[at], AUDIT).mean(0)
            error = np.hypot(self.noise.sd(arm.C[at], fitted, AUDIT) / math.sqrt(len(arm.runs)), SHAPE)
            left = (arm.audit.mean(0)[at] - fitted) / error
            if len(at) >= 5:
                bends.append(float(left[-1] - 2 * left[-3] + left[-5]))
        return float(np.mean(bends)) if bends else 0.0

    def _leaning(self, values: ndarray, doublings: ndarray) -> ndarray:
        """Draws (D, K) as bands beyond the pilot count them: less below their middle, more above it if runs bent up."""
        far = np.minimum(doublings / 2, 1.0)
        middle = np.median(values, axis=0)
        above = 1 + (ABOVE - 1) * far * (self.bend > BENT)
        off = (values - middle) * np.where(values < middle, 1 - (1 - BELOW) * far, above)
        return np.asarray(np.minimum(middle + off, 1.0))

    def _doublings(self, n: int, C: ndarray) -> ndarray:
        return np.maximum(np.log2(C / self.arm(n).C[-1]), 0.0)

    def _known(self, C: ndarray) -> ndarray:
        """Which arms are known at C: (arms, K).

        Open by at most `KNOWN`, or at most twice what the surest is; or however open, surely above the best of those:
        by how much does not matter then. Beyond the pilot an arm that has not moved is unknown, whatever its fit says.
        """
        paths = np.array([self.paths(n, C, SELECT) for n in self.ns])                   # (arms, D, K)
        low, high = np.quantile(paths, _tails(self.level), axis=1, method="weibull")
        halves = (high - low) / 2
        seen = np.array([arm.moved for arm in self.arms])[:, None] | (self.range[1] >= C)
        tight = (halves <= np.maximum(KNOWN, 2 * halves.min(0))) & (seen | ~seen.any(0))
        best = np.where(tight, paths.mean(1), -1.0).argmax(0)
        above = (paths > paths[best, :, np.arange(len(C))].T).mean(1) >= _tails(self.level)[1]
        return tight | (above & seen & tight.any(0))

    def _chosen(self, C: ndarray) -> ndarray:
        """Place of the arm with the highest select curve among those known, at C (K,); ties to the smaller n."""
        values = np.array([self.paths(n, C, SELECT).mean(0) for n in self.ns])
        return np.where(self._known(C), values, -1.0).argmax(0)

    def unknown(self, C: float) -> list[int]:
        """The n whose reward at C the pilot leaves open: neither equal to the best nor worse, but not known."""
        known = self._known(_grid(C))[:, 0]
        return [n for n, is_known in zip(self.ns, known, strict=True) if not is_known]

    def best(self, C: float) -> int:
        """The n with the highest fitted `select` reward at C among those that are known there."""
        self._some()
        return self.ns[int(self._chosen(_grid(C))[0])]

    def ns_at(self, C: float | ndarray) -> ndarray:
        """The n that `select` chooses at each C (K,)."""
        self._some()
        return np.array(self.ns)[self._chosen(_grid(C))]

    def equal_set(self, C: float, margin: float | None = None) -> list[int]:
        """Every n, ascending, whose reward at C is within the margin of the best, or cannot be told from it.

        Chosen on `select`. For each n the margin is widened to one standard error of its difference from the best, in
        which what the two share (the form) cancels: the one-standard-error rule of Breiman et al. (1984), made for
        taking the cheapest of what is about as good. A whole interval would let in n that are expected to lose by
        half of its width. An n that is not known there is left out; see `unknown`.
        """
        equal = self.equal(_grid(C), self.margin if margin is None else margin)[:, 0]
        return [n for n, is_equal in zip(self.ns, equal, strict=True) if is_equal]

    def equal(self, C: ndarray, margin: float) -> ndarray:
        """Which n are in the equal set at each C (K,): (arms, K) of bool."""
        self._some()
        paths = np.array([self.paths(n, C, SELECT) for n in self.ns])                   # (arms, D, K)
        gaps = paths[self._chosen(C), :, np.arange(len(C))].T[None] - paths
        return np.asarray(self._known(C) & (gaps.mean(1) <= np.maximum(margin, gaps.std(1))))

    def dearer(self, C: float) -> dict[int, float]:
        """For each n, how many times C it needs to reach, on select, what the best n has at C: 1 or more.

        The geometric mean over draws, each with its own best n and at most `DEAREST`. Where curves are flat a small
        loss of reward is a large one of compute; where they are steep it is not. Unlike the difference in reward this
        weighs both, and it can be set against what a rollout of each n costs.
        """
        self._some()
        drawn = np.array([arm.fits[SELECT].draws for arm in self.arms])
        more = dearer(drawn, self.tails, self.R0[SELECT], float(_grid(C)[0]), DEAREST)
        return {n: float(np.exp(log.mean())) for n, log in zip(self.ns, more, strict=True)}

    def frontier(self, C: float | ndarray) -> Frontier:
        """The upper envelope at C (K,): the n that select chooses, the audit value of that choice, its band.

        The runs that make an arm win would flatter it, so the choice is made with one run of each arm left out and
        read on the run left out, in turn; what the curve exceeds that by is taken off (a jackknife over runs, where
        every arm has two or more). Beyond the pilot's end, where nothing was seen that could flatter, the end's luck
        is taken off.
        """
        self._some()
        grid = _grid(C)
        which, at = self._chosen(grid), np.arange(len(grid))
        bands = [self.curve(n, grid) for n in self.ns]
        value, low, high = (np.stack([getattr(b, k) for b in bands])[which, at] for k in ("value", "low", "high"))
        luck = self._luck(np.minimum(grid, self.range[1]))
        value, low, high = (np.clip(x - luck, 0.0, 1.0) for x in (value, low, high))
        return Frontier(grid, np.array(self.ns)[which], value, low, high, self.level)

    def _luck(self, C: ndarray) -> ndarray:
        """What the audit curve of the arm chosen at C (K,) exceeds its value on runs that did not choose by: (K,)."""
        folds = min(len(arm.fits[SELECT].folds) for arm in self.arms)
        if not folds:
            return np.zeros(len(C))
        select, audit = (np.array([self.paths(n, C, split).mean(0) for n in self.ns]) for split in (SELECT, AUDIT))
        away = np.array([[self._left_out(arm, C, split, folds) for arm in self.arms] for split in (SELECT, AUDIT)])
        away = away * np.array([self._followed(C, select, SELECT), self._followed(C, audit, AUDIT)])[:, None, None]
        chosen = np.where(self._known(C)[:, None], select[:, None] - away[SELECT], -1.0).argmax(0)     # (folds, K)
        sizes = np.array([len(arm.fits[AUDIT].folds) for arm in self.arms])[:, None, None]
        on_fold = audit[:, None] + (sizes - 1) * away[AUDIT]
        elsewhere = np.take_along_axis(on_fold, chosen[None], 0)[0].mean(0)
        return np.asarray(audit[self._chosen(C), np.arange(len(C))] - elsewhere)

    def _followed(self, C: ndarray, values: ndarray, split: int) -> ndarray:
        """How far apart curves (arms, K) are at C (K,), as a share of how far each by itself would be; at most 1.

        Weighed together, arms are drawn to each other, and the luck of one arm's runs with them.
        """
        alone = np.array([self._mixed(arm.fits[split].points, C, split) for arm in self.arms])
        return np.asarray(np.minimum(values.std(0) / np.maximum(alone.std(0), 1e-9), 1.0))

    def _left_out(self, arm: FittedArm, C: ndarray, split: int, folds: int) -> ndarray:
        """How much each of the first runs lifts the arm's curve, centred: (folds, K)."""
        fit = arm.fits[split]
        without = np.array([self._mixed(points, C, split) for points in fit.folds])
        return np.asarray((without.mean(0) - without)[:folds])

    def _mixed(self, points: ndarray, C: ndarray, split: int) -> ndarray:
        """The weighted mean over forms of the curves with parameters (F, 3), at C: (K,)."""
        gains = [(A - self.R0[split]) * risen(C, Cmid, b, tail)
                 for (A, Cmid, b), tail in zip(points, self.tails, strict=True)]
        return np.asarray(self.R0[split] + np.array(self.weights) @ np.array(gains))

    def refusal(self, C: float) -> Refusal | None:
        """Why no prediction at C should be trusted, if so: the law's own refusal, or C more than a decade beyond."""
        if self.refused is not None or not C / self.range[1] > DECADE:
            return self.refused
        need = C / DECADE * sum(len(arm.runs) for arm in self.arms)
        return Refusal(f"{C:,.0f} rollouts are {C / self.range[1]:.0f} times the pilot's largest run; "
                       f"laws are read within a factor of {DECADE:.0f}",
                       f"a pilot whose runs reach {C / DECADE:,.0f} rollouts", need)

    def fallback(self) -> int:
        """What to take if the law is not identified: the n of the best mean `select` reward at the largest common C."""
        self._some()
        end = np.log(min(arm.C[-1] for arm in self.arms))
        means = {arm.n: float(np.interp(end, np.log(arm.C), arm.select.mean(0))) for arm in self.arms}
        return max(means, key=lambda n: (means[n], -n))

    def _some(self) -> None:
        if not self.arms:
            raise UserError(self.refused.reason if self.refused else "the law has no curve")

    def data(self) -> dict[str, Any]:
        """Plain data for JSON: no NaN, no infinity."""
        return {"schema": 1, **{f.name: _plain(getattr(self, f.name)) for f in fields(self)}}

    @staticmethod
    def of(data: dict[str, Any]) -> Law:
        """The law that `data()` wrote. Raises UserError for a schema that this program does not read."""
        if data.get("schema") != 1:
            raise UserError(f"law.json has schema {data.get('schema')!r}; this program reads 1")
        star, refused = data.get("n_star"), data.get("refused")
        made = Law(
            arms=tuple(_arm(arm) for arm in data["arms"]), R0=(data["R0"][0], data["R0"][1]),
            noise=Noise(**{**{k: np.array(v, dtype=float) for k, v in data["noise"].items() if k != "dof"},
                           "dof": data["noise"]["dof"]}),
            inflate=np.array(data["inflate"], dtype=float),
            tails=tuple(math.inf if tail is None else tail for tail in data["tails"]),
            weights=tuple(data["weights"]), margin=data["margin"], level=data["level"], seed=data["seed"],
            flags=tuple(Flag(**flag) for flag in data.get("flags", ())),
            refused=Refusal(**refused) if refused else None,
            n_star=_growth(star) if star and "draws" in star else Refusal(**star) if star else None,
        )
        _check(made)
        return made


def _check(law: Law) -> None:
    """Raises UserError if a law's arrays do not have the shapes that `FittedArm`, `Fit` and `Noise` state."""
    D, F = len(law.inflate), len(law.tails)
    shapes: dict[str, tuple[ndarray, tuple[int | None, ...]]] = {
        "noise.residuals": (law.noise.residuals, (2, None, len(law.noise.C))), "weights": (np.array(law.weights), (F,)),
    }
    for i, arm in enumerate(law.arms):
        S, K = len(arm.runs), len(arm.C)
        own = {"select": (S, K), "audit": (S, K), "C": (K,), "epochs": (K,), "seconds": (K,)}
        shapes |= {f"arms[{i}].{k}": (getattr(arm, k), shape) for k, shape in own.items()}
        for j, fit in enumerate(arm.fits):
            fitted: dict[str, tuple[int | None, ...]] = {"points": (F, 3), "draws": (D, 4)}
            fitted |= {"folds": (None, F, 3)} if fit.folds.size else {}
            shapes |= {f"arms[{i}].fits[{j}].{k}": (getattr(fit, k), shape) for k, shape in fitted.items()}
    for name, (values, shape) in shapes.items():
        there = values.shape
        if len(there) != len(shape) or any(k not in (None, n) for k, n in zip(shape, there, strict=True)):
            raise UserError(f"law.json: {name} has the shape {there}, which does not fit the rest; fit the law again")
        if 0 in there or not (np.isfinite(values).all() or name.endswith(("epochs", "seconds"))):
            raise UserError(f"law.json: {name} lacks numbers; fit the law again")


def _arm(data: dict[str, Any]) -> FittedArm:
    arrays = {k: _floats(data[k]) for k in ("C", "select", "audit", "epochs", "seconds")}
    select, audit = (Fit(fit["parameters"], *(_floats(fit[k]) for k in ("points", "draws", "folds")))
                     for fit in data["fits"])
    return FittedArm(**{**data, **arrays, "runs": tuple(data["runs"]), "seeds": tuple(data["seeds"]),
                  "fits": (select, audit)})


def _growth(data: dict[str, Any]) -> Growth:
    return Growth({k: Interval.of(v) for k, v in data["parameters"].items()}, _floats(data["draws"]))


def _floats(values: Any) -> ndarray:
    return np.array(values, dtype=float)


def _plain(value: Any) -> Any:
    """Nested lists, dictionaries, strings and finite numbers; NaN and infinity become null."""
    if isinstance(value, FittedArm | Fit | Noise | Growth):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Flag | Refusal | Interval):
        return asdict(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def _tails(level: float) -> tuple[float, float]:
    return (1 - level) / 2, (1 + level) / 2


def _grid(C: float | ndarray) -> ndarray:
    grid = np.atleast_1d(np.asarray(C, dtype=float))
    if not (np.all(np.isfinite(grid)) and np.all(grid > 0)):
        raise UserError(f"a law is evaluated at finite rollouts above 0, got {C}")
    return grid


def _first(band: Band, dof: float) -> Interval:
    return Interval(float(band.value[0]), float(band.low[0]), float(band.high[0]), band.level, band.kind, dof)
