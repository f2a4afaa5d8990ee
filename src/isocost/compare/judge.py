"""Judge which of several arms is better at equal cost.

Three questions are answered for every pair of arms:

    equal cost   the difference in reward at the largest cost that all runs reached; measured, not extrapolated
    efficiency   the ratio of the costs at which both arms reach the same rewards
    asymptote    the difference between the asymptotes of the fitted curves

The answer is the better arm if its interval excludes 0 (a ratio of 1), `same` if the whole interval lies within the
margin, and `cannot tell` otherwise. The verdict on a pair follows ScaleRL (arXiv 2510.13786): the higher asymptote if
the asymptotes differ; the more efficient arm if they are the same; else the higher reward at equal cost.

The sampling unit is the run; `isocost.stats.power` computes the intervals. The family-wise error rate of one comparison
is at most 5 %, shared by the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import exp, inf, log, sqrt
from typing import ClassVar

import numpy as np
from numpy import ndarray

from isocost.disk.shape import Plain
from isocost.errors import UserError
from isocost.laws.fit import POINTS, TAILS, WHOLE
from isocost.laws.tracks import Track
from isocost.screen.words import grouped
from isocost.stats.intervals import spread, student
from isocost.stats.posterior import USUAL, ArmMean, Grid, correlation, covariance
from isocost.stats.power import (
    LEVEL,
    Estimate,
    bootstrap,
    difference,
    error_shares,
    iqm,
    seeds_for_comparison,
    smallest,
)

QUESTIONS = ("equal cost", "efficiency", "asymptote")
SHARES = (0.04, 0.005, 0.005)   # of the family-wise error rate of 5 %, by question
MARGIN = 0.01                   # difference in reward below which two arms count as the same
SAME_COST = 1.1                 # ratio below which two costs count as the same
HELD = (0.5, 0.6, 0.7, 0.8, 0.9)    # shares of the common gain at which costs are compared
FAR = 1.5                       # ratio of costs to the nearest evaluation above which a note is added; a first
                                # evaluation may be later than the common cost by this factor
FLOOR, FLOOR_LOG = 1e-3, 0.02   # least standard deviation between runs: in reward, in ln cost
VAST = log(1e6)         # bounds of a ratio are cut here: with two seeds they can exceed a float's range
DIFFERENT, SAME, UNKNOWN = 0, 3, 4      # exit codes: a difference, the same within the margin, cannot tell


# answers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairAnswer:
    """The answer to one question about arms `a` and `b`: the better arm, `same` or `cannot tell`.

    `value` is a minus b in reward, or for efficiency b's cost over a's cost at the same reward. `low` and `high` are
    its confidence interval at `level`. `why` names what was compared, or why nothing was. `detectable` is the minimum
    detectable difference of these runs (80 % power). `seeds` is the number per arm that would detect the difference
    observed (None for other questions, and above 1,000). `p` is the p-value of no difference, 1 without a comparison.
    """

    question: str
    a: str
    b: str
    answer: str
    value: float | None
    low: float | None
    high: float | None
    level: float
    why: str
    detectable: float | None = None
    seeds: int | None = None
    p: float = 1.0

    @property
    def winner(self) -> str | None:
        """The better arm; None if the answer is `same` or `cannot tell`."""
        return self.answer if self.answer in (self.a, self.b) else None


@dataclass(frozen=True)
class Verdict:
    """The verdict on a pair: the better arm, `same` or `cannot tell`, and the question that decided (`by`)."""

    a: str
    b: str
    better: str
    by: str


@dataclass(frozen=True)
class ArmReward:
    """One arm's reward at the common cost.

    `values` are the rewards of `runs`; `mean` has a 90 % Student interval (`low`, `high`), `iqm` (interquartile mean) a
    stratified bootstrap interval. `sd` is the standard deviation between runs. `diverged` names runs that count with
    their last reward; `short` names runs that ended early and are left out.
    """

    name: str
    runs: tuple[str, ...]
    values: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    sd: float | None
    iqm: float
    iqm_low: float
    iqm_high: float
    diverged: tuple[str, ...]
    short: tuple[str, ...]


@dataclass(frozen=True)
class Comparison(Plain):
    """The answers and verdicts of a comparison. Every run is read at `cost`, in `unit`. `margin` is in reward. `best`
    is the arm that is better than every other, None if there is none. `alike` is the correlation between runs of one
    seed over pairs of arms (None: no seed in common). `missing` are notes on what the records lack."""

    unit: str
    cost: float
    margin: float
    arms: tuple[ArmReward, ...]
    answers: tuple[PairAnswer, ...]
    verdicts: tuple[Verdict, ...]
    best: str | None
    alike: float | None
    missing: tuple[str, ...]

    HEAD: ClassVar = {"schema": 1}
    SHOWN: ClassVar = ("exit_code",)

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if two arms differ, 3 if all arms are the same within the margin, else 4."""
        better = [v.better for v in self.verdicts]
        if all(x == "same" for x in better):
            return SAME
        return DIFFERENT if any(x not in ("same", "cannot tell") for x in better) else UNKNOWN

    def answer(self, question: str, a: str, b: str) -> PairAnswer:
        """The answer to a question about a pair, in either order."""
        return next(x for x in self.answers if x.question == question and {x.a, x.b} == {a, b})


