"""Statistics of a problem set from m rewards per problem, right or wrong, or graded: pass@k, dead groups, regime.

Shapes: P problems, m samples each. Rewards 0 and 1 are described by `right`, (P,) counts in 0..m. Graded rewards are
described by `tallies`: per problem, each reward that occurred and the number of samples that earned it. A group is dead
if all its rewards are equal. Nothing here samples a model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import betaln, digamma, zeta

from isocost import chance
from isocost.disk.shape import Plain

RULE = 16       # samples per problem that the regimes are defined on
HARD_SHARE, EASY_SHARE = 0.5, 0.1   # of problems with 0 or 1 of the samples right
SOLVED_MEAN, EASY_MEAN = 0.9, 0.2   # of pass@1
LOW_REWARD = 0.5                    # a problem with equal rewards below this mean counts as unsolved
DIGITS = 9                          # decimals to which two rewards are compared
FITTED = 8                          # up to so many distinct rewards in a set, each is fitted by itself
Tally = Sequence[Any]               # (reward, count) of every reward that a problem's samples earned
WIDEST = np.log(1e3)                # largest |log| of a beta-binomial's two parameters


@dataclass(frozen=True)
class Dead(Plain):
    """Share of groups of n rollouts whose rewards are all equal: with a group baseline they have no gradient."""

    n: int
    share: float
    low: float
    high: float
    kind: str       # "unbiased" for n <= samples, "beta-binomial" beyond


@dataclass(frozen=True)
class Regime:
    """The difficulty of a problem set for a policy: hard, solved, easy or mixed, and why."""

    name: str
    h: float        # share of problems with 0 or 1 of the samples right; graded: see `low_and_alike`
    mean: float     # pass@1, mean reward if graded
    why: str


def counts(right: Sequence[int] | ndarray, m: int) -> ndarray:
    """Checked (P,) integer counts. Raises ValueError if there are none, or one is outside 0..m."""
    k = np.asarray(right, dtype=np.int64)
    if k.ndim != 1 or len(k) == 0:
        raise ValueError("a pass-rate table needs one count per problem, and at least one problem")
    if k.min() < 0 or k.max() > m:
        raise ValueError(f"counts of right answers must lie in 0..{m}; found {k.min()}..{k.max()}")
    return k


def histogram(right: Sequence[int] | ndarray, m: int) -> list[int]:
    """The number of problems with 0, 1, .. m right: m + 1 counts."""
    return np.bincount(counts(right, m), minlength=m + 1).tolist()


def _draw_without(k: int, m: int, n: int) -> float:
    """The probability that n samples drawn without replacement from m, k of them right, are all right."""
    return comb(k, n) / comb(m, n)


def _table(m: int, n: int, value: Any) -> ndarray:
    if not 1 <= n <= m:
        raise ValueError(f"unbiased only for 1 <= n <= {m} samples, not n = {n}")
    return np.array([value(k) for k in range(m + 1)])


def pass_at(right: Sequence[int] | ndarray, m: int, n: int) -> float:
    """Mean pass@n, unbiased for n <= m: 1 - C(m-k, n) / C(m, n), Chen et al. 2021 (arXiv 2107.03374), equation 1."""
    return float(_table(m, n, lambda k: 1 - _draw_without(m - k, m, n))[counts(right, m)].mean())


def worst_at(right: Sequence[int] | ndarray, m: int, n: int) -> float:
    """Mean worst@n (all n right), unbiased for n <= m: C(k, n) / C(m, n)."""
    return float(_table(m, n, lambda k: _draw_without(k, m, n))[counts(right, m)].mean())


def majority_at(votes: Sequence[int], right: int | None, n: int) -> float:
    """The probability that the most common of n answers is right, over all n-subsets of the samples; ties share.

    `votes[i]` samples gave distinct answer i; answer number `right` is the right one (None: no sample gave it).
    Exact, by a generating function over the votes for the other answers and the ties among them.
    """
    total = sum(votes)
    if not 1 <= n <= total:
        raise ValueError(f"maj@n needs 1 <= n <= {total} samples, not n = {n}")
    if right is None:
        return 0.0
    others = [v for i, v in enumerate(votes) if i != right]
    won = 0.0
    for t in range(1, min(votes[right], n) + 1):
        ways = _others(others, n - t, t)
        won += comb(votes[right], t) * sum(w / (1 + ties) for ties, w in enumerate(ways))
    return won / comb(total, n)


def _others(votes: Sequence[int], spend: int, most: int) -> list[int]:
    """Ways for these answers to get `spend` votes in all, none above `most`, by the number of answers with `most`."""
    ways = {(0, 0): 1}
    for v in votes:
        grown: dict[tuple[int, int], int] = {}
        for (used, ties), w in ways.items():
            for t in range(min(v, most, spend - used) + 1):
                key = (used + t, ties + (t == most))
                grown[key] = grown.get(key, 0) + w * comb(v, t)
        ways = grown
    return [ways.get((spend, ties), 0) for ties in range(len(votes) + 1)]


@dataclass(frozen=True)
class PassAt(Plain):
    """Mean pass@k over problems, with its interval."""

    k: int
    value: float
    low: float
    high: float


def pass_curve(
    right: Sequence[int] | ndarray, m: int, *, level: float = 0.9, draws: int = 300, seed: int = 0
) -> list[PassAt]:
    """pass@k at k = 1, 2, 4, .. up to m (`pass_at`), with Bayesian bootstraps over problems (Rubin 1981)."""
    h = np.asarray(histogram(right, m), dtype=float)
    rng = chance.generator(seed, chance.Purpose.BOOTSTRAP, m, 1)
    resampled = rng.gamma(np.broadcast_to(h, (draws, len(h))) + 1e-12)
    tail, out = (1 - level) / 2, []
    for k in [2**i for i in range(m.bit_length()) if 2**i <= m]:
        table = _table(m, k, lambda x, k=k: 1 - _draw_without(m - x, m, k))
        low, high = np.quantile(resampled @ table / resampled.sum(-1), [tail, 1 - tail])
        value = float(table @ h / h.sum())
        out.append(PassAt(k, value, min(float(low), value), max(float(high), value)))
    return out


def dead_at(right: Sequence[int] | ndarray, m: int, n: int) -> float:
    """Expected share of dead groups of n, unbiased for n <= m: C(k,n)/C(m,n) + C(m-k,n)/C(m,n)."""
    return float(_dead_table(m, n)[counts(right, m)].mean())


def _dead_table(m: int, n: int) -> ndarray:
    return _table(m, n, lambda k: _draw_without(k, m, n) + _draw_without(m - k, m, n))


def beta_binomial(weights: ndarray, rounds: int = 60) -> tuple[ndarray, ndarray]:
    """Maximum-likelihood Beta(a, b) of pass rates for weighted histograms (.., m + 1) of right counts, by Newton."""
    w = np.atleast_2d(np.asarray(weights, dtype=float))
    w = w / w.sum(-1, keepdims=True)
    m = w.shape[-1] - 1
    k = np.arange(m + 1)
    x = np.log(_moments(w, k, m))
    for _ in range(rounds):
        before, x = x, np.clip(x + _newton_step(np.exp(x), w, k, m), -WIDEST, WIDEST)
        if np.abs(x - before).max() < 1e-7:
            break
    a, b = np.exp(x)
    return a, b


def _moments(w: ndarray, k: ndarray, m: int) -> ndarray:
    """Starting (2, D) values by moments: mean, and over-dispersion relative to a binomial."""
    mean = np.clip((w @ k) / m, 0.02, 0.98)
    variance = (w * (k / m - mean[:, None]) ** 2).sum(-1)
    ratio = np.clip(variance / (mean * (1 - mean)), 1.05 / m, 0.95)
    strength = np.clip((1 - ratio) / (ratio - 1 / m), 0.1, 50)
    return np.stack([mean * strength, (1 - mean) * strength])


def _newton_step(ab: ndarray, w: ndarray, k: ndarray, m: int) -> ndarray:
    """(2, D) step in log space: Newton where the likelihood is concave, gradient ascent where it is not."""
    a, b = ab[0][:, None], ab[1][:, None]

    def trigamma(z: ndarray) -> ndarray:
        return zeta(2.0, z)

    total = ab[0] + ab[1]
    both = digamma(total) - digamma(m + total)
    ga = ab[0] * ((w * digamma(k + a)).sum(-1) - digamma(ab[0]) + both)
    gb = ab[1] * ((w * digamma(m - k + b)).sum(-1) - digamma(ab[1]) + both)
    bend = trigamma(total) - trigamma(m + total)
    haa = ga + ab[0] ** 2 * ((w * trigamma(k + a)).sum(-1) - trigamma(ab[0]) + bend)
    hbb = gb + ab[1] ** 2 * ((w * trigamma(m - k + b)).sum(-1) - trigamma(ab[1]) + bend)
    hab = ab[0] * ab[1] * bend
    det = haa * hbb - hab**2
    concave = (haa < 0) & (det > 1e-14)
    safe = np.where(concave, det, 1.0)
    da, db = -(hbb * ga - hab * gb) / safe, -(haa * gb - hab * ga) / safe
    size = np.maximum(np.hypot(ga, gb), 1e-12)
    step = np.where(concave, np.stack([da, db]), 0.5 * np.stack([ga, gb]) / size)
    return np.clip(step, -1.0, 1.0)


def _beta_dead(a: ndarray, b: ndarray, n: int) -> ndarray:
    """E[p^n + (1-p)^n] for p ~ Beta(a, b)."""
    return np.exp(betaln(a + n, b) - betaln(a, b)) + np.exp(betaln(a, b + n) - betaln(a, b))


def tallies(rewards: ndarray) -> list[list[tuple[float, int]]]:
    """Each reward that occurred and how many samples earned it, ascending, per problem of a (P, m) table."""
    rows = [np.unique(row, return_counts=True) for row in np.round(np.asarray(rewards, dtype=float), DIGITS)]
    return [list(zip(values.tolist(), many.tolist(), strict=True)) for values, many in rows]


def dead_tallies(
    tallied: Sequence[Tally], m: int, ns: Sequence[int], *, level: float = 0.9, draws: int = 300, seed: int = 0
) -> list[Dead]:
    """`dead_groups` of graded rewards, from the tally of each problem's m samples.

    Up to m samples the estimate is unbiased: sum over rewards of C(count, n) / C(m, n). Beyond, a beta-binomial is
    fitted to the counts of each reward, and the probabilities that all of a group earn it are added. In a set with more
    than `FITTED` distinct rewards it is fitted to the count of each problem's most common one.
    """
    if not tallied or any(sum(int(k) for _, k in one) != m for one in tallied):
        raise ValueError(f"tallies need the rewards of {m} samples per problem, and at least one problem")
    values = sorted({value for one in tallied for value, _ in one})
    if len(values) <= FITTED:
        counted = np.array([[dict(one).get(value, 0) for value in values] for one in tallied], dtype=int)
    else:
        counted = np.array([[max(int(k) for _, k in one)] for one in tallied], dtype=int)
    fits = np.eye(m + 1)[counted.T]     # (rewards, P, m + 1)

    def dead(n: int) -> ndarray:
        return np.array([sum(_draw_without(int(k), m, n) for _, k in one) for one in tallied])

    def far(a: ndarray, b: ndarray, n: int) -> ndarray:
        return np.asarray(np.exp(betaln(a + n, b) - betaln(a, b)))

    return _dead(_Kinds(m, np.ones(len(tallied)), fits, dead, far), ns, level, draws, seed)


def dead_groups(
    right: Sequence[int] | ndarray,
    m: int,
    ns: Sequence[int],
    *,
    level: float = 0.9,
    draws: int = 300,
    seed: int = 0,
) -> list[Dead]:
    """Dead-group share at each n, with an interval over problems.

    Up to m samples the estimate is unbiased; beyond, it is that of a beta-binomial fitted to the set. Intervals are
    Bayesian bootstraps over problems (Rubin 1981). The fit and its bootstrap include one pseudo-problem spread evenly
    over 0..m right, so that a problem never solved in m samples is not treated as unsolvable.
    """
    h = np.asarray(histogram(right, m), dtype=float)
    return _dead(_Kinds(m, h, np.eye(m + 1)[None], lambda n: _dead_table(m, n), _beta_dead), ns, level, draws, seed)


@dataclass(frozen=True)
class _Kinds:
    """K kinds of problems with m samples, `h` (K,) of each.

    `dead(n)` (K,) is the probability that a group of n <= m is dead. `fits` (F, K, m + 1) is each kind's cell in the F
    histograms that a beta-binomial is fitted to; beyond m samples the shares `far(a, b, n)` of the fits are added.
    """

    m: int
    h: ndarray
    fits: ndarray
    dead: Callable[[int], ndarray]
    far: Callable[[ndarray, ndarray, int], ndarray]


def _dead(kinds: _Kinds, ns: Sequence[int], level: float, draws: int, seed: int) -> list[Dead]:
    """Dead-group shares of these problems at each n, with intervals over problems."""
    m, h = kinds.m, kinds.h
    rng = chance.generator(seed, chance.Purpose.BOOTSTRAP, m)
    resampled = rng.gamma(np.broadcast_to(h, (draws, len(h))) + 1e-12)    # weights of the kinds
    pseudo = rng.gamma(1.0, size=(draws, 1)) / (m + 1)
    beyond = [n for n in ns if n > m]
    fitted = [beta_binomial(np.vstack([h @ fit + 1 / (m + 1), resampled @ fit + pseudo]))
              for fit in kinds.fits if beyond]
    tail = (1 - level) / 2
    out = []
    for n in ns:
        if n <= m:
            table = kinds.dead(n)
            share, spread = float(table @ h / h.sum()), resampled @ table / resampled.sum(-1)
        else:
            values = np.minimum(sum(kinds.far(a, b, n) for a, b in fitted), 1.0)
            share, spread = float(values[0]), values[1:]
        low, high = np.quantile(spread, [tail, 1 - tail])
        kind = "unbiased" if n <= m else "beta-binomial"
        out.append(Dead(int(n), share, min(float(low), share), max(float(high), share), kind))
    return out


def regime(h: float, mean: float) -> Regime:
    """Hard if h >= 1/2; solved if mean >= 0.9; easy if h < 1/10 and mean >= 0.2; else mixed. `h`: at most one right."""
    if h >= HARD_SHARE:
        name, why = "hard", f"{h:.0%} of problems have at most one right sample (half or more is hard)"
    elif mean >= SOLVED_MEAN:
        name, why = "solved", f"mean pass@1 is {mean:.2f} (0.9 or more leaves little to learn)"
    elif h < EASY_SHARE and mean >= EASY_MEAN:
        name, why = "easy", (f"{h:.0%} of problems have at most one right sample, "
                             f"and mean pass@1 is {mean:.2f}")
    else:
        name, why = "mixed", (f"{h:.0%} of problems have at most one right sample, mean pass@1 is {mean:.2f}: "
                              "neither easy nor hard")
    return Regime(name, float(h), float(mean), why)


def regime_of(right: Sequence[int] | ndarray, m: int) -> Regime:
    """The regime of a (P,) table of counts out of m.

    `h` is of 16 samples, as the rule was published: with m > 16 it is the expected share of problems with at most one
    right of 16 drawn without replacement from the m. With fewer it is of the m.
    """
    k = counts(right, m)
    low = np.array([_at_most_one(int(x), m, min(m, RULE)) for x in range(m + 1)])
    return regime(float(low[k].mean()), float(k.mean() / m))


def _at_most_one(k: int, m: int, n: int) -> float:
    """The probability that at most one of n samples drawn without replacement from m, k of them right, is right."""
    return (comb(m - k, n) + k * comb(m - k, n - 1)) / comb(m, n)


def low_and_alike(rewards: ndarray, differ: int) -> ndarray:
    """(P,) whether at most `differ` samples of a problem have another reward than the rest, with a mean below 1/2."""
    table = np.asarray(rewards, dtype=float)
    commonest = np.array([max(k for _, k in one) for one in tallies(table)])
    return np.asarray((commonest >= table.shape[1] - differ) & (table.mean(1) < LOW_REWARD))


def regime_of_rewards(rewards: ndarray) -> Regime:
    """The regime of a (P, m) table of graded rewards: by mean reward, and `low_and_alike` for "at most one right"."""
    table = np.asarray(rewards, dtype=float)
    found = regime(float(low_and_alike(table, 1).mean()), float(table.mean()))
    why = found.why.replace("have at most one right sample", "have equal rewards but for one at most, mean below 1/2")
    return replace(found, why=why.replace("mean pass@1", "mean reward"))


def recipe_for(name: str) -> tuple[str, str]:
    """(method, why) for a regime: IsoCompute's recipes (arXiv 2603.12151); a mixed set takes the hard one."""
    easy = "KL and entropy terms keep training stable where most groups carry signal"
    hard = "without KL and entropy terms: in a dead group they would be the only gradient"
    return {
        "easy": ("isoeasy", easy),
        "solved": ("isoeasy", "there is little to learn; " + easy),
        "hard": ("isohard", hard),
        "mixed": ("isohard", "a heterogeneous set takes the hard recipe, " + hard),
    }[name]


