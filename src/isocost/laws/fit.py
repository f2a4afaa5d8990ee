"""From curves to a law: one curve per n with its uncertainty, and the best n.

The fit is to the mean over seeds of *unfiltered* evaluations: a running maximum of noisy evaluations rises with their
number. `select` rewards choose, `audit` rewards are reported. The run is the unit: its variance is pooled over arms,
and the uncertainty of a curve is a posterior under that noise (`stats.posterior`), with Student tails because the noise
is measured on few runs. Every draw has its own best n.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy import ndarray

from isocost.chance import Purpose, generator
from isocost.errors import UserError
from isocost.laws.bins import MANY, binned, evened, logged_noise
from isocost.laws.curves import Curve, ends_of, multiplier, point_noise
from isocost.laws.identify import cautions, optimum, refusal, unforecast, upward
from isocost.laws.law import AUDIT, BELOW, SELECT, UPPER, Fit, FittedArm, Flag, Law
from isocost.runs.arm import Arm
from isocost.screen.words import counted
from isocost.stats.forms import fit_many, rise
from isocost.stats.intervals import Noise, prior_noise, spread
from isocost.stats.posterior import (
    APART,
    ArmMean,
    Chain,
    correlation,
    covariance,
    form_weights,
    joint,
    second_weight,
    thinned,
    transient,
)
from isocost.stats.power import LEVEL
from isocost.stats.second import Seconds

TAILS = (1.0, 0.3, float("inf"))    # the sigmoid first; a slower and a faster approach to the asymptote
KIN = np.array([0.5, 0.5])          # prior weight of n that are alike, and of n that are not
LATE = 0.5          # a point's weight is C to this power: late points determine the asymptote (ScaleRL drops early)
POINTS = 4          # evaluations above C = 0 that an arm needs: for A, Cmid, b and one degree of freedom
LEAST_SD = 0.7      # least standard error of an evaluation, over the arm's median: early evaluations, before runs
                    # differ, have small errors but carry little information about the asymptote
WHOLE = 0.5         # a run shorter than this share of its arm's longest is left out
CUT = 0.9           # an arm's curve ends with its shortest run; below this share of the longest it is flagged
MOVED = 0.25        # an arm with less than this share of the best arm's gain counts as not moved
SPARSE = 0.1        # training rewards above this are forecast even if they have not risen: of such forecasts of public
                    # logs as many hold as of others (docs/outside_curves.md). Below it successes are rare, and learning
                    # may start at any time
WIDE = 0.2          # width of an interval at twice the runs' length from which on more evaluations are proposed
DENSER = 100        # draws of the law that says how wide it would be with them
WORTH = 0.9         # share of the width from which on that is no gain
DIGITS = 7          # significant digits of draws, so that a law read from JSON equals the law written


def fit_law(curves: Sequence[Curve], *, margin: float = 0.01, draws: int = 300, seed: int = 0,
            level: float = LEVEL) -> Law:
    """The law of a pilot's curves: rewards in [0, 1], one B, common evaluation points, the base at C = 0.

    Probes and runs off the learning-rate rule are ignored. Two n whose rewards differ by at most `margin` count as
    equal; `draws` is the number of posterior draws, `level` that of every interval. Raises UserError for ambiguous
    records: several B or learning rates for one n, one seed twice, no evaluation of the base.
    """
    if draws < 2:
        raise UserError(f"a law needs 2 draws or more, got {draws}")
    logged = _pilot(curves)
    pilot = [binned(curve) for curve in logged]
    means, flags = _means(pilot)
    base = _base(pilot)
    noise, measured = _pool(means, base)
    rng = generator(seed, Purpose.BOOTSTRAP, draws)
    inflate = _rounded(np.sqrt(noise.dof / np.repeat(rng.chisquare(noise.dof, (draws + 1) // 2), 2)[:draws]))
    arms, weights = _fit_arms(means, base, noise, draws, rng)
    *forms, twice = map(float, weights.sum(0))
    law = Law(arms, base, noise, inflate, TAILS, (forms[0] + twice, *forms[1:]), margin, level, seed,
              unlike=float(weights[1].sum()), below=BELOW, training=all(c.training for c in pilot), twice=twice)
    law = replace(law, above=upward(law), upper=UPPER if all(c.noisy for c in pilot) else 1.0)
    long = bool(arms) and all(c.noisy and len(c.C) >= MANY for c in logged)
    risen = {c.run for c in logged if ends_of(c, c.problems).risen}
    law = replace(law, arms=tuple(replace(arm, still=_still(law, arm, risen) if long else law.flat) for arm in arms))
    refused = refusal(law, measured, [c.C[-1] for c in logged])
    law = replace(law, refused=refused, forecast_refused=unforecast(law) if long else refused)
    return replace(law, flags=(*flags, *_collapsed(logged), *cautions(law, _seen(logged, law)),
                              *_few_evaluations(logged, law)), n_star=optimum(law))


def _few_evaluations(logged: list[Curve], law: Law) -> list[Flag]:
    """What more evaluations of the best arm's noisy runs would buy, by simulation, if they are few and do not
    suffice."""
    arm = law.arm(law.fallback()) if law.arms else None
    runs = [c for c in logged if arm is not None and c.noisy and c.run in arm.runs and len(c.C) < MANY]
    if arm is None or not runs or (now := _width(law, arm.n, 2 * arm.C[-1])) < WIDE:
        return []
    rng = generator(law.seed, Purpose.BOOTSTRAP, MANY)
    C = np.concatenate([[0.0], np.geomspace(runs[0].C[1], arm.C[-1], MANY)])
    mean = np.concatenate([[law.R0[AUDIT]], law.paths(arm.n, C[1:], AUDIT).mean(0)])
    nan, more = np.full(len(C), np.nan), []
    for c in runs:
        apart = float((c.audit[1:] - law.paths(arm.n, c.C[1:], AUDIT).mean(0)).mean())
        noise = point_noise(c.audit)
        seen = np.clip(mean + (apart + noise * rng.standard_normal(len(C))) * (C > 0), 0, 1)
        more.append(replace(c, C=C, select=seen, audit=seen, seconds=nan, epochs=nan, train=None, env_steps=None,
                            tokens=None, error=None))
    then = _width(fit_law(more, draws=DENSER, seed=law.seed, level=law.level), arm.n, 2 * arm.C[-1])
    buys = f"with {MANY} it would be about {then:.2f}"
    if then > WORTH * now:
        buys = f"{MANY} would not narrow it by more than a tenth; more runs may"
    return [Flag("few_evaluations", f"n={arm.n}: {len(runs[0].C) - 1} evaluations after the base: the {law.level:.0%} "
                                    f"prediction interval at twice their length is {now:.2f} wide; {buys}")]


def _width(law: Law, n: int, C: float) -> float:
    """Of the prediction interval of one new run of n at C, if it does not diverge."""
    band = law.surviving.curve(n, C, "prediction", 1)
    return float((band.high - band.low)[0])


def _still(law: Law, arm: FittedArm, risen: set[str]) -> bool:
    """Whether long noisy runs have not risen, of which some do later: all but training rewards well above 0."""
    return risen.isdisjoint(arm.runs) and not (law.training and arm.audit[:, -1].mean() > SPARSE)


def _seen(logged: list[Curve], law: Law) -> dict[int, tuple[ndarray, ndarray]]:
    """C (K,) and the mean test-split reward (K,) of each n with noisy runs, before they are binned."""
    used = {arm.n: [c for c in logged if c.noisy and c.run in arm.runs] for arm in law.arms}
    arms = {n: _mean(runs) for n, runs in used.items() if runs}
    return {n: (arm.C, arm.mean(AUDIT)) for n, arm in arms.items()}


@dataclass(frozen=True, eq=False)
class _Means:
    """One n before it is fitted: the S runs used, common points (K,), rewards (2, S, K).

    `fallen` are the last audit rewards of the runs that diverged. `error` (2, S, K) are standard errors of rewards that
    are means of noisy ones; 0 for others.
    """

    runs: list[Curve]
    fallen: Sequence[float]
    C: ndarray
    rewards: ndarray
    error: ndarray

    def mean(self, split: int) -> ndarray:
        return np.asarray(self.rewards[split].mean(0))

    def values(self, name: str) -> ndarray:
        return np.array([_resample(run.C, getattr(run, name), self.C) for run in self.runs]).mean(0)


def _pilot(curves: Sequence[Curve]) -> list[Curve]:
    on_rule = [c for c in curves if multiplier(c) == 1.0]
    pilot = [c for c in on_rule if c.purpose == "pilot"] or [c for c in on_rule if c.purpose != "probe"]
    if not pilot:
        raise UserError("nothing to fit: no pilot run at the fitted learning rate has an evaluation")
    _named_once(pilot)
    pilot = list({c.run: c for c in sorted(pilot, key=lambda c: (c.arm["n"], c.seed, c.run))}.values())
    for a, b in pairwise(pilot):
        if a.arm["n"] == b.arm["n"] and _arm(a) != _arm(b):
            raise UserError(f"runs {a.run} and {b.run} have n={a.arm['n']} but {_rest(a)} and {_rest(b)}; a law needs "
                            "one B and one learning-rate rule: fit them separately")
        if (a.arm["n"], a.seed) == (b.arm["n"], b.seed):
            raise UserError(f"runs {a.run} and {b.run} are both n={a.arm['n']}, seed {a.seed}; a seed counts once: "
                            "remove one of them")
    return pilot


def _named_once(pilot: list[Curve]) -> None:
    """A run given twice counts once; two different runs of one name come from two studies and are ambiguous."""
    for a, b in pairwise(sorted(pilot, key=lambda c: c.run)):
        if a.run == b.run and (_arm(a), a.seed) != (_arm(b), b.seed):
            raise UserError(f"two runs are called {a.run}: n={a.arm['n']}, {_rest(a)} and n={b.arm['n']}, {_rest(b)}; "
                            "a law needs one B and one learning-rate rule: fit them separately")


def _arm(c: Curve) -> Arm:
    """What the runs of one n may not differ in."""
    return c.arm.only("n", "B", "lr")


def _rest(c: Curve) -> str:
    return f"B={c.arm['B']}, lr={c.arm['lr']:g}"


def _base(curves: list[Curve]) -> tuple[float, float]:
    """The base's reward on each split: measured, as in ScaleRL, not fitted."""
    first = [c for c in curves if c.C[0] == 0]
    if not first:
        raise UserError("no run has an evaluation at C = 0, and the law needs the base's reward")
    return float(np.mean([c.select[0] for c in first])), float(np.mean([c.audit[0] for c in first]))


