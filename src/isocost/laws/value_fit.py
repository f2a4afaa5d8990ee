"""From learning curves to the cheapest updates per sample: the fit of the laws of `laws.papers.value`, with intervals.

The time at which a run reaches a return J is log-normal. A run that never reaches it is censored at its last sample,
not left out: that would make the settings that fail look fast. For one task or several, with u = ln sigma, x = ln B and
y = ln rate,

    E ln T = height(task, sigma) + a x^2 + (b_task + c u) x + d y^2 + (e_task + f u) y,    sd(sigma) for all settings

is fitted by censored likelihood. Its minimum gives the best batch and rate, lines in ln sigma whose slopes -c / 2a and
-f / 2d all tasks share, and ln D_J(sigma) at them; through D_J goes the power law with a floor. Every interval is that
of a bootstrap of the whole, in which the seeds of each setting are drawn again.

Where runs learn from a set before their first sample, the number U of these updates stands in the place of sigma,
which is the same for all of them, and D = floor + scale exp(-exponent U / U_most): samples suffice without any, too. A
run that has the return at its first evaluation is then censored from the other side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray
from scipy.optimize import isotonic_regression
from scipy.special import log_ndtr

from isocost.chance import Purpose, generator
from isocost.errors import UserError
from isocost.laws.papers.value import Lines
from isocost.runs.arm import Arm
from isocost.stats.intervals import Interval, student

SIGMAS, SEEDS = 3, 3            # a law needs as many values of sigma, and seeds of each setting
LEAST, MOST = 1 / 256, 256.0    # updates per sample that are planned for
MISSED = 0.5                    # a return that a larger share of the runs never reach has no law
WIDEST = 4.0                    # the ends of the interval of the cheapest sigma are at most this factor apart
BEYOND = 2.0                    # the cheapest sigma lies at most this factor outside what was run
LEVEL, DRAWS = 0.9, 200
DECIDED = 0.95                   # share of the draws of the bootstrap from which on a finding counts
SPREAD, SPREAD_DOF = 0.25, 1.0  # of ln T between seeds: 0.18 to 0.35 on the pendulum; it weighs as much as one run
EXPONENT, EXPONENT_SD = 0.8, 0.6    # of the power law: 0.70 and 1.09 in the paper; a factor of 1.8 either way
STEEP, STEEP_SD = 2.0, 0.7          # of offline updates, of which no paper has a law: a factor of 2 either way
AXES = ("batch", "rate")
SIGMA, OFFLINE = "sigma", "offline"     # what samples fall with: updates per sample, or updates before the first one
_ROUNDS, _SETTLED, _RIDGE = 60, 1e-4, 1e-6     # of the censored fit


@dataclass(frozen=True, eq=False)
class ReturnCurve:
    """A run's evaluations: returns (K,) after so many samples (K,). Its arm has sigma, batch and rate.

    Raises:
        UserError: if the arrays differ in length, are empty, or hold a value that is not finite; if samples do not
            rise; if sigma is not above 0 and at most 256, or batch or rate is not above 0.
    """

    run: str
    arm: Arm
    seed: int
    samples: ndarray
    returns: ndarray
    task: str = ""

    def __post_init__(self) -> None:
        samples, returns = (np.asarray(v, dtype=float) for v in (self.samples, self.returns))
        if samples.shape != returns.shape or samples.ndim != 1 or not len(samples):
            raise UserError(f"{self.run}: {samples.shape} samples and {returns.shape} returns; a curve needs equal "
                            "numbers of both, at least 1")
        if not (np.isfinite(samples).all() and np.isfinite(returns).all() and (np.diff(samples) > 0).all()):
            raise UserError(f"{self.run}: samples must rise, and samples and returns be finite")
        if lacking := [k for k in ("sigma", *AXES) if k not in self.arm]:
            raise UserError(f"{self.run}: its arm has no {lacking[0]}")
        check_sigma(self.arm["sigma"], self.run)
        if low := [k for k in AXES if not self.arm[k] > 0]:
            raise UserError(f"{self.run}: {low[0]} {self.arm[low[0]]:g}, expected a number above 0")
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "returns", returns)


def check_sigma(sigma: float, where: str) -> None:
    """Raises UserError unless 0 < sigma <= 256."""
    if not 0 < sigma <= MOST:
        raise UserError(f"{where}: sigma is {sigma:g} updates per sample, expected a number above 0 and at most "
                        f"{MOST:g}")


@dataclass(frozen=True, eq=False)
class Arrivals:
    """When runs (R,) reach a return: ln of the samples at which they do, or of their last sample if they do not.

    `early` are those that have it at their first evaluation, whose samples `time` then is."""

    time: ndarray
    reached: ndarray
    early: ndarray | None = None

    @property
    def side(self) -> ndarray:
        """(R,): 1 for a run that arrives later than `time`, -1 for one that did earlier, else 0."""
        return np.where(self.reached, 0.0 if self.early is None else -1.0 * self.early, 1.0)

    @property
    def missed(self) -> float:
        """The share of runs that never reach it."""
        return float(1 - self.reached.mean())


def arrivals(curves: Sequence[ReturnCurve], wanted: float) -> Arrivals:
    """When each curve, made monotone by isotonic regression, reaches the return `wanted`.

    Between two evaluations it is linear in samples, so that how often a run is evaluated does not move its time.
    """
    times = np.array([_arrival(c, wanted) for c in curves])
    reached, first = np.isfinite(times), np.array([c.samples[0] for c in curves])
    early = times <= first if curves and OFFLINE in curves[0].arm else None
    return Arrivals(np.log(np.where(reached, times, [c.samples[-1] for c in curves])), reached, early)


def _arrival(curve: ReturnCurve, wanted: float) -> float:
    level = isotonic_regression(curve.returns).x
    first = int(np.searchsorted(level, wanted))
    if first == len(level):
        return float("inf")
    if first == 0:
        return float(curve.samples[0])
    pair = slice(first - 1, first + 1)
    return float(np.interp(wanted, level[pair], curve.samples[pair]))


@dataclass(frozen=True, eq=False)
class Surface:
    """The censored fit: coefficients (D, P), and sd of ln T (D, G) of each group, for D sets of weights."""

    beta: ndarray
    sd: ndarray


def censored_fit(X: ndarray, seen: Arrivals, group: ndarray, weights: ndarray) -> Surface:
    """Normal regression of times (R,) on X (R, P), right-censored where not reached, for each row of weights (D, R).

    Newton's steps for the coefficients, with the variances between them: a censored time stands for its mean above the
    time until which it was seen. `group` (R,) are indices; a group's variance is divided by its runs less the
    coefficients that these determine.
    """
    groups = np.eye(int(group.max()) + 1)[group]                            # (R, G)
    beta = np.linalg.lstsq(X, seen.time, rcond=None)[0][None]
    sd = np.full((1, groups.shape[1]), SPREAD)
    beta, sd = _steps(X, seen, groups, weights[:1], Surface(beta, sd))
    if len(weights) > 1:
        start = Surface(np.repeat(beta, len(weights) - 1, 0), np.repeat(sd, len(weights) - 1, 0))
        more = _steps(X, seen, groups, weights[1:], start)
        beta, sd = (np.concatenate(pair) for pair in zip((beta, sd), more, strict=True))
    return Surface(beta, sd)


def _steps(X: ndarray, seen: Arrivals, groups: ndarray, weights: ndarray, start: Surface) -> tuple[ndarray, ndarray]:
    """Coefficients (D, P) and sds (D, G) at which Newton's steps settle, for each row of weights."""
    y, side, runs = seen.time, seen.side, weights @ groups
    off = side != 0
    group, ridge = groups.argmax(1), _RIDGE * np.eye(X.shape[1])
    beta, sd, moving = start.beta.copy(), start.sd.copy(), np.arange(len(weights))
    for _ in range(_ROUNDS):
        w, mean, own = weights[moving], beta[moving] @ X.T, sd[moving][:, group]
        pull, bend, gap = (y - mean) / own, np.ones_like(mean), (y - mean) ** 2
        z = side[off] * pull[:, off]
        hazard = np.exp(-0.5 * z**2 - log_ndtr(-z)) / np.sqrt(2 * np.pi)
        pull[:, off], bend[:, off] = side[off] * hazard, hazard * (hazard - z)
        gap[:, off] = own[:, off] ** 2 * (1 + z * hazard)       # E (T - mean)^2, given that it is late, or early
        scaled = w * bend / own**2
        inverse = np.linalg.inv(np.matmul(X.T * scaled[:, None, :], X) + ridge)
        step = np.matmul(inverse, ((w * pull / own) @ X)[..., None])[..., 0]
        beta[moving] += step
        known = np.einsum("drp,rp->dr", np.matmul(X, inverse), X) * scaled      # a run's share of the coefficients
        free = np.maximum(runs[moving] - known @ groups, 0.0) + SPREAD_DOF
        was = sd[moving]
        sd[moving] = np.sqrt(((w * gap) @ groups + SPREAD_DOF * SPREAD**2) / free)
        still = (np.abs(step @ X[seen.reached].T).max(1) > _SETTLED) | (np.abs(sd[moving] / was - 1).max(1) > _SETTLED)
        moving = moving[still]
        if not len(moving):
            break
    return beta, sd


