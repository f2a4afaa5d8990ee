"""Sharper predictive distributions for logs of other trainers: what was tried on the three public sets, and how it did.

    python experiments/outside_forms.py MIRROR              writes results/outside/forms.json (3 minutes of one core)
    python experiments/outside_forms.py MIRROR --freeze     prints the constants of `FROZEN` and `PRIOR`
    python experiments/outside_forms.py MIRROR --fourth     writes results/outside/forms_fourth.json

All three sets have been judged before, so their figures are development, not evidence on fresh logs. `outside.py` has
the cases, the weights and the scores.

One form, `PICKED`, had its constants chosen on all 41 sources and frozen before any forecast of the fourth set. It is
an experiment: the law does not use it. `--fourth` forecasts that set with it, once.

A form is a location with a lower and an upper scale. The location lies between the run's level and the law's value, by
a share that is fitted. Each scale is the root of a sum of squares: `TERMS`, each times a fitted constant, and `LEAST`;
it grows with the fourth root of the doublings beyond what was seen. The distribution is Student's t of `DOF` degrees of
freedom with these two scales, cut at 0 and 1, and the interval is from its 5 % to its 95 % quantile.

The constants maximise the likelihood of the outcomes, all sources alike, with the source that is forecast left out. The
logarithmic score is proper, as the interval score is, and counts a relative error of a scale alike in quiet and in
restless logs. The last two forms are chosen among `FAMILY` anew for each source, by the scores on the other sources.
These scores come from fits that saw the source, which favours these two a little.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.optimize import minimize
from scipy.special import stdtrit

import outside
from isocost.laws.curves import point_noise
from isocost.laws.fit import fit_law
from isocost.laws.law import Law
from outside import LEAST as POINTS
from outside import LEVEL, NAIVE, SIZE, TRAINING, interval, median, score, shown, weigh

SETS = ("tuning", "reporting", "third")
TERMS = {
    "spread": "the law's own prediction interval",
    "draws": "the spread of the law's curves",
    "step": "the step per doubling of a random walk through the run",
    "level": "the error of the run's level",
    "past": "errors of the law's forecasts from the first half and quarter of what was seen",
    "missed": "the distance from the law's curve to the last tenth seen",
    "gain": "the gain over the last doubling seen",
    "wander": "tenths of the last half about their line",
}
CHOSEN = {"likelihood": "chosen on the other sources by likelihood",
          "score": "chosen on the other sources by interval score"}
NOW, NAIVELY, WIDE = "the law now", "last tenth's mean", "last tenth's mean, wide enough to hold 90 %"
PICKED = "the same, and below also what the curve misses"
NAMED = {
    "the law's interval": (("spread",), ("spread",)),
    "random walk": (("level", "step"), ("level", "step")),
    "recent changes": (("gain", "wander"), ("gain", "wander")),
    "law and random walk": (("spread", "step"), ("spread", "step")),
    "law and its earlier errors": (("spread", "past"), ("spread", "past")),
    PICKED: (("spread", "past", "missed"), ("spread", "past")),
    "the best mean score found": (("level", "past", "missed"), ("level", "past", "draws")),
}
PRIOR = (-3.8553924772872894, 0.37310823373537644)     # of steps, frozen: see `prior`
FROZEN = (0.43091417, -1.29071248, -3.01345122, -0.56262946, -0.15299421, -0.98028395)      # of `PICKED`: see `scales`
DOF = 3.0
LEAST = 0.003       # of a scale, in reward
BLOCK, BLOCKS = 0.125, 16                       # of the random walk: doublings in a block, blocks back from the end
STEPS = np.geomspace(0.003, 0.5, 25)            # steps per doubling that are summed over
SHORTER = (1.0, 0.9, 0.8, 0.7, 0.6)             # factors on the distances of the law's ends, for what a ratio costs
DRAWS, SEED = 2000, 0                           # of sources, for the intervals


def subsets(names: Sequence[str]) -> list[tuple[str, ...]]:
    """All sets of at least one of these names."""
    return [found for size in range(1, len(names) + 1) for found in itertools.combinations(names, size)]


FAMILY = tuple(itertools.product(subsets(("spread", "level", "missed", "past")),
                                 subsets(("spread", "draws", "past", "gain"))))


@dataclass(frozen=True, eq=False)
class Seen:
    """What the forms use of N cases: weights, sources and outcomes (N,), the terms, and the law's forecasts now."""

    cases: Sequence[dict[str, Any]]
    weights: ndarray
    source: ndarray
    true: ndarray
    doublings: ndarray
    middle: ndarray         # the run's level
    law: ndarray            # (N, 3): value, low, high
    terms: Mapping[str, ndarray]
    runs: Sequence[tuple[ndarray, ndarray]] = ()        # block means and their errors, of each case