# the comparison ----------------------------------------------------------------------------------------------------


def compare(arms: Mapping[str, Sequence[Track]], *, unit: str = "rollouts", cost: float | None = None,
            margin: float = MARGIN, seed: int = 0, missing: Iterable[str] = (), alpha: float | None = None,
            shares: Sequence[float] = SHARES) -> Comparison:
    """Judge two arms or more by their runs.

    `cost` is where they are compared, in `unit`; by default the largest that every run reached. A run that ended before
    half of its arm's longest run (or before `cost`) is left out. A run that diverged counts with its last reward.
    `missing` are notes that are kept with the answers. `alpha` is the error rate of every single answer; it is given
    where errors are controlled over more than this comparison (`isocost.compare.many`). Else `shares` are the error
    rates of the three questions.

    Raises UserError for fewer than two arms, an arm without runs, a seed twice in one arm, arms evaluated on different
    problems, or a run whose first evaluation is at more than 1.5 times `cost`.
    """
    _check(arms)
    whole, short = _whole(arms, cost)
    C = cost or min(t.end for own in whole.values() for t in own if not t.diverged)
    late = [t.run for own in whole.values() for t in own if t.cost[t.cost > 0].min(initial=inf) > C * FAR]
    if late:
        raise UserError(f"{', '.join(late)}: no evaluation at {grouped(C * FAR)} {unit} or before, so the reward "
                        f"at {grouped(C)} is unknown")
    pairs = list(combinations(arms, 2))
    ways = (
        [_at_cost(whole[a], whole[b], C) for a, b in pairs],
        [_efficiency(whole[a], whole[b], C, margin) for a, b in pairs],
        _ends(whole, pairs, C),
    )
    if alpha is None:
        alphas = error_shares([[w.p for w in way] for way in ways], shares)
    else:
        alphas = [[alpha] * len(pairs)] * len(ways)
    answers = [
        _answer(question, a, b, w, error, log(SAME_COST) if question == "efficiency" else margin)
        for question, way, held in zip(QUESTIONS, ways, alphas, strict=True)
        for (a, b), w, error in zip(pairs, way, held, strict=True)
    ]
    answers = [_with_seeds(x, whole, C) if x.question == "equal cost" else x for x in answers]
    verdicts = tuple(_verdict(a, b, [x for x in answers if (x.a, x.b) == (a, b)]) for a, b in pairs)
    judged = tuple(_arm(name, whole[name], short[name], C, seed) for name in arms)
    return Comparison(unit, float(C), margin, judged, tuple(answers), verdicts, _best(list(arms), verdicts),
                      _alike(whole, pairs, C), (*missing, *_read_at(whole, C)))