def resampled(settings: ndarray, draws: int, seed: int) -> ndarray:
    """(1 + D, R) weights: first all 1, then those of a bootstrap of the seeds of each setting.

    Of n seeds n - 1 are drawn and count n / (n - 1) times, so that the variance between draws is that of the mean
    (Rao and Wu 1988). A setting of one run stays as it is.
    """
    weights = np.ones((1 + draws, len(settings)))
    rng = generator(seed, Purpose.BOOTSTRAP, draws)
    for setting in np.unique(settings):
        own = np.flatnonzero(settings == setting)
        if len(own) > 1:
            drawn = rng.multinomial(len(own) - 1, np.full(len(own), 1 / len(own)), size=draws)
            weights[1:, own] = drawn * len(own) / (len(own) - 1)
    return weights


@dataclass(frozen=True)
class ControlPrice:
    """What things cost in one unit: a sample, an update, each example of an update's batch, and an update before the
    first sample, whatever its batch."""

    sample: float
    update: float
    example: float
    unit: str
    first: float = 0.0

    def of(self, sigma: ndarray | float, batch: ndarray | float) -> ndarray:
        """The cost of a sample and of its updates."""
        return np.asarray(self.sample + np.asarray(sigma) * (self.update + self.example * np.asarray(batch)))

    def run(self, arm: Arm, samples: float) -> float:
        """The cost of a run of an arm."""
        return float(self.of(arm["sigma"], arm["batch"])) * samples + self.first * arm.get(OFFLINE, 0)

    def chosen(self, over: str) -> float:
        """What it costs to have more of what samples fall with."""
        return self.first if over == OFFLINE else self.update or self.example