def _means(pilot: list[Curve]) -> tuple[list[_Means], list[Flag]]:
    """The arms by n, and flags for what was left out."""
    flags, arms = _batches(pilot), []
    for n in sorted({c.arm["n"] for c in pilot}):
        every = [c for c in pilot if c.arm["n"] == n]
        runs = [c for c in every if not c.diverged]
        fallen = [c for c in every if c.diverged]
        if fallen:
            flags.append(Flag("diverged", f"n={n}: {len(fallen)} of {counted(len(every), 'run')} left out: "
                                          "diverged (NaN, below the start, or back at it after a rise); use a lower "
                                          "learning rate"))
        whole = [c for c in runs if c.C[-1] >= WHOLE * max(r.C[-1] for r in runs)]
        if len(whole) < len(runs):
            flags.append(Flag("short", f"n={n}: {len(runs) - len(whole)} of {counted(len(runs), 'run')} left out: "
                                       "ended early"))
        if not whole:
            continue
        arm = _mean(whole, [float(c.audit[-1]) for c in fallen])
        shortest, longest = (of(whole, key=lambda c: c.C[-1]) for of in (min, max))
        if shortest.C[-1] < CUT * longest.C[-1]:
            flags.append(Flag("cut", f"n={n}: the curve ends at {shortest.C[-1]:,.0f} rollouts, where its shortest run "
                                     f"({shortest.run}) ended; its longest ({longest.run}) reached "
                                     f"{longest.C[-1]:,.0f}; later evaluations are not fitted"))
        if len(arm.C) < POINTS:
            flags.append(Flag("short", f"n={n}: {counted(len(arm.C), 'evaluation')} after the base; a curve needs "
                                       f"{POINTS}"))
            continue
        arms.append(arm)
    return arms, flags


