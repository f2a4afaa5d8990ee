"""The difference between two evaluations on the same problems, with an interval that knows what repeats.

The unit is the problem: the samples of a problem are averaged first, so that they count once. Where problems come in
clusters (several questions on one text), the unit is the cluster, by a sandwich estimator; see Miller, "Adding Error
Bars to Evals" (arXiv 2411.00640), section 3. Seeds of training, where there are several, add their own variance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb, hypot, inf, sqrt

import numpy as np
from numpy import ndarray

from isocost.stats.power import Estimate, standard_errors

EXACT = 25          # problems that differ, up to which single answers of 0 or 1 are tested exactly (McNemar)
UNSEEN = 3 / 1.96   # standard error of units that may differ though none of N does: 3 / N at 95 % (rule of three)


def mean_of(values: ndarray, clusters: Sequence[str] | None = None) -> Estimate:
    """The mean of values, shape (N,), which are independent or, given the cluster of each, between clusters only.

    Clusters of equal size have Student's interval of their means. Otherwise a large cluster counts for few degrees of
    freedom: the CR2 estimator and its Satterthwaite degrees of freedom (Bell and McCaffrey 2002).

    Raises ValueError for fewer than two independent values.
    """
    n = len(values)
    if clusters is None:
        if n < 2:
            raise ValueError(f"a standard error needs at least two values, got {n}")
        return Estimate(float(values.mean()), float(values.std(ddof=1)) / sqrt(n), n - 1)
    codes = np.unique(np.asarray(clusters), return_inverse=True)[1]
    w = np.bincount(codes) / max(n, 1)
    if len(w) < 2:
        raise ValueError(f"a standard error needs at least two clusters, got {len(w)}")
    sums = np.bincount(codes, weights=values - values.mean())
    c = w**2 / (1 - w)
    squares = float((w**2).sum() + c.sum() ** 2 - (c**2).sum())     # of eigenvalues; 1 / (G - 1) for G equal clusters
    return Estimate(float(values.mean()), sqrt(float((sums**2 / (1 - w)).sum())) / n, 1 / squares)


@dataclass(frozen=True)
class PairSpread:
    """Where the variance of a difference of means comes from, per problem, in squared score.

    `problems` is the variance of the difference between problems, without sampling; `sample` the variance of one
    sample of each arm together, None where no problem has two; `seed` the variance of the difference between seeds of
    training, None with one seed. `unseen` is the standard error of what few problems cannot show, times their number.
    """

    problems: float
    sample: float | None
    seed: float | None
    unseen: float = 0.0


def difference(
    a: Sequence[ndarray], b: Sequence[ndarray], clusters: Sequence[str] | None = None,
    seeds: ndarray | None = None,
) -> tuple[Estimate, PairSpread]:
    """The mean of a - b over N problems that both have, and where its variance comes from.

    `a[i]` and `b[i]` are the scores of the samples of problem i; `seeds` is the difference at each seed of training,
    shape (S,), where there are several. Where most problems have one gap and few have another, Student's interval is
    too narrow, and that no problem differs is no proof that none does: the variance of `UNSEEN` problems, or clusters,
    that differ by the range of the scores is added (Hanley and Lippman-Hand 1983; Agresti and Min 2005 add one).

    Raises ValueError for fewer than two problems or clusters.
    """
    gaps = np.array([x.mean() - y.mean() for x, y in zip(a, b, strict=True)])
    mean = mean_of(gaps, clusters)
    total, sample = mean.se**2 * len(gaps), None
    drawn = [(x.var(ddof=1), y.var(ddof=1), len(x), len(y)) for x, y in zip(a, b, strict=True)
             if len(x) > 1 and len(y) > 1]
    if drawn:
        of_a, of_b, n_a, n_b = np.array(drawn).T
        sample = float((of_a + of_b).mean())
        total = max(total - float((of_a / n_a + of_b / n_b).mean()), 0.0)
    differ = int((np.abs(gaps - np.median(gaps)) > 1e-9).sum())
    rare = differ <= EXACT and 2 * differ < len(gaps)
    every = np.concatenate([*a, *b])
    reach = float(np.ptp(every)) or max(1.0, abs(float(every[0])))
    unseen = UNSEEN * reach / (mean.dof + 1) if rare else 0.0
    mean = Estimate(mean.value, hypot(mean.se, unseen), mean.dof)
    if seeds is None or len(seeds) < 2:
        return mean, PairSpread(total, sample, None, unseen * len(gaps))
    between = mean_of(seeds)
    dof = min(mean.dof, between.dof)
    return (Estimate(mean.value, sqrt(mean.se**2 + between.se**2), dof),
            PairSpread(total, sample, between.se**2 * len(seeds), unseen * len(gaps)))


def exact_p(gaps: ndarray) -> float | None:
    """McNemar's exact two-sided p-value for single answers of 0 or 1; None where `EXACT` is exceeded or a gap, a - b,
    is no whole number."""
    if not np.isin(gaps, (-1.0, 0.0, 1.0)).all() or (differ := int(np.abs(gaps).sum())) > EXACT:
        return None
    fewer = int(min((gaps > 0).sum(), (gaps < 0).sum()))
    return min(1.0, 2 * sum(comb(differ, i) for i in range(fewer + 1)) / 2**differ)


def problems_needed(variance: float, effect: float, alpha: float, unseen: float = 0.0) -> int | None:
    """Problems that find a difference of `effect` with 80 % power; `variance` is that of one problem's difference, and
    `unseen` that of `PairSpread`. None for no effect."""
    if not effect:
        return None
    target = (effect / standard_errors(alpha)) ** 2       # variance / N + unseen^2 / N^2
    return ceil((variance + sqrt(variance**2 + 4 * target * unseen**2)) / (2 * target))


def samples_needed(spread: PairSpread, problems: int, effect: float, alpha: float) -> float | None:
    """Samples of each problem, in each arm, that find `effect` on these problems; inf where no number does, None where
    the samples' variance is not known."""
    if spread.sample is None or not effect:
        return None
    left = problems * (effect / standard_errors(alpha)) ** 2 - spread.problems
    return inf if left <= 0 else max(1.0, float(ceil(spread.sample / left)))
