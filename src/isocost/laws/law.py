"""The law: one curve of reward against compute per n, with its uncertainty, and what a plan computes from it.

A curve's value is the mean over posterior draws, as its band counts them. The draws are over parameters *and* over
forms: the sigmoid, a slower and a faster approach to the asymptote (`forms.risen`), each weighted by its fit to the
pilot. Reward at several times the pilot's compute depends on the form more than on the noise, so an interval from the
sigmoid alone is far too narrow if the true curve has another form. For curves outside all three forms, a drift is added
for every doubling beyond the pilot (`DRIFT`). Bands beyond the pilot are asymmetric, wider upward (`BELOW`), and twice
as wide upward if the last evaluations bend up relative to every form (`ABOVE`). A share of the draws has a second rise,
with the probability that the pilot gives it (`stats.second`); if that is not small, bands are wider upward (`AGAIN`).
docs/how_sure.md has the resulting coverage and width on simulated studies.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any

import numpy as np
from numpy import ndarray
from scipy.special import bdtr, betaincinv

from isocost.disk.shape import OPEN, AtLeast, Share
from isocost.errors import UserError
from isocost.laws.pieces import (
    Band,
    Fit,
    FittedArm,
    Flag,
    Frontier,
    Growth,
    NotIdentified,
    Predicted,
    tails_of,
)
from isocost.screen.words import freedom
from isocost.stats.forms import gain_share
from isocost.stats.intervals import Interval, Kind, Noise, mixture_quantiles, spread
from isocost.stats.posterior import dearer
from isocost.stats.second import gained, steepness_at

SELECT, AUDIT = 0, 1
KNOWN = 0.1         # an n whose mean reward is uncertain by more than this either way is unknown, not equal
SELDOM = 0.1        # largest probability of losing more than the margin with which an n counts as equal to the best
DRIFT = 0.004       # standard deviation per doubling beyond the pilot for curves outside the forms: in reward at
                    # R = 1/2, less near 0 and 1
BELOW = 0.75        # factor on the distance of draws below the median, from two doublings beyond the pilot on: curves
                    # that level off right after the pilot get too much posterior weight. In 165 simulated studies of
                    # seed 5151 the mean interval score was 0.129 with it, and 0.132 with 0.65
BELOW_BEFORE = 0.65     # of laws in whose record it is not
ABOVE = 2.0         # factor on the distance of draws above the median, from two doublings beyond the pilot on, if runs
                    # bend up at their end (`identify.bend`)
LEVEL_OFF = 0.5     # weight of the last mean seen in forecasts of training reward, from one doubling beyond it on
UPPER = 1.5         # factor on the distance of a prediction's upper end, from one doubling beyond the pilot on, in logs
                    # of other trainers: some of their rewards rise late. Of 1, 1.1, 1.2 and so on the least at which
                    # 90 % hold on 61 public sources (docs/outside_curves.md)
AGAIN = 1.4         # that factor if a second rise is not unlikely (`identify.upward`)
PARAMETERS = ("A", "Cmid", "b")     # of a curve, in the order of `Fit.draws` after the form's index
DEAREST = 4.0       # cap on the factor on C that an arm needs: anything more counts as this much
R2 = np.array([0.7548776662466927, 0.5698402909980532])     # of Roberts' sequence in two dimensions
RISEN = 3.0         # standard errors of its gain from which on an arm has improved measurably
EXTRAPOLATION = 8   # times the pilot's largest run: the longest run that a plan may prescribe
DECADE = 10.0       # largest extrapolation of a law, as in IsoCompute (arXiv 2603.12151)


@dataclass(frozen=True, eq=False)
class Law:
    """The fitted pilot. Its queries: `predict`, `curve`, `equal_set`, `best`, `frontier`, `refusal`.

    `R0` is the base's (select, audit) reward; `tails` are the forms (1 is the sigmoid) and `weights` their shares
    of the draws; `unlike` is the share of draws in which n are not alike, `twice` that of draws with a second rise,
    whose form is that of the first; `below` is the law's own `BELOW`, `above` is `ABOVE`, `AGAIN` or 1
    (`identify.upward`); `upper` is `UPPER` for logs of other trainers, else 1; `inflate` (D,) is each draw's
    sqrt(dof / chi-squared). If `refused` is set, the law is not identified and no prediction should be trusted: use
    `fallback()`. `forecast_refused` is None where curves may be forecast all the same: of long runs whose law cannot
    rank n (`identify.unforecast`). `training` if it is of training reward.
    `data()` writes its JSON, `Law.of` reads it.
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
    refused: NotIdentified | None = None
    n_star: Growth | NotIdentified | None = None
    unlike: float = 0.0
    below: float = BELOW_BEFORE
    forecast_refused: NotIdentified | None = None
    training: bool = False
    twice: float = 0.0
    above: float = 1.0
    upper: float = 1.0

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
    def freedom(self) -> str:
        """The degrees of freedom as text."""
        return freedom(self.dof)

    @property
    def measured(self) -> bool:
        """Whether the run-to-run variance was measured (some n has two runs) or is assumed."""
        return any(len(arm.runs) > 1 for arm in self.arms)

    @property
    def how_runs_differ(self) -> str:
        """The run-to-run standard deviation as text, and whether it is measured or assumed."""
        known = f"run-to-run sd {self.sd:.3f} at reward 1/2"
        if self.measured:
            return f"{known}, pooled over arms ({self.freedom})"
        return f"{known}: assumed, not measured, because no n has two runs"

    @property
    def how_forms_weigh(self) -> str:
        """The share of draws from each form, and from n that are not alike, as text."""
        names = ["sigmoid" if t == 1 else "faster approach" if t > 1 else "slower approach" for t in self.tails]
        shares = ", ".join(f"{name} {w:.0%}" for name, w in zip(names, self.weights, strict=True))
        return f"{shares}; a second rise {self.twice:.0%}; n that are not alike {self.unlike:.0%}"

    def arm(self, n: int) -> FittedArm:
        """The arm of this n. Raises UserError, which lists the n of the law, if there is none."""
        for arm in self.arms:
            if arm.n == n:
                return arm
        raise UserError(f"the law has no curve for n={n}; it has {', '.join(map(str, self.ns)) or 'none'}")

    def gain(self, n: int) -> tuple[float, float]:
        """(gain of an arm's mean `select` reward from the base to its last evaluation, its standard error)."""
        arm = self.arm(n)
        mean = arm.select[:, -1].mean()
        sd = self.noise.sd(arm.C[-1:], np.array([mean]), SELECT)[0]
        return float(mean - self.R0[SELECT]), float(sd / math.sqrt(len(arm.runs)))

    def still(self, n: int) -> str:
        """Why runs of n that have not risen from their base cannot be forecast, as text; empty if they have risen."""
        arm = self.arm(n)
        if not arm.still:
            return ""
        return (f"the runs of n={n} have not risen measurably: base {self.R0[AUDIT]:.3f}, last mean "
                f"{arm.audit[:, -1].mean():.3f}. Such runs do not tell when their reward will rise")

    @property
    def flat(self) -> bool:
        """Whether even the best arm gained less than `RISEN` standard errors: the ranking of n is then noise."""
        if not self.arms:
            return False
        gain, error = self.gain(self.fallback())
        return gain < RISEN * error

    def predict(self, n: int, C: float, runs: int = 3) -> Predicted:
        """Test-split reward of arm n after C rollouts: for the mean curve, and for the mean of `runs` new runs."""
        confidence, prediction = (self.curve(n, C, kind, runs) for kind in ("confidence", "prediction"))
        return Predicted(_first(confidence, self.dof), _first(prediction, self.dof))

    def curve(self, n: int, C: float | ndarray, kind: Kind = "confidence", runs: int = 3) -> Band:
        """The curve of arm n at C (K,) with its band; `runs` is used only for a prediction.

        The mean curve is that of runs that do not diverge. A prediction is for the mean of all new runs: where runs of
        the pilot diverged, its value and its lower end count that new ones do (`falls`).

        Raises UserError for an unknown n, `runs` below 1, or a C that is not finite and above 0.
        """
        grid = _grid(C)
        if runs < 1:
            raise UserError(f"a prediction is for the mean of at least 1 run, got {runs}")
        variance = (DRIFT * 4 * spread(self._levelled(n, grid)) * self._doublings(n, grid)) ** 2
        paths = self.drawn(n, grid)
        if kind == "prediction":
            variance = variance + (self.noise.sd(grid, paths) * self.inflate[:, None]) ** 2 / runs
            paths, variance = self._fallen(n, grid, runs, paths, variance)
        value = paths.mean(0)
        low, high = mixture_quantiles(paths, np.sqrt(variance), tails_of(self.level))
        if kind == "prediction":
            high = high + (high - value) * (self.upper - 1) * np.minimum(self._doublings(n, grid), 1.0)
        low, high = np.clip((low, high), 0.0, 1.0)
        return Band(grid, value, np.minimum(low, value), np.maximum(high, value), self.level, kind)

    @property
    def falls(self) -> Interval | None:
        """The share of new runs that diverge within the pilot's length, over all arms (Jeffreys' prior); or None."""
        a, b = self._falls
        if a == 0.5:
            return None
        low, high = betaincinv(a, b, tails_of(self.level))
        return Interval(a / (a + b), float(low), float(high), self.level, "confidence", a + b - 1)

    @property
    def _falls(self) -> tuple[float, float]:
        """The posterior Beta(a, b) of `falls`. Records from before `fallen` count as without falls."""
        fell = sum(len(arm.fallen) for arm in self.arms)
        return fell + 0.5, sum(len(arm.runs) for arm in self.arms) + 0.5

    @property
    def surviving(self) -> Law:
        """This law without the runs that diverged: its predictions are of runs that do not."""
        return replace(self, arms=tuple(replace(arm, fallen=()) for arm in self.arms))

    def _fallen(self, n: int, C: ndarray, runs: int, paths: ndarray, variance: ndarray) -> tuple[ndarray, ndarray]:
        """Paths and variances (D, K) of the mean of `runs` new runs, of which some diverge where runs of the pilot did.

        A run falls with equal probability in every doubling of C; how many do is quasi-random (Roberts' sequence R2).
        """
        ends = [end for arm in self.arms for end in arm.fallen]
        if not ends:
            return paths, variance
        arm, D = self.arm(n), len(paths)
        length = np.log2(C / arm.C[0]) + 1, np.log2(arm.C[-1] / arm.C[0]) + 1
        share, luck = ((np.arange(D)[:, None] + 0.5) * R2 % 1).T
        fall = 1 - (1 - betaincinv(*self._falls, share)[:, None]) ** np.maximum(length[0] / length[1], 0.0)    # (D, K)
        fell = sum((luck[:, None] > bdtr(k, runs, fall)) for k in range(runs)) / runs
        there = np.resize(ends, D)[:, None]
        return (1 - fell) * paths + fell * there, (1 - fell) * variance

    def drawn(self, n: int, C: ndarray) -> ndarray:
        """The draws (D, K) of arm n's audit curve at C (K,) that its band counts: their mean is its value."""
        return self._skewed(self._levelled(n, C), self._doublings(n, C))

    def paths(self, n: int, C: ndarray, split: int = AUDIT) -> ndarray:
        """The posterior draws of one arm's mean curve at C (K,): (D, K). Draws are joint: draw d is one state of all
        arms."""
        fit = self.arm(n).fits[split]
        share = gained(C, fit.draws[:, None], fit.second[:, None], self.tails)
        return np.asarray(self.R0[split] + (fit.draws[:, 1:2] - self.R0[split]) * share)

    def parameter(self, n: int, name: str) -> Interval:
        """The confidence interval of one parameter of arm n's mean curve on audit: A, Cmid (rollouts) or b.

        Over the draws of every form, with one definition for all: Cmid is the midpoint of the gain, b the exponent of
        the sigmoid with the same slope there (`forms.steepness`). Raises UserError for another name.
        """
        fit = self.arm(n).fits[AUDIT]
        if name not in PARAMETERS:
            raise UserError(f"a curve has the parameters {', '.join(PARAMETERS)}, not {name!r}")
        if name == "A":
            values = self._skewed(fit.draws[:, 1:2], np.array([np.inf]))[:, 0]
        else:
            values = fit.midpoints(self.tails)
        if name == "b":
            values = steepness_at(values, fit.draws, fit.second, self.tails)
        first, last = tails_of(self.level)
        low, middle, high = np.quantile(values, [first, 0.5, last], method="weibull")
        return Interval(float(middle), float(low), float(high), self.level, "confidence", self.dof)

    def _skewed(self, values: ndarray, doublings: ndarray) -> ndarray:
        """Draws (D, K) for bands beyond the pilot: nearer to the median below it, further above it if runs bend up."""
        far = np.minimum(doublings / 2, 1.0)
        middle = np.median(values, axis=0)
        above = 1 + (self.above - 1) * far
        below = 1.0 if self.training else 1 - (1 - self.below) * far     # training rewards often fall again
        off = (values - middle) * np.where(values < middle, below, above)
        return np.asarray(np.minimum(middle + off, 1.0))

    def _levelled(self, n: int, C: ndarray) -> ndarray:
        """`paths` (D, K) on audit: of training reward, beyond its end half way to the last mean
        (docs/outside_curves.md)."""
        paths = self.paths(n, C, AUDIT)
        if not self.training:
            return paths
        share = LEVEL_OFF * np.minimum(self._doublings(n, C), 1.0)
        return np.asarray((1 - share) * paths + share * self.arm(n).audit[:, -1].mean())

    def _doublings(self, n: int, C: ndarray) -> ndarray:
        return np.maximum(np.log2(C / self.arm(n).C[-1]), 0.0)

    def _known(self, C: ndarray) -> ndarray:
        """(arms, K) of bool: known at C are arms with a narrow interval (`KNOWN`) and those above the best of these."""
        paths = np.array([self.paths(n, C, SELECT) for n in self.ns])                   # (arms, D, K)
        low, high = np.quantile(paths, tails_of(self.level), axis=1, method="weibull")
        halves = (high - low) / 2
        supported = np.array([arm.moved for arm in self.arms])[:, None] | (self.range[1] >= C)
        tight = (halves <= np.maximum(KNOWN, 2 * halves.min(0))) & (supported | ~supported.any(0))
        best = np.where(tight, paths.mean(1), -1.0).argmax(0)
        above = (paths > paths[best, :, np.arange(len(C))].T).mean(1) >= tails_of(self.level)[1]
        return tight | (above & supported & tight.any(0))

    def _chosen(self, C: ndarray) -> ndarray:
        """Index of the known arm with the highest select curve at C (K,); ties go to the smaller n."""
        values = np.array([self.paths(n, C, SELECT).mean(0) for n in self.ns])
        return np.where(self._known(C), values, -1.0).argmax(0)

    def unknown(self, C: float) -> list[int]:
        """The n whose reward at C is not identified: neither equal to the best nor worse."""
        known = self._known(_grid(C))[:, 0]
        return [n for n, is_known in zip(self.ns, known, strict=True) if not is_known]

    def best(self, C: float) -> int:
        """The n with the highest fitted `select` reward at C among those known there."""
        self._require_arms()
        return self.ns[int(self._chosen(_grid(C))[0])]

    def ns_at(self, C: float | ndarray) -> ndarray:
        """The n that `select` chooses at each C (K,)."""
        self._require_arms()
        return np.array(self.ns)[self._chosen(_grid(C))]

    def equal_set(self, C: float, margin: float | None = None) -> list[int]:
        """Every n, ascending, that is shown to be within the margin of the best at C: it loses more with a probability
        of at most `SELDOM`.

        Chosen on `select`. Draws are joint, so what all n have in common, such as the form, cancels. An n that is
        neither here nor shown to be worse is undecided.
        """
        equal = self.equal(_grid(C), self.margin if margin is None else margin)[:, 0]
        return [n for n, is_equal in zip(self.ns, equal, strict=True) if is_equal]

    def equal(self, C: ndarray, margin: float) -> ndarray:
        """Which n are in the equal set at each C (K,): (arms, K) of bool."""
        return np.asarray(self._known(C) & ((self._lost(C) > margin).mean(1) <= SELDOM))

    def worse(self, C: ndarray) -> ndarray:
        """Which n are shown to be worse than the best at each C (K,), by however little: (arms, K) of bool."""
        return np.asarray(self._known(C) & ((self._lost(C) > 0).mean(1) >= 1 - SELDOM))

    def close(self, C: ndarray, margin: float) -> ndarray:
        """Which n are within the margin of the best at each C (K,), or within one standard error of the difference:
        (arms, K) of bool. The runs do not separate these (the one-standard-error rule of Breiman et al., 1984)."""
        lost = self._lost(C)
        return np.asarray(self._known(C) & (lost.mean(1) <= np.maximum(margin, lost.std(1))))

    def _lost(self, C: ndarray) -> ndarray:
        """Draws of what each n loses against the best at C (K,): (arms, D, K)."""
        self._require_arms()
        paths = np.array([self.paths(n, C, SELECT) for n in self.ns])
        return np.asarray(paths[self._chosen(C), :, np.arange(len(C))].T[None] - paths)

    def dearer(self, C: float) -> dict[int, float]:
        """For each n, the factor on C that it needs for the select reward of the best n at C: 1 or more.

        The geometric mean over draws, each with its own best n and at most `DEAREST`. On a flat curve a small loss of
        reward costs much compute; on a steep one it does not. Unlike a difference in reward, this factor can be
        multiplied by the cost of a rollout at each n.
        """
        self._require_arms()
        drawn, second = (np.array([getattr(arm.fits[SELECT], k) for arm in self.arms]) for k in ("draws", "second"))
        more = dearer(drawn, second, self.tails, self.R0[SELECT], float(_grid(C)[0]), DEAREST)
        return {n: float(np.exp(log.mean())) for n, log in zip(self.ns, more, strict=True)}

    def frontier(self, C: float | ndarray) -> Frontier:
        """The upper envelope at C (K,): the n that select chooses, the audit value of that choice, its band.

        The runs that make an arm the best overestimate it. So each run is left out in turn: the choice is made without
        it and measured on it, and the excess of the curve is subtracted (a jackknife over runs, if every arm has two or
        more). Beyond the pilot's end the bias at its end is subtracted.
        """
        self._require_arms()
        grid = _grid(C)
        which, at = self._chosen(grid), np.arange(len(grid))
        bands = [self.curve(n, grid) for n in self.ns]
        value, low, high = (np.stack([getattr(b, k) for b in bands])[which, at] for k in ("value", "low", "high"))
        bias = self._selection_bias(np.minimum(grid, self.range[1]))
        value, low, high = (np.clip(x - bias, 0.0, 1.0) for x in (value, low, high))
        return Frontier(grid, np.array(self.ns)[which], value, low, high, self.level)

    def _selection_bias(self, C: ndarray) -> ndarray:
        """The excess (K,) of the audit curve of the arm chosen at C (K,) over its value on runs left out of the
        choice."""
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
        """The spread of curves (arms, K) over arms at C (K,), relative to that of separate fits; at most 1."""
        alone = np.array([self._mixed(arm.fits[split].points, C, split) for arm in self.arms])
        return np.asarray(np.minimum(values.std(0) / np.maximum(alone.std(0), 1e-9), 1.0))

    def _left_out(self, arm: FittedArm, C: ndarray, split: int, folds: int) -> ndarray:
        """The effect of each of the first runs on the arm's curve, centred: (folds, K)."""
        fit = arm.fits[split]
        without = np.array([self._mixed(points, C, split) for points in fit.folds])
        return np.asarray((without.mean(0) - without)[:folds])

    def _mixed(self, points: ndarray, C: ndarray, split: int) -> ndarray:
        """The weighted mean over forms of the curves with parameters (F, 3), at C: (K,)."""
        gains = [(A - self.R0[split]) * gain_share(C, Cmid, b, tail)
                 for (A, Cmid, b), tail in zip(points, self.tails, strict=True)]
        return np.asarray(self.R0[split] + np.array(self.weights) @ np.array(gains))

    def refusal(self, C: float) -> NotIdentified | None:
        """Why no prediction at C should be trusted, or None: the law is not identified, or C is beyond `DECADE`."""
        if self.refused is not None or not C / self.range[1] > DECADE:
            return self.refused
        need = C / DECADE * sum(len(arm.runs) for arm in self.arms)
        return NotIdentified(f"{C:,.0f} rollouts are {C / self.range[1]:.0f} times the pilot's largest run; "
                             f"laws are read within a factor of {DECADE:.0f}",
                             f"a pilot whose runs reach {C / DECADE:,.0f} rollouts", need)

    def fallback(self) -> int:
        """The n to use if the law is not identified: that of the best mean `select` reward at the largest common C."""
        self._require_arms()
        end = np.log(min(arm.C[-1] for arm in self.arms))
        means = {arm.n: float(np.interp(end, np.log(arm.C), arm.select.mean(0))) for arm in self.arms}
        return max(means, key=lambda n: (means[n], -n))

    def _require_arms(self) -> None:
        if not self.arms:
            raise UserError(self.refused.reason if self.refused else "the law has no curve")

    def data(self) -> dict[str, Any]:
        return {"schema": 1, **{f.name: _plain(getattr(self, f.name)) for f in fields(self)}}

    @staticmethod
    def of(data: dict[str, Any]) -> Law:
        """The law that `data()` wrote. Raises UserError for a schema that this program does not read."""
        if data.get("schema") != 1:
            raise UserError(f"law.json has schema {data.get('schema')!r}; this program reads 1")
        star, refused = data.get("n_star"), data.get("refused")
        unforecast = data.get("forecast_refused", refused)      # records before it: as the law
        made = Law(
            arms=tuple(_arm(arm) for arm in data["arms"]), R0=(data["R0"][0], data["R0"][1]),
            noise=Noise(**{**{k: np.array(v, dtype=float) for k, v in data["noise"].items() if k != "dof"},
                           "dof": data["noise"]["dof"]}),
            inflate=np.array(data["inflate"], dtype=float),
            tails=tuple(math.inf if tail is None else tail for tail in data["tails"]),
            weights=tuple(data["weights"]), margin=data["margin"], level=data["level"], seed=data["seed"],
            flags=tuple(Flag(**flag) for flag in data.get("flags", ())),
            refused=NotIdentified(**refused) if refused else None,
            n_star=None if not star else NotIdentified(**star) if "draws" not in star else Growth(
                {k: Interval.of(v) for k, v in star["parameters"].items()}, _floats(star["draws"])),
            unlike=data.get("unlike", 0.0), below=data.get("below", BELOW_BEFORE),
            forecast_refused=NotIdentified(**unforecast) if unforecast else None,
            training=data.get("training", False), twice=data.get("twice", 0.0),
            above=data.get("above", ABOVE if "bent" in [f["name"] for f in data.get("flags", ())] else 1.0),
            upper=data.get("upper", 1.0),
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
            fitted |= {"second": (D, 3)} if len(fit.second) > 1 else {}
            fitted |= {"folds": (None, F, 3)} if fit.folds.size else {}
            shapes |= {f"arms[{i}].fits[{j}].{k}": (getattr(fit, k), shape) for k, shape in fitted.items()}
    for name, (values, shape) in shapes.items():
        found = values.shape
        if len(found) != len(shape) or any(k not in (None, n) for k, n in zip(shape, found, strict=True)):
            raise UserError(f"law.json: {name} has shape {found}, which does not match the rest; fit the law again")
        if 0 in found or not (np.isfinite(values).all() or name.endswith(("epochs", "seconds"))):
            raise UserError(f"law.json: {name} has missing numbers; fit the law again")


def _arm(data: dict[str, Any]) -> FittedArm:
    arrays = {k: _floats(data[k]) for k in ("C", "select", "audit", "epochs", "seconds")}
    select, audit = (Fit(fit["parameters"], **{k: _floats(v) for k, v in fit.items() if k != "parameters"})
                     for fit in data["fits"])
    return FittedArm(**{**data, **arrays, "runs": tuple(data["runs"]), "seeds": tuple(data["seeds"]),
                        "fallen": tuple(data.get("fallen", ())), "fits": (select, audit)})


def _floats(values: Any) -> ndarray:
    return np.array(values, dtype=float)


def _plain(value: Any) -> Any:
    """Nested lists, dictionaries, strings and finite numbers; NaN and infinity become null."""
    if isinstance(value, FittedArm | Fit | Noise | Growth):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Flag | NotIdentified | Interval):
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


def _grid(C: float | ndarray) -> ndarray:
    grid = np.atleast_1d(np.asarray(C, dtype=float))
    if not (np.all(np.isfinite(grid)) and np.all(grid > 0)):
        raise UserError(f"a law is evaluated at finite rollouts above 0, got {C}")
    return grid


def _first(band: Band, dof: float) -> Interval:
    return Interval(float(band.value[0]), float(band.low[0]), float(band.high[0]), band.level, band.kind, dof)