def _collapsed(logged: list[Curve]) -> list[Flag]:
    """Runs that diverged after they had risen."""
    found = [(c, ends_of(c, c.problems)) for c in logged if c.diverged]
    return [Flag("collapsed", f"{c.run} rose to {at.peak:.3f} and fell back to {at.end:.3f}; it had started at "
                              f"{at.start:.3f}. Its best checkpoint is an earlier one")
            for c, at in found if at.fell_back]


def _batches(pilot: list[Curve]) -> list[Flag]:
    """Checks that all runs have one B, or one nB: these are two questions, which are never pooled."""
    if len({c.arm["B"] for c in pilot}) == 1:
        return []
    if len({c.arm["n"] * c.arm["B"] for c in pilot}) == 1:
        size = pilot[0].arm["n"] * pilot[0].arm["B"]
        return [Flag("fixed_batch", f"n B is {size} in every run: this law trades n against B and does not give the "
                                    "best n at one B")]
    found = ", ".join(map(str, sorted({c.arm["B"] for c in pilot})))
    raise UserError(f"the runs have B = {found}: a law needs one B for all n, or one n B; fit them separately")


def _mean(runs: list[Curve], fallen: Sequence[float] = ()) -> _Means:
    end = min(float(c.C[-1]) for c in runs)
    longest = max(runs, key=lambda c: len(c.C))
    C = np.unique(longest.C[(longest.C > 0) & ~(end < longest.C)])
    rewards = np.array([[_resample(c.C, values, C) for c, values in zip(runs, split, strict=True)]
                        for split in ([c.select for c in runs], [c.audit for c in runs])])
    error = np.array([[np.zeros(len(C)) if c.error is None else _resample(c.C, c.error[split], C) for c in runs]
                      for split in (SELECT, AUDIT)])
    return _Means(runs, fallen, C, rewards, error)