def _check(arms: Mapping[str, Sequence[Track]]) -> None:
    if len(arms) < 2:
        raise UserError(f"a comparison needs at least two arms, got {len(arms)}")
    families = {name: {t.family for t in own} for name, own in arms.items()}
    for name, own in arms.items():
        if not own:
            raise UserError(f"{name} has no run with an evaluation")
        seen: dict[tuple[str, int], str] = {}
        for t in own:
            there = seen.setdefault((t.family, t.seed), t.run)
            if there is not t.run:
                raise UserError(f"{there} and {t.run} are both {name}, seed {t.seed}; a seed counts once: remove one "
                                "of them")
        first, problems = next(iter(families.items()))
        if families[name] != problems:
            raise UserError(f"{first} was evaluated on {_named(problems)}, {name} on {_named(families[name])}; only "
                            "runs evaluated on the same problems can be compared")


def _named(families: Iterable[str]) -> str:
    return ", ".join(f or "unnamed problems" for f in sorted(families))


def _whole(arms: Mapping[str, Sequence[Track]], cost: float | None
           ) -> tuple[dict[str, list[Track]], dict[str, tuple[str, ...]]]:
    """By arm the runs that count, in order of family and seed, and the names of those that ended too early."""
    whole, short = {}, {}
    for name, own in arms.items():
        least = cost if cost is not None else WHOLE * max(t.end for t in own)
        ranked = sorted(own, key=lambda t: (t.family, t.seed))
        whole[name] = [t for t in ranked if t.diverged or t.end >= least * (1 - 1e-9)]
        short[name] = tuple(t.run for t in ranked if t not in whole[name])
        if not whole[name]:
            raise UserError(f"no run of {name} reached a cost of {least:g}; the longest ended at "
                            f"{max(t.end for t in own):g}")
    if all(t.diverged for own in whole.values() for t in own) and cost is None:
        raise UserError("every run diverged, so there is no cost at which they can be compared")
    return whole, short


def _read_at(whole: Mapping[str, Sequence[Track]], C: float) -> list[str]:
    """Notes on how rewards at C were read: runs longer than the common cost, and evaluations far from it."""
    notes = []
    for name, own in whole.items():
        longest = max(t.end for t in own)
        if longest > 2 * C:
            notes.append(f"{name}: runs continue to {longest:,.0f} but are read at {C:,.0f}, the largest common cost")
        far = max(_distance(t, C) for t in own)
        if far > FAR:
            notes.append(f"{name}: reward at {C:,.0f} is interpolated, a factor of {far:.1f} from the nearest "
                         "evaluation")
    return notes


def _distance(track: Track, C: float) -> float:
    """The factor between C and the nearest evaluation; 1 for a run that ended earlier."""
    known = track.cost[track.cost > 0]
    return 1.0 if track.end < C else float(np.exp(np.abs(np.log(known / C)).min()))


@dataclass(frozen=True)
class _Way:
    """The evidence on one question and pair: a p-value, an interval for every alpha, and what was compared."""

    p: float
    value: float | None
    interval: Callable[[float], tuple[float, float]] | None
    why: str


def _nothing(why: str) -> _Way:
    return _Way(1.0, None, None, why)


def _answer(question: str, a: str, b: str, way: _Way, alpha: float, margin: float) -> PairAnswer:
    if way.interval is None or way.value is None:
        return PairAnswer(question, a, b, "cannot tell", None, None, None, 1 - alpha, way.why, p=way.p)
    low, high = way.interval(alpha)
    inside = -margin <= low and high <= margin
    said = "same" if inside else a if low > 0 else b if high < 0 else "cannot tell"
    if question == "efficiency":
        value, low, high = (exp(min(max(x, -VAST), VAST)) for x in (way.value, low, high))
    else:
        value = way.value
    return PairAnswer(question, a, b, said, value, low, high, 1 - alpha, way.why, p=way.p)