# what a run says ----------------------------------------------------------------------------------------------------

def blocks(C: ndarray, reward: ndarray) -> tuple[ndarray, ndarray]:
    """(means, variances of their errors) of blocks even in ln C, (BLOCKS,) each, the last block first; NaN if empty."""
    noise = point_noise(reward[1:]) ** 2 if len(reward) > 3 else 0.0025
    means, errors = np.full(BLOCKS, np.nan), np.full(BLOCKS, np.nan)
    for j in range(BLOCKS):
        own = (2 ** (-(j + 1) * BLOCK) * C[-1] < C) & (2 ** (-j * BLOCK) * C[-1] >= C)
        if own.any():
            means[j], errors[j] = reward[own].mean(), (noise + 1e-6) / own.sum()
    return means, errors


def over_runs(values: ndarray) -> ndarray:
    """The mean over runs (S, K) of the values that are there; NaN where there are none."""
    count = np.isfinite(values).sum(0)
    return np.where(count > 0, np.nansum(values, 0) / np.maximum(count, 1), np.nan)


def walked(means: ndarray, errors: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """(log likelihood, level at the end, its variance), (N, STEPS) each, of random walks through blocks (N, BLOCKS)."""
    size = len(means), len(STEPS)
    fit, level, variance = np.zeros(size), np.full(size, 0.5), np.ones(size)
    for j in reversed(range(BLOCKS)):
        if j < BLOCKS - 1:
            variance = variance + BLOCK * STEPS**2
        off, total = means[:, j : j + 1] - level, variance + errors[:, j : j + 1]
        some = ~np.isnan(off)
        fit = fit + np.where(some, -0.5 * (np.log(np.where(some, total, 1)) + off**2 / total), 0)
        level = np.where(some, level + variance / total * off, level)
        variance = np.where(some, variance * errors[:, j : j + 1] / total, variance)
    return fit, level, variance


def prior(x: Sequence[float]) -> ndarray:
    """Shares of `STEPS`: a lognormal, by the mean and the log of the sd of its logs."""
    found = np.exp(-0.5 * ((np.log(STEPS) - x[0]) / math.exp(x[1])) ** 2)
    return np.asarray(found / found.sum())


def prior_of(means: ndarray, errors: ndarray, weights: ndarray) -> tuple[float, float]:
    """The constants of the likeliest `prior` of runs. It uses what is shown of them, and no outcome."""
    fit = walked(means, errors)[0]
    relative = np.exp(fit - fit.max(1, keepdims=True))
    best = minimize(lambda x: -float(weights @ np.log(relative @ prior(x))), [math.log(0.05), 0.0],
                    method="Nelder-Mead").x
    return float(best[0]), float(best[1])


def levels(means: ndarray, errors: ndarray, weights: ndarray, constants: tuple[float, float] | None = None
           ) -> tuple[ndarray, ndarray, ndarray]:
    """(level, its error, step per doubling) of each of N runs, with this prior of steps; fitted to them without one."""
    fit, level, variance = walked(means, errors)
    share = np.exp(fit - fit.max(1, keepdims=True)) * prior(constants or prior_of(means, errors, weights))
    share = share / share.sum(1, keepdims=True)
    mean = (share * level).sum(1)
    return mean, np.sqrt((share * (variance + (level - mean[:, None]) ** 2)).sum(1)), np.sqrt(share @ STEPS**2)


def changes(C: ndarray, reward: ndarray) -> tuple[float, float]:
    """(gain over the last doubling, sd of the tenths of the last half about their line)."""
    tenths = [part(C, reward, 0.5 + i / 10, 0.6 + i / 10) for i in range(5)]
    line = np.polyval(np.polyfit(range(5), tenths, 1), range(5))
    return (part(C, reward, 0.9, 1.0) - part(C, reward, 0.45, 0.55),
            float(np.sqrt(((np.array(tenths) - line) ** 2).sum() / 3)))


def part(C: ndarray, reward: ndarray, start: float, end: float) -> float:
    """The mean reward between two shares of a run; between its points if it has none there."""
    own = (start * C[-1] < C) & (end * C[-1] >= C)
    return float(reward[own].mean() if own.any() else np.interp((start + end) / 2 * C[-1], C, reward))


def law_of(one: outside.Logged, parts: Sequence[tuple[ndarray, ndarray]]) -> Law | None:
    """The law of these parts of runs, its upper ends not moved; None without a curve."""
    if min(len(C) for C, _ in parts) < POINTS + 1:
        return None
    found = fit_law([outside.curve(one.study, i, C, r, True, one.kind == TRAINING) for i, (C, r) in enumerate(parts)])
    return replace(found, upper=1.0) if found.arms else None


def earlier_errors(one: outside.Logged, parts: Sequence[tuple[ndarray, ndarray]]) -> list[float]:
    """Errors of the law's forecasts from the first half and quarter of what was seen, of its middle and its end."""
    errors = []
    for cut in (0.5, 0.25):
        law = law_of(one, [(C[cut * C[-1] >= C], r[cut * C[-1] >= C]) for C, r in parts])
        for at, start, end in ((0.5, 0.45, 0.55), (0.95, 0.9, 1.0)):
            if law is not None and at > cut:
                true = np.mean([part(C, r, start, end) for C, r in parts])
                value = law.curve(SIZE, at * float(np.mean([C[-1] for C, _ in parts])), "prediction", len(parts)).value
                errors.append(float(true - value[0]))
    return errors


def sight(one: outside.Logged, seeds: int, hidden: float) -> dict[str, Any] | None:
    """The numbers of one case; None if the law has no curve."""
    parts = [shown(run, hidden) for run in one.runs[:seeds]]
    law, (at, _) = law_of(one, parts), outside.outcome(one.runs[:seeds])
    if law is None:
        return None
    end = float(np.mean([C[-1] for C, _ in parts]))
    paths, band = law.paths(SIZE, np.array([end, at])), law.curve(SIZE, at, "prediction", seeds)
    gains, wanders = np.array([changes(C, r) for C, r in parts]).T
    means, errors = (over_runs(np.array(x)) for x in zip(*(blocks(C, r) for C, r in parts), strict=True))
    gain, wander = float(gains.mean()), float(np.sqrt((wanders**2).mean() / seeds))
    past = earlier_errors(one, parts) or [math.hypot(gain, wander)]
    last = np.mean([part(C, r, 0.9, 1.0) for C, r in parts])
    return {"spread": float(band.high[0] - band.low[0]) / 2 / float(stdtrit(np.inf, (1 + LEVEL) / 2)),
            "draws": float(paths[:, 1].std()), "past": float(np.sqrt(np.mean(np.square(past)))),
            "missed": float(abs(paths[:, 0].mean() - last)), "gain": gain, "wander": wander,
            "doublings": math.log2(at / end), "means": means, "errors": errors / seeds}


def seen(mirror: Path, halves: Sequence[str] = SETS, constants: tuple[float, float] | None = None) -> Seen:
    """All cases of these sets in which the law has a curve; `constants` of `prior`, fitted to them without."""
    found = []
    for half in halves:
        judged = {(x["source"], x["study"], x["kind"], x["seeds"], x["hidden"]): x
                  for x in outside.read(f"{half}.json")["cases"]}
        logs = outside.checked(mirror, half)
        for one, seeds, hidden in outside.cases(logs, half):
            case = judged[one.source, one.study, one.kind, seeds, hidden]
            own = sight(one, seeds, hidden) if "law" in case else None
            if own is not None:
                found.append((case, half, own))
    cases = [{**case, "half": half} for case, half, _ in found]
    weights = weigh(cases, False)
    numbers = {key: np.array([own[key] for *_, own in found]) for key in found[0][2]}
    middle, error, step = levels(numbers["means"], numbers["errors"], weights, constants)
    terms = {"level": error, "step": step, **{key: numbers[key] for key in TERMS if key in numbers}}
    return Seen(cases, weights, np.array([x["source"] for x in cases]), np.array([x["outcome"] for x in cases]),
                numbers["doublings"], middle, np.array([x["law"] for x in cases]), terms,
                list(zip(numbers["means"], numbers["errors"], strict=True)))


# the forms ----------------------------------------------------------------------------------------------------------

def scales(data: Seen, x: ndarray, below: Sequence[str], above: Sequence[str]) -> tuple[ndarray, ndarray, ndarray]:
    """(location, lower scale, upper scale) of each case with these constants: the law's share, logs of the others."""
    at = data.middle + x[0] * (data.law[:, 0] - data.middle) * np.minimum(data.doublings, 1)
    low, high = (
        np.sqrt(sum((math.exp(min(max(c, -6.0), 3.0)) * data.terms[term]) ** 2
                    for c, term in zip(own, names, strict=True)) + LEAST**2) * data.doublings**0.25
        for own, names in ((x[1 : 1 + len(below)], below), (x[1 + len(below):], above)))
    return at, low, high


def surprise(true: ndarray, at: ndarray, low: ndarray, high: ndarray) -> ndarray:
    """Minus the log density of outcomes, up to a constant: t of two scales, equal in density at the location."""
    off = (true - at) / np.where(true < at, low, high)
    return np.asarray(np.log(low + high) + (DOF + 1) / 2 * np.log1p(off**2 / DOF))


def ends(at: ndarray, low: ndarray, high: ndarray) -> tuple[ndarray, ndarray]:
    """The 5 % and 95 % quantiles of that distribution, cut at 0 and 1."""
    tail, both = (1 - LEVEL) / 2, low + high
    return (np.clip(at + low * stdtrit(DOF, np.minimum(tail * both / (2 * low), 0.5)), 0, 1),
            np.clip(at - high * stdtrit(DOF, np.minimum(tail * both / (2 * high), 0.5)), 0, 1))


def likeliest(data: Seen, below: Sequence[str], above: Sequence[str], used: ndarray, start: ndarray | None = None
              ) -> ndarray:
    """The constants of a form at which the outcomes of the cases used are likeliest."""
    weights = np.where(used, data.weights, 0)
    first = np.array([0.4, *[-0.7] * (len(below) + len(above))]) if start is None else start
    return np.asarray(minimize(
        lambda x: float(weights @ surprise(data.true, *scales(data, x, below, above))) / weights.sum(), first,
        method="L-BFGS-B").x)


def without_each(data: Seen, below: Sequence[str], above: Sequence[str]) -> tuple[ndarray, ndarray, ndarray]:
    """(low, high, surprise) of each case, by constants from the other sources."""
    whole = likeliest(data, below, above, np.ones(len(data.true), bool))
    low, high, marks = (np.empty(len(data.true)) for _ in range(3))
    for name in dict.fromkeys(data.source.tolist()):
        own = data.source == name
        found = scales(data, likeliest(data, below, above, ~own, whole), below, above)
        low[own], high[own] = (x[own] for x in ends(*found))
        marks[own] = surprise(data.true, *found)[own]
    return low, high, marks


def chosen_by_others(data: Seen, found: Sequence[tuple[ndarray, ndarray, ndarray]]) -> tuple[ndarray, ndarray]:
    """(low, high) of each case, by the form (low, high, marks) of the least mean mark on the other sources."""
    low, high = np.empty(len(data.true)), np.empty(len(data.true))
    for name in dict.fromkeys(data.source.tolist()):
        own = data.source == name
        weights = np.where(own, 0, data.weights)
        best = min(found, key=lambda x: float(weights @ x[2]))
        low[own], high[own] = best[0][own], best[1][own]
    return low, high


# how they did -------------------------------------------------------------------------------------------------------

def scored(low: ndarray, high: ndarray, true: ndarray) -> ndarray:
    """Interval scores (N,)."""
    return np.array([score(*x) for x in zip(low, high, true, strict=True)])


def figures(data: Seen, low: ndarray, high: ndarray, tuning: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Shares that hold, median scores over the best naive forecast's, and mean scores over the law's as it is now.

    `apart` holds the last, and the same of medians, each with its 95 % interval over sources.
    """
    marks, now = scored(low, high, data.true), scored(*data.law[:, 1:].T, data.true)
    holds = (low <= data.true) & (data.true <= high)
    training = np.array([x["kind"] == TRAINING for x in data.cases])
    third = np.array([x["half"] == SETS[-1] for x in data.cases])
    naive = {name: scored(*np.array([interval(x, name, tuning) for x in data.cases]).T, data.true) for name in NAIVE}

    def over(used: ndarray) -> dict[str, float]:
        weights = weigh([x for x, own in zip(data.cases, used, strict=True) if own], False)
        best = min(median(x[used], weights) for x in naive.values())
        return {"held": float(np.average(holds[used], weights=weights)),
                "ratio": median(marks[used], weights) / best,
                "score": float(np.average(marks[used], weights=weights))}

    def apart(times: ndarray) -> tuple[float, float]:
        weights = data.weights * times
        return (float(weights @ marks / (weights @ now)), median(marks, weights) / median(now, weights))

    names, place = np.unique(data.source, return_inverse=True)
    rng, once = np.random.default_rng(SEED), apart(np.ones(len(data.true)))
    drawn = np.array([apart(rng.multinomial(len(names), np.full(len(names), 1 / len(names)))[place])
                      for _ in range(DRAWS)])
    spread = np.percentile(drawn, (2.5, 97.5), axis=0)
    every = np.ones(len(data.true), bool)
    out: dict[str, dict[str, Any]] = {
        "all": over(every), "training": over(training), **({"third": over(third)} if third.any() else {}),
        "apart": {key: [once[i], *spread[:, i]] for i, key in enumerate(("mean", "median"))}}
    return {key: {k: np.round(v, 4).tolist() for k, v in own.items()} for key, own in out.items()}


def widened(data: Seen) -> tuple[ndarray, ndarray]:
    """The last tenth's mean, with errors of its kind on other sources, so wide that `LEVEL` of all cases hold."""
    value = np.array([x["naive"]["last tenth"] for x in data.cases])
    errors, kind = data.true - value, np.array([f"{x['kind']} {x['hidden']}" for x in data.cases])
    for tail in (0.05, 0.04, 0.03, 0.02, 0.01):
        low, high = np.empty(len(value)), np.empty(len(value))
        for i, name in enumerate(data.source):
            others = (data.source != name) & (kind == kind[i])
            order = np.argsort(errors[others])
            share = np.cumsum(data.weights[others][order]) / data.weights[others].sum()
            at = np.minimum(np.searchsorted(share, (tail, 1 - tail)), len(order) - 1)
            low[i], high[i] = np.clip(value[i] + errors[others][order][at], 0, 1)
        if np.average((low <= data.true) & (data.true <= high), weights=data.weights) >= LEVEL:
            break
    return low, high


def fourth(mirror: Path) -> None:
    """Forecast the fourth set with the frozen form."""
    data, tuning = seen(mirror, ("fourth",), PRIOR), outside.read("tuning_before.json")["cases"]
    own = {NOW: (data.law[:, 1], data.law[:, 2]), NAIVELY: np.array(
        [interval(x, "last tenth", tuning) for x in data.cases]).T,
        PICKED: ends(*scales(data, np.array(FROZEN), *NAMED[PICKED]))}
    rows = [{"form": name, **figures(data, *found, tuning)} for name, found in own.items()]
    outside.write("forms_fourth.json", {"sources": len(set(data.source.tolist())), "cases": len(data.true),
                                        "forms": rows})


def main() -> None:
    """The command line of the first lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mirror", type=Path)
    parser.add_argument("--freeze", action="store_true", help="print the constants of the frozen form")
    parser.add_argument("--fourth", action="store_true", help="forecast the fourth set with the frozen form")
    asked = parser.parse_args()
    if asked.fourth:
        fourth(asked.mirror)
        return
    data = seen(asked.mirror)
    if asked.freeze:
        numbers = [np.array(x) for x in zip(*data.runs, strict=True)]
        print(prior_of(*numbers, data.weights), likeliest(data, *NAMED[PICKED], np.ones(len(data.true), bool)))
        return
    tuning = outside.read("tuning_before.json")["cases"]
    rows: list[dict[str, Any]] = []

    def add(name: str, low: ndarray, high: ndarray, constants: int | None = None) -> None:
        rows.append({"form": name, "constants": constants, **figures(data, low, high, tuning)})
        print(rows[-1])

    value, low, high = data.law.T
    for factor in SHORTER:
        name = NOW if factor == 1 else f"{NOW}, ends at {factor:g} of their distance"
        add(name, value - factor * (value - low), value + factor * (high - value))
    add(NAIVELY, *np.array([interval(x, "last tenth", tuning) for x in data.cases]).T)
    add(WIDE, *widened(data))
    for name, (below, above) in NAMED.items():
        add(name, *without_each(data, below, above)[:2], 1 + len(below) + len(above))
    family = [without_each(data, *form) for form in FAMILY]
    add(CHOSEN["likelihood"], *chosen_by_others(data, family))
    add(CHOSEN["score"], *chosen_by_others(data, [(*x[:2], scored(*x[:2], data.true)) for x in family]))
    outside.write("forms.json", {"sources": len(set(data.source.tolist())), "cases": len(data.true),
                                 "family": len(FAMILY), "forms": rows})


if __name__ == "__main__":
    main()
