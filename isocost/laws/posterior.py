"""What a curve's runs leave open: a posterior over its shape, on a grid, so that nothing has to converge.

Least squares takes one point of the ridge along which a lower asymptote and a steeper rise fit alike, and a bootstrap
around it stays there. A pilot that stopped before its knee must leave its asymptote open up to 1, so the shape is
weighed instead: every (tail, A, Cmid, b) of a grid by its likelihood under the runs' pooled noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy import ndarray

from isocost.laws.forms import risen

ASYMPTOTES, MIDPOINTS = 33, 40
SLOPES = np.array([0.4, 0.55, 0.7, 0.85, 1.0, 1.2, 1.45, 1.75, 2.1, 2.6, 3.3, 4.5])
SLOPE, SLOPE_SPREAD = 1.2, 0.5      # prior of b, log-normal: published runs lie in 0.8 to 2 (ScaleRL: 1.56 to 2.01)
REACH = 64.0                        # the latest midpoint allowed, in units of the pilot's end
SHARED = 0.9                        # of a run's variance that neighbouring evaluations share; the rest is their own
USUAL = 9                           # evaluations of a run that count; more of them say the same
SHAPE = 0.004                       # how far a true curve may lie off the form, in reward: one standard deviation
APART = 0.06                        # standard deviation between the asymptotes of two n, in reward
LINK = 4.0                          # where draws are ordered, in units of the pilot's end, so that arms are comparable


def correlation(C: ndarray, residuals: ndarray) -> float:
    """How alike evaluations of a run a doubling of C apart are, from pooled residuals (I, K) at C (K,); in [0.3, 0.95].

    Per doubling, so that evaluating more often does not make a run look like several.
    """
    if len(C) < 2:
        return 0.3
    before, after = residuals[:, :-1], residuals[:, 1:]
    size = np.sqrt((before**2).sum() * (after**2).sum())
    neighbours = np.clip((before * after).sum() / size, 0.01, 0.99) if size > 0 else 0.99
    return float(np.clip(neighbours ** (1 / np.log2(C[1:] / C[:-1]).mean()), 0.3, 0.95))


@dataclass(frozen=True, eq=False)
class Weighed:
    """Every cell of the grid: (tail's place, A, Cmid, b) with its log weight, and its reward at `LINK`."""

    cells: ndarray
    scores: ndarray
    order: ndarray

    def asymptotes(self, A: ndarray) -> ndarray:
        """The weight on each asymptote of the grid: (asymptotes,), summing to 1."""
        weights = np.exp(self.scores - self.scores.max())
        found = np.bincount(np.searchsorted(A, self.cells[:, 1]), weights=weights, minlength=len(A))
        return np.asarray(found / found.sum())

    def leaning(self, A: ndarray, prior: ndarray) -> Weighed:
        """The same with a prior (asymptotes,) on the asymptote."""
        with np.errstate(divide="ignore"):
            return replace(self, scores=self.scores + np.log(prior)[np.searchsorted(A, self.cells[:, 1])])

    def draws(self, count: int) -> ndarray:
        """(D, 4) cells at evenly spaced quantiles, in the order of the reward they predict.

        Draw d of two arms stands for the same luck: what a short pilot does not know of one n it does not know of
        another.
        """
        weights = np.exp(self.scores - self.scores.max())
        ranked = np.argsort(self.order, kind="stable")
        reached = np.cumsum(weights[ranked])
        at = np.searchsorted(reached, (np.arange(count) + 0.5) / count * reached[-1])
        return np.asarray(self.cells[ranked[np.minimum(at, len(ranked) - 1)]])


def asymptotes(ends: Sequence[tuple[float, float]]) -> ndarray:
    """The grid of A for arms that ended at (mean, standard error): from the lowest the noise allows up to 1."""
    return np.linspace(min(max(min(mean - 3 * sd for mean, sd in ends), 0.0), 0.98), 1.0, ASYMPTOTES)


def heard(A: ndarray, others: Sequence[ndarray]) -> ndarray:
    """A prior on one arm's asymptote from those of others: their mean, displaced as one n may differ from another.

    IsoCompute finds n worth 0.04 (hard) to 0.09 (easy) of reward; the displacement is normal with sd `APART`.
    """
    if not others:
        return np.ones(len(A))
    near = np.exp(-0.5 * ((A[:, None] - A[None, :]) / APART) ** 2)
    prior = (near / near.sum(0)) @ np.mean(others, axis=0)
    return np.asarray(prior / prior.max() + 1e-3)


def weigh(C: ndarray, mean: ndarray, sd: ndarray, rho: float, dof: float, base: float, tails: tuple[float, ...],
          A: ndarray) -> Weighed:
    """The grid's weights for a mean curve (K,) at C (K,) with standard errors sd (K,).

    Flat prior on A and on ln Cmid, log-normal on b; Student likelihood with `dof` degrees of freedom and errors
    correlated as rho to the number of doublings between them.
    """
    Cmid = np.geomspace(C[0] / 2, REACH * C[-1], MIDPOINTS)
    precision = np.linalg.inv(_covariance(C, sd, rho))
    cells, scores, order = [], [], []
    for place, tail in enumerate(tails):
        share = risen(C, Cmid[:, None, None], SLOPES[None, :, None], tail)               # (midpoints, slopes, K)
        later = risen(np.array([LINK * C[-1]]), Cmid[:, None, None], SLOPES[None, :, None], tail)[..., 0]
        gap, gain = mean - base, A - base
        weighted = share @ precision
        squares = (gap @ precision @ gap - 2 * gain[:, None, None] * (weighted @ gap)[None]
                   + gain[:, None, None] ** 2 * (weighted * share).sum(-1)[None])
        prior = -0.5 * ((np.log(SLOPES) - np.log(SLOPE)) / SLOPE_SPREAD) ** 2
        scores.append((prior - (dof + len(C)) / 2 * np.log1p(np.maximum(squares, 0.0) / dof)).ravel())
        order.append((gain[:, None, None] * later[None]).ravel())
        grid = np.stack(np.meshgrid(A, Cmid, SLOPES, indexing="ij"), -1).reshape(-1, 3)
        cells.append(np.column_stack([np.full(len(grid), place), grid]))
    return Weighed(np.concatenate(cells), np.concatenate(scores), np.concatenate(order))


def thinned(C: ndarray) -> ndarray:
    """Places of at most `USUAL` of the evaluation points C (K,), evenly spaced in ln C, ends included.

    Neighbouring evaluations of a run say nearly the same; evaluating more often must not make it look surer.
    """
    wanted = np.linspace(np.log(C[0]), np.log(C[-1]), USUAL)
    nearest = np.abs(np.log(C)[None, :] - wanted[:, None]).argmin(1)
    return np.arange(len(C)) if len(C) <= USUAL else np.unique(nearest)


def _covariance(C: ndarray, sd: ndarray, rho: float) -> ndarray:
    apart = np.abs(np.log2(C)[:, None] - np.log2(C)[None, :])
    shared = SHARED * rho**apart + (1 - SHARED) * np.eye(len(C))
    return np.asarray(np.outer(sd, sd) * shared + SHAPE**2 * np.eye(len(C)))