def _resample(C: ndarray, values: ndarray, at: ndarray) -> ndarray:
    """A run's values at common points, linear in ln C between its own; a point evaluated twice counts once."""
    points, index = np.unique(C[C > 0], return_inverse=True)
    if not len(points):
        return np.full(len(at), np.nan)
    mean = np.bincount(index, weights=values[C > 0]) / np.bincount(index)
    return np.interp(np.log(at), np.log(points), mean)


def _moved(arms: list[_Means], base: tuple[float, float]) -> list[bool]:
    end = np.log(min((arm.C[-1] for arm in arms), default=1.0))       # a common one: some arms may have been extended
    gains = [float(np.interp(end, np.log(arm.C), arm.mean(SELECT))) - base[SELECT] for arm in arms]
    return [gain > 0 and gain >= MOVED * max(gains) for gain in gains]


def _pool(arms: list[_Means], base: tuple[float, float]) -> tuple[Noise, bool]:
    """The run-to-run noise over arms that have moved, so that their seeds have diverged; and whether it was
    measured."""
    C = np.unique(np.concatenate([arm.C for arm in arms])) if arms else np.ones(1)
    several = [(arm, moved) for arm, moved in zip(arms, _moved(arms, base), strict=True) if len(arm.runs) > 1]
    used = [arm for arm, moved in several if moved] or [arm for arm, _ in several]
    dof = sum(len(arm.runs) - 1 for arm in used)
    if not dof:
        return (logged_noise(C) if all(run.training for arm in arms for run in arm.runs) else prior_noise(C)), False
    rows = [[np.interp(np.log(C), np.log(arm.C), row) for arm in used
             for row in (arm.rewards[split] - arm.mean(split)) / spread(arm.mean(split))] for split in (SELECT, AUDIT)]
    residuals = np.array(rows)
    if any(arm.error.any() for arm in used):
        known = [[np.interp(np.log(C), np.log(arm.C), row) for arm in used
                  for row in arm.error[split] / spread(arm.mean(split))] for split in (SELECT, AUDIT)]
        residuals = evened(residuals, np.array(known), dof)
    return Noise(C, _rounded(residuals), float(dof)), True


def _fit_arms(means: list[_Means], base: tuple[float, float], noise: Noise, draws: int, rng: np.random.Generator
              ) -> tuple[tuple[FittedArm, ...], ndarray]:
    """Every arm on both splits: least squares for curve and folds, then a posterior; and the forms' weights (2, F +
    1)."""
    if not means:
        return (), np.outer(KIN, np.append(np.full(len(TAILS), 1 / len(TAILS)), 0.0))
    fitted = _points(means, base)
    strata = (rng.permutation(draws) + rng.random(draws)) / draws
    u = rng.random((len(means), 3, draws))
    mixed, weights = rng.permutation(draws), []
    u[-1, 0] = strata
    logged = any(run.noisy for arm in means for run in arm.runs)        # in noisy logs a second rise is not looked for
    late, seconds = rng.random((len(means), draws)), Seconds.of(max(float(arm.C[-1]) for arm in means))
    drawn = []
    for split in (SELECT, AUDIT):
        observed = _observed(means, split, noise, base[split])
        found = [joint(observed, base[split], tail, u, (1.0, APART)) for tail in TAILS]
        again = [replace(one, evidence=-np.inf) for one in found[0]]
        if not logged:
            again = joint(observed, base[split], TAILS[0], u, (1.0, APART), seconds)
        chains = list(zip(*found, again, strict=True))                      # by kinship, then form, a second rise last
        evidence = np.array([[c.evidence for c in row] for row in chains])
        twice = second_weight(evidence[:, :-1], evidence[:, -1], KIN)
        once = (1 - twice.sum()) * form_weights(evidence[:, :-1], KIN)
        weights.append(np.concatenate([once, twice[:, None]], 1))
        model = np.searchsorted(np.cumsum(weights[-1])[:-1], (mixed + 0.5) / draws)
        drawn.append(_drawn([c for row in chains for c in row], model, u))
        at = model % (len(TAILS) + 1) == len(TAILS)
        for seen, rows, uniform in zip(observed, drawn[-1], late, strict=True):
            rows[at, 0], rows[at, 4:] = 0, seen.second_rises(base[split], rows[at, 1:4], seconds, uniform[at])
    arms = []
    for place, (arm, own, moved) in enumerate(zip(means, fitted, _moved(means, base), strict=True)):
        first = arm.runs[0]
        fits = [_fit(own[split], drawn[split][place]) for split in (SELECT, AUDIT)]
        arms.append(FittedArm(first.arm["n"], first.arm["B"], first.arm["lr"], tuple(c.run for c in arm.runs),
                              tuple(c.seed for c in arm.runs), len(arm.fallen), arm.C, arm.rewards[SELECT],
                              arm.rewards[AUDIT], arm.values("epochs"), arm.values("seconds"), moved,
                              (fits[SELECT], fits[AUDIT]), tuple(arm.fallen)))
    return tuple(arms), np.asarray(np.mean(weights, 0))


