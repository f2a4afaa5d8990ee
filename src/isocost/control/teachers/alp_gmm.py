"""ALP-GMM: tasks where returns change, by a mixture of Gaussians over tasks and their learning progress.

    alp_i = |r_i − r_j|,  j the earlier episode whose task is nearest; 0 of the first six
    after every E episodes: mixtures of 2 to 10 Gaussians over (c, alp) of the last E, the one of the least AIC
    c ~ a Gaussian of it, drawn in proportion to its mean alp; with chance ε any task

    Portelas et al. 2019, arXiv:1910.07224; E 250, ε 0.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from isocost.control.teachers import Lesson, Lessons
from isocost.found import Card
from isocost.traits import bounds

CARD = Card("ALP-GMM", "1910.07224", 2019, "uniform", "Tasks of high absolute learning progress teach faster.")
FIRST, COUNTS = 6, range(2, 11)         # episodes without a progress; Gaussians that are tried
FLOOR, ROUNDS, GAIN = 1e-6, 100, 1e-3   # added to variances; steps of EM, and the gain of a point that ends them


class Mixture(NamedTuple):
    """K Gaussians: their weights, (K,), means, (K, D), and covariances; AIC: 2 free parameters − 2 log-likelihood."""

    weights: ndarray
    means: ndarray
    covariances: ndarray
    aic: float


def mixed(points: ndarray, count: int, rng: np.random.Generator) -> Mixture:
    """`count` Gaussians fitted to points (N, D) by EM, with means that start at as many of the points."""
    wide = points.shape[1]
    start = points[rng.choice(len(points), count, replace=False)]
    share, before = np.eye(count)[((points[:, None] - start) ** 2).sum(-1).argmin(-1)], -np.inf
    for _ in range(ROUNDS):
        mass = share.sum(0) + 1e-12
        means = share.T @ points / mass[:, None]
        away = points[:, None] - means
        spread = np.einsum("nk,nki,nkj->kij", share, away, away) / mass[:, None, None] + FLOOR * np.eye(wide)
        square = np.einsum("nki,kij,nkj->nk", away, np.linalg.inv(spread), away)
        each = np.log(mass / mass.sum()) - 0.5 * (square + np.linalg.slogdet(spread)[1] + wide * np.log(2 * np.pi))
        likely = np.logaddexp.reduce(each, -1, keepdims=True)
        share, fit = np.exp(each - likely), float(likely.sum())
        if fit - before < GAIN * len(points):
            break
        before = fit
    parameters = count * (1 + wide + wide * (wide + 1) / 2) - 1
    return Mixture(mass / mass.sum(), means, spread, 2 * parameters - 2 * fit)


def in_proportion(worth: ndarray, rng: np.random.Generator) -> int:
    """An index with probability in proportion to `worth`, (K,), at least 0; uniform if all are 0."""
    total = worth.sum()
    return int(rng.choice(len(worth), p=worth / total if total > 0 else None))


def by_mixture(
    past: Lessons, rng: np.random.Generator, every: int, fresh: float, extra: Callable[[range], ndarray],
    worth: Callable[[Mixture], ndarray],
) -> Lesson:
    """A task sampled from one Gaussian of the mixture of the last `every` episodes, chosen in proportion to `worth`,
    (K,); any task before the first mixture, and with probability `fresh`. `extra` gives the coordinates of a point
    besides the task, (E, D − P)."""
    def added(found: Mixture | None, i: int) -> Mixture | None:
        if (i + 1) % every:
            return found
        last, rng_then = range(i + 1 - every, i + 1), past.rng_after(i + 1)
        points = np.column_stack((past.contexts[last], extra(last)))
        return min((mixed(points, k, rng_then) for k in COUNTS if k <= every), key=lambda m: m.aic)

    mixture = past.folded("mixture", lambda: None, added)
    if mixture is None or rng.random() < fresh:
        return past.anywhere(rng)
    k, wide = in_proportion(worth(mixture), rng), mixture.means.shape[1]
    point = mixture.means[k] + np.linalg.cholesky(mixture.covariances[k]) @ rng.standard_normal(wide)
    return past.of(point[: past.contexts.shape[1]], rng)


def progress(past: Lessons, i: int) -> float:
    """alp of episode i: the distance of its return from that of the nearest earlier task, the latest in a tie."""
    if i < FIRST:
        return 0.0
    back = ((past.contexts[i - 1 :: -1] - past.contexts[i]) ** 2).sum(-1).argmin()
    return abs(float(past.returns[i] - past.returns[i - 1 - back]))


@bounds(every="[2, inf)", fresh="[0, 1]")
def choose(past: Lessons, rng: np.random.Generator, *, every: int = 250, fresh: float = 0.2) -> Lesson:
    """A task by its absolute learning progress. `every` is E, `fresh` is ε."""
    return by_mixture(past, rng, every, fresh, lambda last: np.array([progress(past, i) for i in last]),
                      lambda m: m.means[:, -1])
