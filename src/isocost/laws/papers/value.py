"""The cost for value-based RL to reach a return J: samples D, compute C, and the cheapest updates per sample, sigma.

More updates per sample need fewer samples, down to a floor, and smaller batches and learning rates. The cheapest sigma
depends on the cost of a sample relative to an update. Laws and pipeline are those of "Value-Based Deep RL Scales
Predictably" (arXiv 2502.04327); the laws with model size are those of "Compute-Optimal Scaling for Value-Based Deep RL"
(arXiv 2508.14881).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy.optimize import least_squares, minimize, minimize_scalar

from isocost.errors import UserError
from isocost.stats.forms import POWER_CONSTANT, fit_form

PASSES = 10      # operations per parameter and example: forward and backward passes of critic, target and actor


@dataclass(frozen=True)
class Lines:
    """Batch size or learning rate against sigma: log10 y = slope log10 sigma + an intercept of each environment."""

    slope: float
    intercepts: Mapping[str, float]

    def at(self, environment: str, sigma: float) -> float:
        """The value proposed for one environment."""
        if environment not in self.intercepts:
            raise UserError(f"no line for {environment!r}; there are lines for {', '.join(sorted(self.intercepts))}")
        return float(10.0 ** (self.intercepts[environment] + self.slope * np.log10(sigma)))

    def mean(self, sigma: ndarray) -> ndarray:
        """The mean over environments, at each sigma."""
        height = np.mean(10.0 ** np.array(list(self.intercepts.values())))
        return height * np.asarray(sigma, dtype=float) ** self.slope


def fit_lines(points: Sequence[tuple[str, float, float]]) -> Lines:
    """Least squares in log10 over (environment, sigma, best value), one slope for all environments.

    The slope is that of deviations from each environment's mean, equal to a regression with one dummy variable per
    environment. Raises UserError if no environment has two sigmas.
    """
    names = sorted({name for name, _, _ in points})
    mean: dict[str, tuple[float, float]] = {}
    above = below = 0.0
    for name in names:
        x, y = np.log10([(s, v) for n, s, v in points if n == name]).T
        mean[name] = float(x.mean()), float(y.mean())
        above += float(((x - x.mean()) * (y - y.mean())).sum())
        below += float(((x - x.mean()) ** 2).sum())
    if below == 0:
        raise UserError("a slope needs an environment with at least 2 values of sigma")
    slope = above / below
    return Lines(slope, {name: y - slope * x for name, (x, y) in mean.items()})


def rounded(batch: float) -> int:
    """A batch size as proposed: the nearest multiple of 16, at least 16."""
    return max(16, 16 * round(batch / 16))


@dataclass(frozen=True)
class DataLaw:
    """Samples to reach J: D(sigma) = scale (c + (sigma / b)^-a), at least scale c for any number of updates."""

    a: float
    b: float
    c: float
    scale: float = 1.0

    def __call__(self, sigma: ndarray | float) -> ndarray:
        return self.scale * (self.c + (np.asarray(sigma, dtype=float) / self.b) ** -self.a)

    @property
    def least(self) -> float:
        """Samples with unlimited updates."""
        return self.scale * self.c


def fit_data(sigma: ndarray, samples: ndarray) -> DataLaw:
    """The data law through (S,) sigmas and samples. Raises UserError if samples do not fall with sigma."""
    x, y = np.asarray(sigma, dtype=float), np.asarray(samples, dtype=float)
    if len(np.unique(x)) < 3:
        raise UserError(f"a law of 3 parameters needs at least 3 values of sigma; got {len(np.unique(x))}")
    scale = float(np.median(y))
    found = fit_form(POWER_CONSTANT, x, y / scale).parameters
    if not (found["D"] < 0 and found["b"] > 0):
        raise UserError("samples do not fall as updates per sample rise, so there is no trade-off to fit")
    return DataLaw(found["b"], (-found["D"]) ** (1.0 / found["b"]), max(found["A"], 0.0), scale)


def compute(parameters: float, batch: ndarray | float, sigma: ndarray | float, samples: ndarray | float) -> ndarray:
    """C = 10 N B sigma D: operations of all updates to reach J, for a critic of N parameters."""
    return PASSES * parameters * np.asarray(batch) * np.asarray(sigma) * np.asarray(samples)


@dataclass(frozen=True)
class Spend:
    """One way to reach J."""

    sigma: float
    samples: float
    compute: float
    budget: float       # compute and what the samples cost, in operations


def cheapest(
    law: DataLaw, batch: Callable[[ndarray], ndarray], parameters: float, sample_cost: float,
    between: tuple[float, float] = (1 / 16, 256.0),
) -> Spend:
    """The sigma that minimises F = C + sample_cost D, `sample_cost` in operations.

    Raises UserError if the minimum is at an edge of `between`: it is then not identified.
    """

    def budget(log_sigma: float) -> float:
        s = np.exp(log_sigma)
        return float(compute(parameters, batch(s), s, law(s)) + sample_cost * law(s))

    grid = np.linspace(np.log(between[0]), np.log(between[1]), 400)
    best = int(np.argmin([budget(g) for g in grid]))
    if best in (0, len(grid) - 1):
        raise UserError(f"the cheapest sigma is at an edge, {np.exp(grid[best]):.3g}; search beyond {between}")
    found = minimize_scalar(budget, bracket=tuple(grid[best - 1 : best + 2]))
    sigma = float(np.exp(found.x))
    samples = float(law(sigma))
    spent = float(compute(parameters, batch(np.asarray(sigma)), sigma, samples))
    return Spend(sigma, samples, spent, spent + sample_cost * samples)


@dataclass(frozen=True)
class SizedDataLaw:
    """Samples to reach J with a critic of N parameters: D(sigma, N) = least (1 + (a / sigma)^alpha + (b / N)^beta)."""

    least: float
    a: float
    alpha: float
    b: float
    beta: float

    def __call__(self, sigma: ndarray | float, parameters: ndarray | float) -> ndarray:
        s, n = np.asarray(sigma, dtype=float), np.asarray(parameters, dtype=float)
        return self.least * (1 + (self.a / s) ** self.alpha + (self.b / n) ** self.beta)


@dataclass(frozen=True)
class SizedBatchLaw:
    """The best batch: B(sigma, N) = a / (sigma^alpha (1 + (b / N)^beta)).

    A small critic makes poor targets and over-fits to them; larger batches increase this, so its best batch is smaller.
    """

    a: float
    alpha: float
    b: float
    beta: float

    def __call__(self, sigma: ndarray | float, parameters: ndarray | float) -> ndarray:
        s, n = np.asarray(sigma, dtype=float), np.asarray(parameters, dtype=float)
        return self.a / (s**self.alpha * (1 + (self.b / n) ** self.beta))


def fit_sized_data(sigma: ndarray, parameters: ndarray, samples: ndarray) -> SizedDataLaw:
    """The data law with model size through (K,) sigmas, sizes and samples, by least squares in log D.

    Raises UserError for fewer than three sigmas or sizes: each has a scale and an exponent above a common floor.
    """
    s, n, y = (np.asarray(v, dtype=float) for v in (sigma, parameters, samples))
    _enough(s, n)
    s0, n0, y0 = _middle(s), _middle(n), float(y.min())

    def curve(p: ndarray) -> ndarray:
        floor, a, alpha, b, beta = p
        terms = np.stack((np.zeros_like(s), np.exp(alpha) * (a - np.log(s / s0)), np.exp(beta) * (b - np.log(n / n0))))
        return floor + np.logaddexp.reduce(terms, 0)

    p = _best_of(curve, np.log(y / y0), [
        (f, a, np.log(alpha), a, np.log(beta)) for f in (-0.1, -1.0) for a in (-2.0, 0.0) for alpha in (0.4, 1.0)
        for beta in (0.4, 1.0)
    ])
    a, b = float(np.exp(p[1])) * s0, float(np.exp(p[3])) * n0
    return SizedDataLaw(float(np.exp(p[0])) * y0, a, float(np.exp(p[2])), b, float(np.exp(p[4])))


def fit_sized_batch(sigma: ndarray, parameters: ndarray, batch: ndarray) -> SizedBatchLaw:
    """The batch law through (K,) sigmas, sizes and best batches, by least squares in log B.

    alpha may come out below 0: in one published environment the best batch rises with sigma. Raises UserError for
    fewer than three sigmas or sizes.
    """
    s, n, y = (np.asarray(v, dtype=float) for v in (sigma, parameters, batch))
    _enough(s, n)
    s0, n0, y0 = _middle(s), _middle(n), float(y.max())

    def curve(p: ndarray) -> ndarray:
        height, alpha, b, beta = p
        return height - alpha * np.log(s / s0) - np.logaddexp(0.0, np.exp(beta) * (b - np.log(n / n0)))

    p = _best_of(curve, np.log(y / y0), [
        (0.0, alpha, b, np.log(beta)) for alpha in (0.0, 0.4) for b in (-3.0, 0.0, 3.0) for beta in (0.3, 1.0, 3.0)
    ])
    alpha = float(p[1])
    return SizedBatchLaw(
        float(np.exp(p[0])) * y0 * s0**alpha, alpha, float(np.exp(p[2])) * n0, float(np.exp(p[3]))
    )


def _middle(x: ndarray) -> float:
    return float(np.exp(np.log(x).mean()))


def _enough(sigma: ndarray, parameters: ndarray) -> None:
    if len(np.unique(sigma)) < 3 or len(np.unique(parameters)) < 3:
        raise UserError("a law with model size needs at least 3 values of sigma and 3 sizes")


def _best_of(curve: Callable[[ndarray], ndarray], y: ndarray, starts: Sequence[Sequence[float]]) -> ndarray:
    """The best of the least-squares fits from all starts."""
    found = [least_squares(lambda p: curve(p) - y, start, x_scale="jac", xtol=1e-12, ftol=1e-12) for start in starts]
    best: ndarray = min(found, key=lambda f: float(f.cost)).x
    return best


@dataclass(frozen=True)
class SizedSpend:
    """One way to reach J, model size included."""

    sigma: float
    parameters: float
    samples: float
    compute: float
    budget: float       # compute and what the samples cost, in operations


def cheapest_size(
    law: SizedDataLaw, batch: Callable[[float, float], ndarray], sample_cost: float,
    sigma: tuple[float, float] = (1 / 16, 256.0), parameters: tuple[float, float] = (1e4, 1e10),
) -> SizedSpend:
    """The sigma and the model size that minimise F = C + sample_cost D, `sample_cost` in operations.

    Raises UserError if the minimum is at an edge of the search range: it is then not identified.
    """

    def budget(x: ndarray) -> float:
        s, n = np.exp(x)
        d = float(law(s, n))
        return float(np.log(compute(n, batch(s, n), s, d) + sample_cost * d))

    axes = [np.log(np.geomspace(low, high, 60)) for low, high in (sigma, parameters)]
    table = np.array([[budget(np.array((u, v))) for v in axes[1]] for u in axes[0]])
    i, j = np.unravel_index(int(table.argmin()), table.shape)
    for at, axis, name in ((int(i), axes[0], "sigma"), (int(j), axes[1], "model size")):
        if at in (0, len(axis) - 1):
            raise UserError(f"the cheapest {name} is at an edge, {np.exp(axis[at]):.3g}; widen the search range")
    fine = {"xatol": 1e-7, "fatol": 1e-12}
    s, n = np.exp(minimize(budget, (axes[0][i], axes[1][j]), method="Nelder-Mead", options=fine).x)
    samples = float(law(s, n))
    spent = float(compute(n, batch(s, n), s, samples))
    return SizedSpend(float(s), float(n), samples, spent, spent + sample_cost * samples)