@dataclass(frozen=True, eq=False)
class _Axis:
    """Batch or rate in the fit, as deviation from `centre` in ln: (D,) curvature (None: two values, one line between
    them) and the slope at each sigma as (D,) `at + by u`; `low` and `high` are the values that were run."""

    centre: float
    low: float
    high: float
    curvature: ndarray | None
    at: ndarray
    by: ndarray

    def best(self, u: ndarray | float) -> ndarray:
        """The best deviation at u, (D, ...): the vertex, within what was run; without one the better end."""
        slope = _outer(self.at, self.by, u)
        low, high = self.low - self.centre, self.high - self.centre
        end = np.where(slope < 0, high, low)
        if self.curvature is None:
            return end
        bend = _outer(self.curvature, 0 * self.curvature, u)
        return np.where(bend > 0, np.clip(-slope / (2 * np.maximum(bend, 1e-9)), low, high), end)

    def off(self, x: ndarray | float, u: ndarray | float) -> ndarray:
        """(D, ...) ln T at the deviation x, above that at the centre."""
        bend = 0.0 if self.curvature is None else _outer(self.curvature, 0 * self.curvature, u) * np.square(x)
        return np.asarray(bend + _outer(self.at, self.by, u) * x)

    @property
    def slope(self) -> ndarray | None:
        """(D,) the slope of the best value in ln sigma, NaN without a minimum; None for two values."""
        if self.curvature is None:
            return None
        return np.where(self.curvature > 0, -self.by / (2 * np.maximum(self.curvature, 1e-9)), np.nan)


