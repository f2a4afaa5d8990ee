"""Whether a pilot identifies the law and n*(C), and the flags of an identified law.

"Not identified" is a result: it states why, what would resolve it, and about how many rollouts that costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy import ndarray

from isocost.laws.law import ABOVE, AGAIN, AUDIT, EXTRAPOLATION, KNOWN, RISEN, SELECT, Flag, Growth, Law, NotIdentified
from isocost.screen.words import counted
from isocost.stats.forms import LOG_SIGMOID, fit_many, peak
from isocost.stats.intervals import Interval, student
from isocost.stats.posterior import SHAPE, thinned
from isocost.stats.power import MOST, seeds_for

BENT = 0.8          # bend, in standard errors, from which on a second rise may have begun
UNLIKELY = 0.1      # probability of a second rise from which on intervals are widened upward: the curves of one and of
                    # two rises differ in height by more than either is uncertain
LIKELY = 0.5        # and from which on it is flagged
USELESS = 0.4       # largest useful width of the narrowest prediction interval at EXTRAPOLATION times the pilot
HALF = 0.5          # probability that half of the gain of the most advanced arm lies within the pilot; below it the
                    # prior decides where the curve ends, not the pilot
SEEDS = 3           # fewer runs in an arm are flagged
LEAST = 2           # the least n a group baseline can have: a natural bound, not an edge of the grid
STEPS = 24          # points of ln C at which the best n is read
TAIL, LAST = 0.1, 8     # share and least number of an arm's last evaluations that its curve is compared with
FEWEST = 9          # with fewer evaluations an arm's own scatter is not known well enough for that
MISSED = 0.03       # a curve is flagged if it misses their mean by more than this reward, and
SURE = 0.997        # by more than noise does in this share of arms


def refusal(law: Law, measured: bool, ends: list[float]) -> NotIdentified | None:
    """Why the law as a whole is not identified, or None; `ends` are the largest C of each pilot run."""
    again = float(sum(ends))        # rollouts of the whole pilot once more
    if not law.arms:
        return NotIdentified("no n has a stable run with enough evaluations: every run diverged (NaN, below its start, "
                             "or back at it after a rise) or ended early",
                             "the pilot again at a quarter of the learning rate", again)
    if not measured:
        return NotIdentified("one run per n: the standard deviation between runs was not measured, so every interval "
                             f"assumes {law.sd:.3f} at reward 1/2",
                             "a second seed for every n (three are better)", again, "--seeds all=1")
    best = law.arm(law.fallback())
    if law.flat:
        gain, error = law.gain(best.n)
        why = (f"no n improved measurably: the best, n={best.n}, gained {gain:+.3f}, less than {RISEN:g} standard "
               f"errors of {error:.3f}")
        if gain <= 0:       # longer runs would fall further
            return NotIdentified(why, "another study at a quarter of the learning rate", again)
        return NotIdentified(why, "a pilot four times as long, at another learning rate if the probe's flags "
                             "suggest one", 4 * again, "--longer all=4x")
    short = [*_before_half(law), *_wide(law)]
    if short:
        return NotIdentified(f"pilot too short to identify the curves: {'; and '.join(short)}",
                             f"the runs of n={best.n} continued to 4 times their length",
                             3 * float(best.C[-1]) * len(best.runs), f"--longer {best.n}=4x")
    return None


def unforecast(law: Law) -> NotIdentified | None:
    """Why the curves of long noisy runs are not to be forecast, or None, whether or not the law ranks n."""
    best = law.arm(law.fallback())
    longer = (f"the runs of n={best.n} continued to 4 times their length", 3 * float(best.C[-1]) * len(best.runs),
              f"--longer {best.n}=4x")
    if still := law.still(best.n):
        return NotIdentified(still, *longer)
    short = _wide(law)
    return NotIdentified(f"runs too short for a forecast: {short[0]}", *longer) if short else None


def _before_half(law: Law) -> list[str]:
    """Why half of the gain of the most advanced arm may lie beyond the pilot; empty if it is likely within it."""
    passed = {arm.n: float((arm.fits[SELECT].midpoints(law.tails) < arm.C[-1]).mean()) for arm in law.arms}
    furthest = max(passed, key=lambda n: (passed[n], -n))
    if passed[furthest] >= HALF:
        return []
    return [f"no arm is likely (p >= {HALF:g}) to be past half of its gain; highest: n={furthest}, "
            f"p = {passed[furthest]:.2f}"]


def _wide(law: Law) -> list[str]:
    """How far the narrowest prediction interval is above its limit; empty if it is not. Of runs that do not diverge:
    longer runs would not narrow an interval that is wide because some do."""
    bands = {n: law.surviving.curve(n, EXTRAPOLATION * law.range[1], "prediction") for n in law.ns}
    widths = {n: float(band.high[0] - band.low[0]) for n, band in bands.items()}
    narrowest = min(widths, key=lambda n: (widths[n], n))
    if widths[narrowest] <= USELESS:
        return []
    return [f"at {EXTRAPOLATION} times its largest run the narrowest prediction interval, that of n={narrowest}, is "
            f"{widths[narrowest]:.2f} wide (limit {USELESS:g})"]


def cautions(law: Law, seen: Mapping[int, tuple[ndarray, ndarray]] | None = None) -> list[Flag]:
    """The flags that do not depend on where the law is evaluated.

    `seen` are C (K,) and mean rewards (K,) of the n whose arms hold means over bins, before binning.
    """
    if not law.arms:
        return []
    found = (*_edge(law), _few(law), _falls(law), _falling(law), *_misfits(law, seen or {}), *_bent(law), *_open(law))
    return [flag for flag in found if flag is not None]


def _edge(law: Law) -> list[Flag]:
    """Flags if the best n, at the pilot's end or at the largest C of a plan, is the first or last of the grid."""
    out: list[Flag] = []
    places = (1, "at the pilot's largest budget"), (EXTRAPOLATION, f"at {EXTRAPOLATION} times that budget")
    for ratio, where in places:
        n = law.best(ratio * law.range[1])
        if len(law.ns) < 2 or n not in (law.ns[0], law.ns[-1]) or out:
            continue
        if n == LEAST:
            out.append(Flag("natural_bound", f"n={LEAST} is best {where}: the least a group baseline can have, "
                                             "so this is a bound, not an edge of the grid"))
        else:
            side, beyond = ("largest", 2 * n) if n == law.ns[-1] else ("smallest", max(n // 2, LEAST))
            out.append(Flag("edge_of_grid", f"n={n} is best {where} and is the {side} n with a curve: the optimum "
                                            f"may lie beyond; an arm at n={beyond} resolves it"))
    return out


def _few(law: Law) -> Flag | None:
    few = [arm for arm in law.arms if len(arm.runs) < SEEDS]
    if not few:
        return None
    counts = ", ".join(f"n={arm.n} has {len(arm.runs)}" for arm in few)
    known = f"the pooled noise has {law.freedom}" if law.measured else "the noise is assumed"
    return Flag("few_seeds", f"fewer than {SEEDS} runs: {counts}; {known}")


def _falls(law: Law) -> Flag | None:
    """The share of runs that diverged, and the mean reward of all runs beside that of the others."""
    share = law.falls
    if share is None:
        return None
    of = [f"n={arm.n} {np.append(arm.audit[:, -1], arm.fallen).mean():.3f}, without them {arm.audit[:, -1].mean():.3f}"
          for arm in law.arms if arm.fallen]
    fell, runs = (sum(len(getattr(arm, k)) for arm in law.arms) for k in ("fallen", "runs"))
    expected = f"{share.value:.0%} of new runs are expected to ({share.low:.0%} to {share.high:.0%})"
    return Flag("falls", f"{fell} of {counted(fell + runs, 'run')} diverged: {expected}. Curves are of the other runs, "
                         f"predictions of all. Mean of all runs at their end: {'; '.join(of)}")


def _falling(law: Law) -> Flag | None:
    """Arms whose mean ends below its maximum by more than noise: no rising curve describes them."""
    fallen = []
    for arm in law.arms:
        mean = arm.select.mean(0)
        sd = law.noise.sd(arm.C, mean, SELECT) / math.sqrt(len(arm.runs))
        if mean.max() - mean[-1] > 3 * math.hypot(sd[mean.argmax()], sd[-1]) + 1e-9:
            fallen.append(f"n={arm.n} by {mean.max() - mean[-1]:.3f}")
    if not fallen:
        return None
    return Flag("falling", f"reward ends below its own maximum: {', '.join(fallen)}; fitted curves are monotone, so "
                           "their predictions for it are too high")


def _misfits(law: Law, seen: Mapping[int, tuple[ndarray, ndarray]] = MappingProxyType({})) -> list[Flag]:
    """Arms whose curve misses the mean of their last evaluations by more than the scatter of these allows.

    The scatter is that of second differences of the arm's mean (`bins`).
    """
    out = []
    for arm in law.arms:
        C, mean = seen.get(arm.n, (arm.C, arm.audit.mean(0)))
        if len(mean) < FEWEST:
            continue
        last = min(max(LAST, round(TAIL * len(mean))), len(mean) // 3)
        end, curve = mean[-last:].mean(), law.paths(arm.n, C[-last:], AUDIT).mean()
        second = mean[1:-1] - (mean[:-2] + mean[2:]) / 2
        error = math.sqrt(float((second**2).mean()) / 1.5 / last)
        if abs(curve - end) > max(MISSED, student(SURE, len(second)) * error):
            out.append(Flag("misfit", f"the curve of n={arm.n} does not fit its runs: fitted {curve:.3f}, mean of "
                                      f"the last {last} evaluations {end:.3f} (standard error {error:.3f}); "
                                      f"predictions for n={arm.n} may be off by as much"))
    return out


def bend(law: Law) -> float:
    """The upward bend of the last evaluations relative to fitted curves of one rise, in standard errors, mean over
    arms.

    From residuals r of the arms' means at the points of `thinned`: r(last) - 2 r(two before) + r(four before). All
    forms level off, so a second rise makes it positive. 0 if no arm has five points, or no draw of one rise.
    """
    bends = []
    for arm in law.arms:
        at, once = thinned(arm.C), arm.fits[AUDIT].second[:, 0] == 0
        if not once.any():
            continue
        fitted = law.paths(arm.n, arm.C[at], AUDIT)[once].mean(0)
        error = np.hypot(law.noise.sd(arm.C[at], fitted, AUDIT) / math.sqrt(len(arm.runs)), SHAPE)
        left = (arm.audit.mean(0)[at] - fitted) / error
        if len(at) >= 5:
            bends.append(float(left[-1] - 2 * left[-3] + left[-5]))
    return float(np.mean(bends)) if bends else 0.0


def upward(law: Law) -> float:
    """The factor on the distance of draws above the median: `ABOVE` if runs bend up at their end, `AGAIN` if a second
    rise is not unlikely, else 1."""
    if bend(law) > BENT:
        return ABOVE
    return AGAIN if law.twice > UNLIKELY else 1.0


def _bent(law: Law) -> list[Flag]:
    """Runs that rise again at their end, or whose curves probably do."""
    out, more = [], f"intervals are widened upward, by a factor of {law.above:g} from four times the pilot on"
    if bend(law) > BENT:
        out.append(Flag("bent", f"reward bends upward at the end of the runs, by {bend(law):.1f} standard errors of a "
                        f"single rise: a second one may have started; {more}"))
    if law.twice > LIKELY:
        out.append(Flag("second_rise", f"reward probably rises a second time (p = {law.twice:.2f}), and the pilot "
                        f"shows only the start of it; as many of the drawn curves have a second rise, and {more}"))
    return out


def _open(law: Law) -> list[Flag]:
    """Arms whose asymptote is not identified; with the runs that would resolve it if the law itself is identified."""
    out = []
    for arm in law.arms:
        low, high = np.quantile(arm.fits[SELECT].draws[:, 1], [(1 - law.level) / 2, (1 + law.level) / 2])
        if arm.moved and (high - low) / 2 <= KNOWN:
            continue
        why = f"asymptote not identified ({low:.2f} to {high:.2f})" if arm.moved else "no measurable gain yet"
        if law.refused is not None:
            out.append(Flag("identifiability", f"n={arm.n}: {why}"))
            continue
        further = max(4 * min(arm.fits[SELECT].parameters["Cmid"], 8 * arm.C[-1]), 2 * float(arm.C[-1]))
        cost = (further - arm.C[-1]) * len(arm.runs)
        out.append(Flag("identifiability", f"n={arm.n}: {why}; to resolve: its runs continued to "
                                           f"{further:,.0f} rollouts ({cost:,.0f} more)"))
    return out


def optimum(law: Law) -> Growth | NotIdentified | None:
    """n*(C) as a sigmoid of log2 n in ln C if the pilot identifies it, else why not; None without arms."""
    if not law.arms:
        return None
    found = _path(law)
    if law.refused is not None and isinstance(found, NotIdentified):
        return replace(law.refused, reason=found.reason)
    return found


def _path(law: Law) -> Growth | NotIdentified:
    reached = min(float(arm.C[-1]) for arm in law.arms)     # by all arms: beyond it they cannot be compared
    C = np.geomspace(min(_off_the_base(law), reached), reached, STEPS)
    winners = law.ns_at(C)
    refused = _no_path(law, C, winners)
    if refused is not None:
        return refused
    growth = _growth(law, C)
    rise = growth.draws[:, 1] - growth.draws[:, 0]
    if np.quantile(rise, (1 - law.level) / 2) <= 0:
        return NotIdentified("n* rises with compute in the fitted curves, but not in every posterior draw",
                             "as many seeds again for every n", _whole(law))
    return growth


def _whole(law: Law) -> float:
    return float(sum(arm.C[-1] * len(arm.runs) for arm in law.arms))


def _off_the_base(law: Law) -> float:
    """The first C at which the best curve has a tenth of its gain; before it all n are equal to the base."""
    C = np.geomspace(*law.range, 60)
    best = np.max([law.paths(n, C, SELECT).mean(0) for n in law.ns], axis=0)
    gain = best - law.R0[SELECT]
    return float(C[np.argmax(gain >= 0.1 * gain[-1])]) if gain[-1] > 0 else law.range[0]


def _no_path(law: Law, C: ndarray, winners: ndarray) -> NotIdentified | None:
    distinct = list(dict.fromkeys(winners.tolist()))
    shown = " then ".join(f"n={n}" for n in distinct)
    per_run = law.range[1] * max(len(arm.runs) for arm in law.arms)
    if len(law.ns) == 1:
        return NotIdentified(f"n={law.ns[0]} is the only n with a curve, so there is none to compare it with",
                             "runs of the same length at another n", per_run)
    always = np.array(law.ns)[law.close(C, law.margin).all(1)]
    if len(distinct) == 1 and len(always) <= 1:
        return NotIdentified(f"{shown} is best at every C of the pilot: no change of n* was observed",
                             "runs four times as long for every n", 3 * _whole(law))
    if len(always):
        seeds, extra = _seeds_to_separate(law)
        are = "is" if len(always) == 1 else "are"
        return NotIdentified(f"n={', '.join(map(str, always))} {are} equal to the best within margin or noise at every "
                             f"C of the pilot (best by the curves: {shown})", seeds, extra)
    if len(distinct) < 3:
        return NotIdentified("the four parameters of n*(C) need at least three best n within the pilot; it has "
                             f"{shown}",
                             "runs four times as long for every n", 3 * _whole(law))
    if np.any(np.diff(winners) < 0):
        return NotIdentified(f"the best n is not monotone in C ({shown}); a rising sigmoid does not describe it",
                             "as many seeds again for every n", _whole(law))
    if distinct[-1] == law.ns[-1]:
        return NotIdentified(f"n={distinct[-1]}, the largest tried, is best at the end: n* has not saturated",
                             f"an arm at n={2 * distinct[-1]}", per_run)
    return None


def _seeds_to_separate(law: Law) -> tuple[str, float]:
    """(seeds that detect the best n's lead over the next at the pilot's end with 80 % power; rollouts they cost)."""
    end = law.range[1]
    values = sorted((float(law.paths(n, np.array([end]), SELECT).mean()) for n in law.ns), reverse=True)
    gap = max(values[0] - values[1], law.margin)
    sd = float(law.noise.sd(np.array([end]), np.array([values[0]]), SELECT)[0])
    have = min(len(arm.runs) for arm in law.arms)
    need = max(seeds_for(gap, sd, level=law.level) or MOST, have + 1)
    if values[0] - values[1] < law.margin:
        proposed = f"{need} seeds per n, to detect a difference of {law.margin:g}; there may be none"
    else:
        proposed = f"{need} seeds per n, to separate the best from the next at the pilot's end ({gap:.3f} apart)"
    return proposed, (need - have) * end * len(law.ns)


def _growth(law: Law, C: ndarray) -> Growth:
    """The log-sigmoid through the best n, interpolated and smoothed, at each C, for mean curves and draws
    (IsoCompute)."""
    paths = np.stack([law.paths(n, C, SELECT) for n in law.ns])                         # (arms, D, K)
    winners = peak(np.log2(np.array(law.ns, dtype=float)), np.concatenate([paths.mean(1)[:, None], paths], axis=1))
    width = max(STEPS // 8, 1)
    padded = np.pad(winners, ((0, 0), (width, width)), mode="edge")
    smooth = np.array([padded[:, i : i + len(C)] for i in range(2 * width + 1)]).mean(0)
    values = fit_many(replace(LOG_SIGMOID, bounds=_bounds(law, C)), C, smooth)[0]   # bounded, not clipped after
    parameters = {}
    for place, name in enumerate(LOG_SIGMOID.parameters):
        low, high = np.quantile(values[1:, place], [(1 - law.level) / 2, (1 + law.level) / 2])
        value = float(values[0, place])
        parameters[name] = Interval(value, min(float(low), value), max(float(high), value), law.level, "confidence",
                                    law.dof)
    return Growth(parameters, values[1:])


def _bounds(law: Law, C: ndarray) -> tuple[tuple[float, float], ...]:
    """L and U within the grid of n, C0 within the pilot."""
    grid = (math.log2(law.ns[0]), math.log2(law.ns[-1]))
    return grid, grid, LOG_SIGMOID.bounds[2], (float(C[0]), float(C[-1]))