def halves(correct: ndarray) -> tuple[ndarray, ndarray]:
    """(assign, report) counts from a (P, m) table of marks: one half selects problems, the other measures them."""
    marks = np.asarray(correct, dtype=bool)
    if marks.ndim != 2 or marks.shape[1] < 2:
        raise ValueError("halves need a (problems, samples) table with at least two samples")
    half = marks.shape[1] // 2
    return marks[:, :half].sum(1), marks[:, half : 2 * half].sum(1)


def band(rate: float) -> str:
    """Of a pass rate (arXiv 2603.12151): hard (<= 1/16), easy (0.3 to 0.6), very easy (to 0.9), solved or between."""
    if rate <= 1 / 16:
        return "hard"
    if rate < 0.3:
        return "between"
    return "easy" if rate <= 0.6 else "very easy" if rate < SOLVED_MEAN else "solved"


def bands(assign: Sequence[int] | ndarray, report: Sequence[int] | ndarray, half: int) -> list[dict[str, Any]]:
    """Per band of difficulty: problems, pass rate that assigned them, pass rate on the other half (unbiased)."""
    return _bands(counts(assign, half) / half, counts(report, half) / half)


def _bands(a: ndarray, r: ndarray) -> list[dict[str, Any]]:
    names = np.array([band(x) for x in a])
    rows = []
    for name in ("hard", "between", "easy", "very easy", "solved"):
        inside = names == name
        if inside.any():
            rows.append({
                "band": name, "problems": int(inside.sum()),
                "assigned": round(float(a[inside].mean()), 4), "reported": round(float(r[inside].mean()), 4),
            })
    return rows