def _verdict(a: str, b: str, answers: Sequence[PairAnswer]) -> Verdict:
    """ScaleRL's order; reward at equal cost if the asymptotes do not decide."""
    by = {x.question: x for x in answers}
    if by["asymptote"].winner:
        return Verdict(a, b, by["asymptote"].answer, "asymptote")
    if by["asymptote"].answer == "same" and by["efficiency"].answer != "cannot tell":
        return Verdict(a, b, by["efficiency"].answer, "efficiency")
    return Verdict(a, b, by["equal cost"].answer, "equal cost")


def _best(names: Sequence[str], verdicts: Sequence[Verdict]) -> str | None:
    for name in names:
        mine = [v for v in verdicts if name in (v.a, v.b)]
        if all(v.better == name for v in mine):
            return name
    return None


def _by_run(own: Sequence[Track], number: Callable[[Track], float]) -> dict[str, dict[int, float]]:
    out: dict[str, dict[int, float]] = {}
    for t in own:
        out.setdefault(t.family, {})[t.seed] = number(t)
    return out


# equal cost ---------------------------------------------------------------------------------------------------


def _estimate(a: Sequence[Track], b: Sequence[Track], C: float) -> Estimate | None:
    x, y = (_by_run(own, lambda t: float(t.at(C))) for own in (a, b))
    return difference(x, y, max(FLOOR, max(t.resolution for t in (*a, *b)) / sqrt(12)))


def _at_cost(a: Sequence[Track], b: Sequence[Track], C: float) -> _Way:
    found = _estimate(a, b, C)
    if found is None:
        return _nothing("the spread between runs is unknown with one run per arm: use at least 2 seeds, better 5")
    how = f"mean reward of {len(a)} and {len(b)} runs"
    return _Way(found.p, found.value, found.interval, how)


def _with_seeds(x: PairAnswer, whole: Mapping[str, Sequence[Track]], C: float) -> PairAnswer:
    """The answer with the minimum detectable difference, and the seeds that would detect the one observed."""
    found = _estimate(whole[x.a], whole[x.b], C)
    if found is None:
        return x
    alpha, count = 1 - x.level, min(len(whole[x.a]), len(whole[x.b]))
    sd = found.se * sqrt(count / 2)
    wanted = count if x.winner else seeds_for_comparison(found.value, sd, alpha)
    if wanted is not None and not x.winner:
        wanted = max(wanted, count + 1)
    return replace(x, detectable=smallest(found.se, found.dof, alpha), seeds=None if x.answer == "same" else wanted)


def _alike(whole: Mapping[str, Sequence[Track]], pairs: Sequence[tuple[str, str]], C: float) -> float | None:
    """The correlation of runs of one seed, pooled over pairs of arms: covariance over the mean variance."""
    shared, own = 0.0, 0.0
    for a, b in pairs:
        x, y = (_by_run(whole[name], lambda t: float(t.at(C))) for name in (a, b))
        for f in sorted(set(x) & set(y)):
            both = sorted(set(x[f]) & set(y[f]))
            if len(both) > 1:
                c = np.cov([x[f][s] for s in both], [y[f][s] for s in both])
                shared, own = shared + len(both) * c[0, 1], own + len(both) * (c[0, 0] + c[1, 1]) / 2
    return float(shared / own) if own > 0 else None