def _outer(at: ndarray, by: ndarray, u: ndarray | float) -> ndarray:
    return np.asarray(at[:, None] + by[:, None] * u) if np.ndim(u) else np.asarray(at + by * u)


@dataclass(frozen=True, eq=False)
class ControlLaw:
    """D_J(sigma) of one task: first the fit, then the draws of a bootstrap, on the leading axis. `over` is the name of
    what `sigmas` are.

    Batch and rate are the best by the fit, lines that a plan can follow: the draws say how well D_J is known on these
    lines, and not on lines of their own. `sigmas` (S,) were run; `least` (1 + D, S) is ln D_J there; `floor`, `scale`
    and `exponent` (1 + D,) are of D = floor + scale sigma^-exponent, scale 0 where samples do not fall; `sd` (S,) is
    that of ln T between seeds. `missed` is the share of runs that never reach `wanted`.
    """

    wanted: float
    missed: float
    sigmas: ndarray
    least: ndarray
    floor: ndarray
    scale: ndarray
    exponent: ndarray
    sd: ndarray
    dof: ndarray
    axes: dict[str, _Axis | None]
    fixed: dict[str, float]
    over: str = SIGMA

    def falls(self) -> float:
        """The share of draws in which fewer samples suffice at the largest sigma than at the smallest."""
        return float((self.least[1:, -1] < self.least[1:, 0]).mean())

    def samples(self, sigma: ndarray | float) -> ndarray:
        """(1 + D, ...) samples to reach the return, with batch and rate as `best` has them."""
        u = np.asarray(sigma) / self.sigmas[-1] if self.over == OFFLINE else np.log(sigma)
        falling = np.exp(-(self.exponent[:, None] if np.ndim(u) else self.exponent) * u)
        floor, scale = (v[:, None] if np.ndim(u) else v for v in (self.floor, self.scale))
        return np.asarray(floor + scale * falling)

    def best(self, axis: str, sigma: ndarray | float) -> ndarray:
        """The best batch or rate (...) at a sigma; the only one that was run, where it did not vary."""
        own = self.axes[axis]
        if own is None:
            return np.full(np.shape(sigma), self.fixed[axis])
        return np.asarray(np.exp(own.centre + own.best(np.log(sigma))[0]))

    def interval(self, draws: ndarray) -> Interval:
        """A value (first) with the quantiles of its draws, about it as much further as Student's are than a normal's.
        """
        value, dof = float(draws[0]), float(np.median(self.dof))
        ends = np.quantile(draws[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2], method="weibull")
        low, high = value + (ends - value) * student(LEVEL, dof) / student(LEVEL, np.inf)
        return Interval(value, float(low), float(high), LEVEL, "confidence", dof)

    def slope(self, axis: str) -> Interval | None:
        """The slope of the best batch or rate in ln sigma; None where it is not identified: fewer than three values
        were run, or a tenth of the draws has no minimum."""
        own = self.axes[axis]
        draws = None if own is None else own.slope
        if draws is None or np.isnan(draws[0]) or np.isnan(draws[1:]).mean() > 1 - LEVEL:
            return None
        return self.interval(draws[np.isfinite(draws)])

    def lines(self, axis: str, task: str = "") -> Lines:
        """The best batch or rate as a line in log10 sigma."""
        own, slope = self.axes[axis], self.slope(axis)
        if own is None or slope is None:
            raise UserError(f"the best {axis} is not identified: run at least 3 values of it")
        return Lines(slope.value, {task: float((own.centre + own.best(0.0)[0]) / np.log(10))})

    def outside(self, axis: str, sigma: float) -> str:
        """"above" if samples still fall with the batch or rate at the largest that was run, in 95 % of the draws,
        "below" if they still fall towards the smallest; else the empty text."""
        own = self.axes[axis]
        if own is None or own.curvature is None:
            return ""
        slope = own.at[1:] + own.by[1:] * np.log(sigma)
        high, low = (slope + 2 * own.curvature[1:] * (end - own.centre) for end in (own.high, own.low))
        return "above" if (high < 0).mean() >= DECIDED else "below" if (low > 0).mean() >= DECIDED else ""

    def to_reach(self, arm: Arm) -> ndarray:
        """(1 + D,) mean ln T of an arm: of the law at its sigma, and further by how far its batch and rate are off."""
        u = float(np.log(arm[self.over]))
        time = np.log(self.samples(arm[self.over]))
        for name, axis in self.axes.items():
            if axis is not None:
                time = time + axis.off(np.log(arm[name]) - axis.centre, u) - axis.off(axis.best(u)[0], u)
        return np.asarray(time)

    def between(self, sigma: float) -> float:
        """The sd of ln T between seeds at a sigma: linear in ln sigma between those that were run."""
        return float(np.exp(np.interp(np.log(sigma), np.log(self.sigmas), np.log(self.sd))))

    def forecast(self, arm: Arm, seeds: int) -> Interval:
        """The geometric mean of the samples to reach the return over so many new seeds, as a prediction interval."""
        draws, rng = self.to_reach(arm), generator(seeds, Purpose.BOOTSTRAP, len(self.least))
        dof = float(np.median(self.dof))
        noise = rng.standard_t(dof, size=len(draws) - 1) * self.between(arm[self.over]) / np.sqrt(seeds)
        low, high = np.quantile(draws[1:] + noise, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return exponential(Interval(float(draws[0]), float(low), float(high), LEVEL, "prediction", dof))

    def cost(self, price: ControlPrice, sigma: ndarray | float) -> ndarray:
        """(1 + D, ...) F: what the return costs, with batch and rate as `best` has them."""
        if self.over == OFFLINE:
            return np.asarray(sigma * price.first + self.samples(sigma) * price.of(
                self.fixed[SIGMA], self.best("batch", sigma)))
        return self.samples(sigma) * price.of(sigma, self.best("batch", sigma))

    def cheapest(self, price: ControlPrice) -> Interval:
        """The sigma of least cost, within a factor `BEYOND` of those that were run, with its interval."""
        low, high = self.sigmas[0] / BEYOND, self.sigmas[-1] * BEYOND
        if self.over == SIGMA:
            low, high = max(LEAST, low), min(MOST, high)
        grid = np.linspace(np.log(low), np.log(high), 241)
        return exponential(self.interval(_vertex(grid, np.log(self.cost(price, np.exp(grid))))))


def exponential(of: Interval) -> Interval:
    """The interval of e^x."""
    value, low, high = np.exp([of.value, of.low, of.high])
    return replace(of, value=float(value), low=float(low), high=float(high))


def _vertex(x: ndarray, y: ndarray) -> ndarray:
    """The x at which y (D, K) over equally spaced x (K,) is least, between its neighbours by a parabola."""
    at = np.clip(y.argmin(1), 1, len(x) - 2)
    left, middle, right = (np.take_along_axis(y, (at + i)[:, None], 1)[:, 0] for i in (-1, 0, 1))
    bend = left - 2 * middle + right
    shift = np.where(bend > 0, (left - right) / (2 * np.maximum(bend, 1e-300)), 0.0)
    return np.asarray(np.clip(x[at] + shift * (x[1] - x[0]), x[0], x[-1]))


def data_laws(
    least: ndarray, sigmas: ndarray, error: ndarray, prior: ndarray,
    about: tuple[float, float] = (EXPONENT, EXPONENT_SD),
) -> tuple[ndarray, ndarray, ndarray]:
    """(D,) floors, scales and exponents of D = floor + scale sigma^-exponent through ln D (D, S).

    Least squares in D over its standard error, with floor and scale at least 0, for each of a grid of exponents; these
    have a log-normal prior `about` a value, with its sd. `error` (S,) is the standard error of ln D.
    """
    D = np.exp(least)
    weight = 1 / (D * np.maximum(error, 1e-3))                               # (D, S)
    grid = np.linspace(np.log(0.05), np.log(5.0), 61)

    prior_sd = about[1]
    expected = np.log(about[0]) + prior_sd * prior[:, None]

    def solve(exponent: ndarray) -> tuple[ndarray, ndarray, ndarray]:
        """floor, scale (D, K) and loss for exponents (D, K) or (1, K)."""
        basis = np.exp(-exponent[..., None] * np.log(sigmas))                # (D or 1, K, S)
        w = weight[:, None, :] ** 2
        s1, sx, sxx = w.sum(-1), (w * basis).sum(-1), (w * basis**2).sum(-1)
        sy, sxy = (w * D[:, None, :]).sum(-1), (w * basis * D[:, None, :]).sum(-1)
        det = s1 * sxx - sx**2
        floor, scale = (sxx * sy - sx * sxy) / det, (s1 * sxy - sx * sy) / det
        alone, flat = sxy / sxx, sy / s1
        floor, scale = np.where(floor < 0, 0.0, floor), np.where(floor < 0, alone, scale)
        floor, scale = np.where(scale < 0, flat, floor), np.maximum(scale, 0.0)
        miss = weight[:, None, :] * (D[:, None, :] - floor[..., None] - scale[..., None] * basis)
        return floor, scale, (miss**2).sum(-1) + ((np.log(exponent) - expected) / prior_sd) ** 2

    best = np.exp(_vertex(grid, solve(np.exp(grid)[None])[2]))
    floor, scale, _ = solve(best[:, None])
    return floor[:, 0], scale[:, 0], best


def fit_control(
    curves: Sequence[ReturnCurve], wanted: float, *, task: str | None = None, draws: int = DRAWS, seed: int = 0
) -> ControlLaw:
    """The law of the samples that it takes to reach the return `wanted`, of one of the tasks (by default the first).

    All tasks share the slopes and curvatures of the best batch and rate, and the spread between seeds at a sigma. A
    sigma of which no run arrives is left out where three others remain.

    Raises:
        UserError: for fewer than three values of sigma at which a run arrives, or seeds of a setting on average; if
            more than half of the runs never reach the return.
    """
    if not curves:
        raise UserError("there are no curves to fit")
    over = OFFLINE if OFFLINE in curves[0].arm else SIGMA
    arms = [(c.task, c.arm[over], c.arm["batch"], c.arm["rate"]) for c in curves]
    tasks, own = sorted({c.task for c in curves}), task if task is not None else curves[0].task
    sigmas = np.unique([a[1] for a in arms if a[0] == own])
    if len(sigmas) < SIGMAS:
        raise UserError(f"a law of updates per sample needs at least {SIGMAS} values of {over}; there are "
                        f"{len(sigmas)}: {', '.join(f'{s:g}' for s in sigmas)}")
    if len(curves) < SEEDS * len(set(arms)):
        raise UserError(f"a law of updates per sample needs at least {SEEDS} seeds of each setting; there are "
                        f"{len(curves)} runs of {len(set(arms))} settings")
    seen = arrivals(curves, wanted)
    if seen.missed > MISSED:
        raise UserError(f"{seen.missed:.0%} of the runs never reach a return of {wanted:g}, more than {MISSED:.0%}: "
                        "name a lower return, or run longer")
    if (early := float((seen.side < 0).mean())) > MISSED:
        raise UserError(f"{early:.0%} of the runs have a return of {wanted:g} at their first evaluation, more than "
                        f"{MISSED:.0%}: name a higher return, or fewer offline updates")
    cells = sorted({(t, s) for t, s, _, _ in arms})
    cell = np.array([cells.index(a[:2]) for a in arms])
    never = [cells[k] for k in range(len(cells)) if not seen.reached[cell == k].any()]
    if over == OFFLINE:     # nor does a number say when its runs arrive if most do before their first evaluation
        never += [cells[k] for k in range(len(cells)) if (seen.side[cell == k] < 0).mean() > MISSED]
    if len(sigmas) - len({s for t, s in never if t == own}) >= SIGMAS and never:     # the law of the others is the same
        kept = [c for c in curves if (c.task, c.arm[over]) not in never]
        return fit_control(kept, wanted, task=own, draws=draws, seed=seed)
    if never:
        raise UserError(f"no run at {over} {never[0][1]:g} reaches a return of {wanted:g}"
                        f"{' after its first evaluation' * (over == OFFLINE)}: name a lower return, or run these longer"
                        f"{', or fewer offline updates' * (over == OFFLINE)}")
    u = np.log([a[1] for a in arms])
    place = np.array([tasks.index(a[0]) for a in arms])
    columns, spans = [np.eye(len(cells))[cell]], {}
    settings = np.unique(np.array([(*cells[k], *a[2:]) for k, a in zip(cell, arms, strict=True)], dtype=object)
                         .astype(str), axis=0, return_inverse=True)[1].ravel()
    reached = np.isin(settings, settings[seen.reached])
    for i, name in enumerate(AXES, start=2):
        x = np.log([a[i] for a in arms])
        centre = float((x.min() + x.max()) / 2)
        x = x - centre
        for bend in (True, False):
            added = [*([x[:, None] ** 2] if bend else []), np.eye(len(tasks))[place] * x[:, None], (u * x)[:, None]]
            X = np.concatenate([*columns, *added], 1)
            if np.linalg.matrix_rank(X[reached]) == X.shape[1]:
                start = sum(c.shape[1] for c in columns)
                spans[name] = (centre, start, bend)
                columns += added
                break
    X = np.concatenate(columns, 1)
    group = np.searchsorted(np.unique(u), u)
    fit = censored_fit(X, seen, group, resampled(settings, draws, seed))
    mine = np.array([k for k, c in enumerate(cells) if c[0] == own])
    axes: dict[str, _Axis | None] = dict.fromkeys(AXES)
    least, at = fit.beta[:, mine], np.log(sigmas)
    for name, (centre, start, bend) in spans.items():
        values = np.log([c.arm[name] for c in curves if c.task == own])
        k = start + bend
        axes[name] = axis = _Axis(
            centre, float(values.min()), float(values.max()), fit.beta[:, start] if bend else None,
            fit.beta[:, k + tasks.index(own)], fit.beta[:, k + len(tasks)],
        )
        lowest = axis.off(axis.best(at), at)
        # The lines were chosen where the fit is lowest: there it is too low, by as much again as a draw's own minimum
        # lies below the fit's.
        least = least + axis.off(axis.best(at)[:1], at) - 2 * np.minimum(np.median(lowest[1:], 0) - lowest[0], 0.0)
    if over == OFFLINE:
        least = np.maximum(least, 0.0)      # one sample: of a draw whose runs are all early nothing else is known
    prior = np.append(0.0, generator(seed, Purpose.BOOTSTRAP, draws, 1).standard_normal(draws))
    rising, about = ((np.exp(sigmas / sigmas[-1]), (STEEP, STEEP_SD)) if over == OFFLINE else
                     (sigmas, (EXPONENT, EXPONENT_SD)))
    floor, scale, exponent = data_laws(least, rising, least[1:].std(0), prior, about)
    spread = fit.sd[0][np.searchsorted(np.unique(u), at)]
    runs = np.array([float((u == s).sum()) for s in at])
    dof = np.maximum(runs - X.shape[1] * runs / len(curves), 1.0)
    fixed = {k: float(np.exp(np.mean(np.log([c.arm[k] for c in curves])))) for k in (*AXES, SIGMA)}
    return ControlLaw(wanted, seen.missed, sigmas, least, floor, scale,
                      exponent, spread, dof, axes, fixed, over)