def summary(
    rewards: ndarray, ns: Sequence[int] = (2, 4, 8, 16, 32, 64), *, level: float = 0.9, seed: int = 0
) -> dict[str, Any]:
    """What a profile records of a (P, m) table of rewards, as plain data: counts, regime, recipe, bands, dead, and
    pass@k of rewards 0 and 1.

    Of graded rewards (any but 0 and 1) `right` counts the samples above 1/2, `mean`, `histogram`, `assign` and `report`
    are of the reward itself, and four keys are added: `graded`, `rewards` (mean per problem), `tallies` and `unsolved`
    (share of problems whose samples all earned the same reward, below 1/2).
    """
    table = np.asarray(rewards, dtype=float)
    if not np.isin(table, (0.0, 1.0)).all():
        return _graded(table, ns, level, seed)
    marks = table > LOW_REWARD
    m = marks.shape[1]
    right = marks.sum(1)
    assign, report = halves(marks)
    found = regime_of(right, m)
    method, why = recipe_for(found.name)
    return {
        "samples": m, "right": right.tolist(), "assign": assign.tolist(), "report": report.tolist(),
        "mean": found.mean, "histogram": histogram(right, m), "h": found.h, "regime": found.name, "why": found.why,
        "recipe": {"method": method, "why": why}, "bands": bands(assign, report, m // 2),
        "dead": [d.data() for d in dead_groups(right, m, ns, level=level, seed=seed)],
        "pass_at": [x.data() for x in pass_curve(right, m, level=level, seed=seed)],
    }


def _graded(table: ndarray, ns: Sequence[int], level: float, seed: int) -> dict[str, Any]:
    """The summary of graded rewards. Bin k of the histogram counts mean rewards nearest to k / m."""
    m, tallied, mean = table.shape[1], tallies(table), table.mean(1)
    half = m // 2
    assign, report = table[:, :half].sum(1), table[:, half : 2 * half].sum(1)
    found = regime_of_rewards(table)
    method, why = recipe_for(found.name)
    bins = np.clip(np.rint(mean * m), 0, m).astype(int)
    return {
        "samples": m, "right": (table > LOW_REWARD).sum(1).tolist(), "assign": np.round(assign, 4).tolist(),
        "report": np.round(report, 4).tolist(), "mean": found.mean, "histogram": histogram(bins, m), "h": found.h,
        "regime": found.name, "why": found.why, "recipe": {"method": method, "why": why},
        "bands": _bands(assign / half, report / half),
        "dead": [d.data() for d in dead_tallies(tallied, m, ns, level=level, seed=seed)],
        "graded": True, "rewards": np.round(mean, 4).tolist(), "tallies": [[list(x) for x in one] for one in tallied],
        "unsolved": float(low_and_alike(table, 0).mean()),
    }