def _drawn(chains: Sequence[Chain], model: ndarray, u: ndarray) -> ndarray:
    """Draw d of every arm from the chain of model d: (arms, D, 7), the form's index first, no second rise last."""
    out = np.zeros((u.shape[0], u.shape[2], 7))
    for place, one in enumerate(chains):
        at = model == place
        if at.any():
            out[:, at, 0], out[:, at, 1:4] = place % (len(TAILS) + 1), one.draws(u[:, :, at])
    return out


def _observed(means: list[_Means], split: int, noise: Noise, base: float) -> list[ArmMean]:
    """Each arm's mean with its covariance, at the few points that are used (`thinned`)."""
    at = thinned(noise.C)
    rho = correlation(noise.C[at], noise.residuals[split][:, at])
    out = []
    for arm in means:
        error, mean = noise.sd(arm.C, arm.mean(split), split) / np.sqrt(len(arm.runs)), arm.mean(split)
        at, sd = thinned(arm.C), np.maximum(error, LEAST_SD * np.median(error))
        spread_of_mean = covariance(arm.C[at], sd[at], rho) + transient(arm.C[at], mean[at], base)
        spread_of_mean += np.diag((arm.error[split, :, at] ** 2).sum(1) / len(arm.runs) ** 2)
        out.append(ArmMean(arm.runs[0].arm["n"], arm.C[at], mean[at], spread_of_mean, noise.dof))
    return out


def _points(means: list[_Means], base: tuple[float, float]) -> list[list[ndarray]]:
    """Per arm and split the least-squares parameters (F, 1 + folds, 4): of the mean, then with each run left out."""
    out: list[list[ndarray]] = [[] for _ in means]
    for split in (SELECT, AUDIT):
        rows = [np.concatenate([arm.mean(split)[None], _folds(arm, split)]) for arm in means]
        together: dict[bytes, list[int]] = {}
        for place, arm in enumerate(means):
            together.setdefault(arm.C.tobytes(), []).append(place)
        for places in together.values():
            C, y = means[places[0]].C, np.concatenate([rows[i] for i in places])
            found = np.stack([fit_many(rise(tail), C, y, C**LATE, {"R0": base[split]})[0] for tail in TAILS])
            for i, own in zip(places, np.split(found, np.cumsum([len(rows[i]) for i in places])[:-1], 1), strict=True):
                out[i].append(own)
    return out


def _folds(arm: _Means, split: int) -> ndarray:
    """The arm's mean with each run left out in turn (S, K); empty if it has one run."""
    runs = len(arm.runs)
    return (runs * arm.mean(split) - arm.rewards[split]) / (runs - 1) if runs > 1 else arm.rewards[split][:0]


def _fit(values: ndarray, drawn: ndarray) -> Fit:
    names = ("R0", "A", "Cmid", "b")
    drawn = _rounded(drawn)
    return Fit(dict(zip(names, map(float, values[0, 0]), strict=True)), _rounded(values[:, 0, 1:]), drawn[:, :4],
               _rounded(values[:, 1:, 1:].swapaxes(0, 1)), drawn[:, 4:])


def _rounded(values: ndarray) -> ndarray:
    """Rounded to `DIGITS` significant digits."""
    with np.errstate(divide="ignore"):
        size = np.where(values == 0, 0.0, np.floor(np.log10(np.abs(values))))
    scale = 10.0 ** (DIGITS - 1 - np.where(np.isfinite(size), size, 0.0))
    return np.asarray(np.round(values * scale) / scale)