def _arm(name: str, own: Sequence[Track], short: tuple[str, ...], C: float, seed: int) -> ArmReward:
    by = _by_run(own, lambda t: float(t.at(C)))
    strata = [np.array([runs[s] for s in sorted(runs)]) for _, runs in sorted(by.items())]
    values = np.concatenate(strata)
    mean = float(np.mean([s.mean() for s in strata]))
    low = high = sd = None
    dof = sum(len(s) - 1 for s in strata)
    if min(map(len, strata)) > 1:
        sd = sqrt(sum(((s - s.mean()) ** 2).sum() for s in strata) / dof)
        half = student(LEVEL, dof) * sqrt(sum(s.var(ddof=1) / len(s) for s in strata)) / len(strata)
        low, high = mean - half, mean + half
    return ArmReward(name, tuple(t.run for t in own), tuple(float(v) for v in values), mean, low, high, sd,
                     float(iqm(values)), *bootstrap(strata, seed=seed), tuple(t.run for t in own if t.diverged), short)


# efficiency ---------------------------------------------------------------------------------------------------


def rising(y: ndarray) -> ndarray:
    """Isotonic regression: the rising sequence nearest to y (K,) in least squares, by pooling adjacent violators."""
    blocks: list[tuple[float, int]] = []
    for value in y:
        blocks.append((float(value), 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (v, k), (w, m) = blocks[-2:]
            blocks[-2:] = [((v * k + w * m) / (k + m), k + m)]
    return np.repeat([v for v, _ in blocks], [k for _, k in blocks])


def reached(track: Track, levels: ndarray, upto: float = inf) -> ndarray:
    """ln cost (L,) at which a run first reaches these rewards (L,), by isotonic regression up to a cost; NaN if never.
    Linear in ln cost between evaluations; linear in cost from the base to the first evaluation."""
    use = track.cost <= upto
    x, y = track.cost[use], track.reward[use]
    if upto < track.end:
        x, y = np.append(x, upto), np.append(y, float(track.at(upto)))
    y = rising(y)
    out = np.full(len(levels), np.nan)
    for i, level in enumerate(levels):
        if level > y[-1] or (level <= y[0] and x[0] > 0):
            continue
        k = max(int(np.searchsorted(y, level)), 1)
        share = float((level - y[k - 1]) / (y[k] - y[k - 1])) if y[k] > y[k - 1] else 1.0
        if x[k - 1] > 0:
            out[i] = log(x[k - 1]) + share * log(x[k] / x[k - 1])
        else:
            out[i] = log(max(share, 1e-6) * x[k])
    return out


def _efficiency(a: Sequence[Track], b: Sequence[Track], C: float, margin: float) -> _Way:
    """Mean over runs of ln cost to reach the same rewards, b minus a; at five rewards from 50 % to 90 % of the gain
    that every run made."""
    if any(t.diverged for t in (*a, *b)):
        return _nothing("a run diverged, so no reward above the base was reached by every run")
    levels: dict[str, ndarray] = {}
    for family in sorted({t.family for t in a}):
        own = [t for t in (*a, *b) if t.family == family]
        if any(t.cost[0] > 0 for t in own):
            return _nothing("the base was not evaluated, so the gain of a run is unknown")
        base = float(np.mean([t.reward[0] for t in own]))
        top = min(float(rising(np.append(t.reward[t.cost < C], t.at(C)))[-1]) for t in own)
        if top - base < 2 * margin:
            return _nothing(f"no reward at least {2 * margin:g} above the base ({base:.3f}) was reached by every run")
        levels[family] = base + np.array(HELD) * (top - base)
    logs = [_by_run(own, lambda t: float(reached(t, levels[t.family], C).mean())) for own in (a, b)]
    found = difference(logs[1], logs[0], FLOOR_LOG)
    if found is None:
        return _nothing("the spread between runs is unknown with one run per arm")
    if not np.isfinite(found.value):
        return _nothing("a run was above the compared rewards at its first evaluation")
    low, high = min(v[0] for v in levels.values()), max(v[-1] for v in levels.values())
    return _Way(found.p, found.value, found.interval, f"cost to reach rewards from {low:.3f} to {high:.3f}")


# asymptotes ---------------------------------------------------------------------------------------------------


def _ends(whole: Mapping[str, Sequence[Track]], pairs: Sequence[tuple[str, str]], C: float) -> list[_Way]:
    """The difference of the asymptotes of every pair, from a posterior over (tail, A, Cmid, b) of each arm's mean
    curve. Both arms of a pair share the tail: they may differ in height and speed, not in the form of the curve."""
    every = [t for own in whole.values() for t in own]
    why = _unfit(whole, every, C)
    if why:
        return [_nothing(why)] * len(pairs)
    first = max(float(t.cost[t.cost > 0][0]) for t in every)
    count = min(USUAL, min(int(((t.cost > 0) & (t.cost <= C)).sum()) for t in every))
    at = np.geomspace(first, C, count)
    rewards = {name: np.array([t.at(at) for t in own]) for name, own in whole.items()}
    means = {name: r.mean(0) for name, r in rewards.items()}
    residuals = np.concatenate([(rewards[n] - means[n]) / spread(means[n]) for n in whole])
    dof = len(every) - len(whole)
    pooled = np.sqrt((residuals**2).sum(0) / dof)
    base = float(np.mean([t.reward[0] for t in every]))
    rho, seen = correlation(at, residuals), {}
    for name, r in rewards.items():
        own = np.sqrt(((r - means[name]) ** 2).sum(0) / (len(r) - 1))
        sd = np.maximum(own, np.maximum(spread(means[name]) * pooled, FLOOR)) / sqrt(len(r))
        sd = np.maximum(sd, np.median(sd))
        seen[name] = ArmMean(1, at, means[name], covariance(at, sd, rho), dof)
    grid = Grid.of(list(seen.values()))
    found = {name: _open(grid, own, base) for name, own in seen.items()}
    return [_apart(found[a], found[b], float(grid.A[1] - grid.A[0]), at) for a, b in pairs]


def _unfit(whole: Mapping[str, Sequence[Track]], every: Sequence[Track], C: float) -> str:
    """Why no curve can be fitted; empty if one can."""
    if len({t.family for t in every}) > 1:
        return "a curve needs one set of problems: compare on each set separately"
    if min(map(len, whole.values())) < 2:
        return "the spread between runs is unknown with one run per arm"
    if any(t.diverged for t in every):
        return "a run diverged, and a falling curve has no asymptote"
    if any(t.cost[0] > 0 for t in every):
        return "the base was not evaluated, and a curve starts at the base"
    points = min(int(((t.cost > 0) & (t.cost <= C)).sum()) for t in every)
    if points < POINTS:
        return f"a curve needs at least {POINTS} evaluations after the base, and a run has {points}"
    return ""


def _open(grid: Grid, seen: ArmMean, base: float) -> ndarray:
    """The posterior of an arm's asymptote: log weights (T, A) over the tails of the form and the grid."""
    scores = np.array([grid.likelihood(seen, base, tail) for tail in TAILS])
    top = scores.max()
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(np.einsum("tacb,acb->ta", np.exp(scores - top), grid.prior())))


def _apart(a: ndarray, b: ndarray, step: float, at: ndarray) -> _Way:
    """The posterior of A_a - A_b on a grid of `step`, its distribution function linear between grid points."""
    a, b = np.exp(a - a.max()), np.exp(b - b.max())
    mass = np.sum([np.convolve(x, y[::-1]) for x, y in zip(a, b, strict=True)], axis=0)
    mass = mass / mass.sum()
    edges = (np.arange(len(mass) + 1) - len(mass) / 2) * step
    below = np.concatenate([[0.0], np.cumsum(mass)])

    def interval(alpha: float) -> tuple[float, float]:
        low, high = np.interp([alpha / 2, 1 - alpha / 2], below, edges)
        return float(low), float(high)

    zero = float(np.interp(0.0, edges, below))
    value = float(np.interp(0.5, below, edges))
    return _Way(min(1.0, 2 * min(zero, 1 - zero)), value, interval,
                f"fitted curves, evaluations from {at[0]:,.0f} to {at[-1]:,.0f}")
