"""Test-time sampling: saturation, allocation, the best temperature; and model size against samples.

    F(N) = F_max (1 - (1 - p)^N)                      TTSPM, arXiv 2505.20522, parallel and sequential alike
    pass@k(T) = exp(-e^(a(T)) k^b(T))                 co-scaling of temperature and k, arXiv 2412.15287
    factor = M + 3 (D_pre / D_inf) (M - 1)            Snell et al. 2024, arXiv 2408.03314

Unbiased pass@k, worst@k and maj@k are in `stats.passk`; strategies by difficulty are in `strategy`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy.optimize import least_squares
from scipy.special import comb

from isocost import chance
from isocost.errors import UserError

# best of N ------------------------------------------------------------------------------------------------------------


def best_of(scores: ndarray, right: ndarray, n: int) -> float:
    """The probability that the highest-scored of n of these (m,) samples is right; ties count in equal shares.

    Exact over all n-subsets, so unbiased for best-of-n under this verifier. With a perfect verifier (scores equal to
    the marks) it is pass@n. Raises UserError unless 1 <= n <= m.
    """
    scores, marks = np.asarray(scores, dtype=float), np.asarray(right, dtype=float)
    m = len(scores)
    if not 1 <= n <= m:
        raise UserError(f"best-of-n from {m} samples needs n from 1 to {m}, got {n}")
    _, level, size = np.unique(scores, return_inverse=True, return_counts=True)
    up_to = np.cumsum(size)
    wins = (comb(up_to, n) - comb(up_to - size, n)) / comb(m, n)          # the best of the subset is of this level
    return float(wins @ (np.bincount(level, marks) / size))


# saturation -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Saturation:
    """F(N) = plateau (1 - (1 - p)^N): p is the probability that one attempt, or round, solves a solvable problem."""

    plateau: float
    p: float

    def __call__(self, n: ndarray | float) -> ndarray:
        return self.plateau * -np.expm1(np.asarray(n, dtype=float) * np.log1p(-self.p))

    def gain(self, n: ndarray | float) -> ndarray:
        """F(N + 1) - F(N): the gain from the next attempt."""
        return self.plateau * self.p * (1 - self.p) ** np.asarray(n, dtype=float)

    def enough(self, least: float) -> int:
        """N*: the smallest N after which the next attempt adds at most `least`."""
        if not least > 0:
            raise UserError(f"the least gain must be above 0, got {least}")
        return max(0, math.ceil(math.log(least / (self.plateau * self.p)) / math.log1p(-self.p)))


def fit_saturation(n: ndarray, reached: ndarray) -> Saturation:
    """Least squares through (K,) numbers of attempts and the accuracy reached with them, in [0, 1].

    For a given p the plateau is linear and solved; p is searched. A mean over problems of unequal difficulty is a
    mixture of such curves and rises more slowly at its end; the plateau is then that of the problems solvable with
    these N. Raises UserError for fewer than two different N.
    """
    n, y = np.asarray(n, dtype=float), np.asarray(reached, dtype=float)
    if len(np.unique(n)) < 2:
        raise UserError(f"a plateau needs at least 2 values of N; got {len(np.unique(n))}")
    grid = np.concatenate((np.geomspace(1e-4, 0.5, 400), 1 - np.geomspace(0.5, 1e-4, 200)))
    for _ in range(4):                                    # a finer grid around the best
        rise = -np.expm1(n * np.log1p(-grid)[:, None])
        plateau = np.clip((rise * y).sum(1) / (rise**2).sum(1), 0.0, 1.0)
        squares = ((plateau[:, None] * rise - y) ** 2).sum(1)
        k = int(np.argmin(squares))
        best = Saturation(float(plateau[k]), float(grid[k]))
        grid = np.linspace(grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)], 200)
    return best


def allot(curves: Sequence[Saturation], shares: Sequence[float], mean: float) -> list[int]:
    """The best number of attempts for each class of problems, with `mean` attempts per problem on average.

    Class i has a curve and a share of the problems; its N is 0 or more. Each attempt goes to the class in which it adds
    most, which is optimal because the gains of every curve decrease. Raises UserError if shares do not add up to 1.
    """
    if len(curves) != len(shares) or min(shares) <= 0 or not math.isclose(sum(shares), 1.0, rel_tol=1e-6):
        raise UserError(f"{len(curves)} curves need as many shares, above 0 and with sum 1; got {list(shares)}")
    spent, given = 0.0, [0] * len(curves)
    queue = [(-float(c.gain(0)), i) for i, c in enumerate(curves)]
    heapq.heapify(queue)
    while queue:
        gain, i = heapq.heappop(queue)
        if gain == 0.0 or spent + shares[i] > mean * (1 + 1e-9):
            continue
        spent, given[i] = spent + shares[i], given[i] + 1
        heapq.heappush(queue, (-float(curves[i].gain(given[i])), i))
    return given


# temperature ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CoScaling:
    """ln(-ln pass@k) = a0 + a1 t + a2 t^2 + (b0 + b1 t) ln k, where t = ln T.

    At each temperature this is the power law in k of arXiv 2412.15287. Its exponent is linear and its height a parabola
    in t, so the best temperature is a power of k: T*(k) = T*(1) k^(-b1 / (2 a2)).
    """

    a: tuple[float, float, float]
    b: tuple[float, float]
    between: tuple[float, float]        # the temperatures that were measured

    def __call__(self, temperature: ndarray | float, k: ndarray | float) -> ndarray:
        t, ln_k = np.log(np.asarray(temperature, dtype=float)), np.log(np.asarray(k, dtype=float))
        (a0, a1, a2), (b0, b1) = self.a, self.b
        return np.exp(-np.exp(a0 + a1 * t + a2 * t**2 + (b0 + b1 * t) * ln_k))

    @property
    def exponent(self) -> float:
        """The exponent of T*(k) in k; NaN if the parabola has no minimum, so that no temperature is best."""
        return -self.b[1] / (2 * self.a[2]) if self.a[2] > 0 else math.nan

    def best(self, k: float) -> float:
        """T*(k) within the measured temperatures; at an end of their range the optimum may lie beyond."""
        low, high = self.between
        if self.a[2] > 0:
            return float(np.clip(np.exp(-(self.a[1] + self.b[1] * math.log(k)) / (2 * self.a[2])), low, high))
        return low if float(self(low, k)) >= float(self(high, k)) else high


@dataclass(frozen=True)
class BestTemperature:
    """T*(k) with its interval over problems; `edge` is True if it is an end of the measured range."""

    k: int
    temperature: float
    low: float
    high: float
    edge: bool


def fit_coscaling(temperature: ndarray, k: ndarray, reached: ndarray) -> CoScaling:
    """Least squares in pass@k over (K,) temperatures, numbers of attempts and pass@k reached with them, in [0, 1].

    Raises UserError for fewer than three temperatures or two k, or if pass@k is 0 everywhere or 1 everywhere.
    """
    t, n, y = (np.asarray(x, dtype=float) for x in (temperature, k, reached))
    if len(np.unique(t)) < 3 or len(np.unique(n)) < 2:
        raise UserError("the best temperature by k needs at least 3 temperatures and 2 values of k")
    if not (t > 0).all() or not (n >= 1).all() or y.max() <= 0 or y.min() >= 1:
        raise UserError("temperatures must be above 0, k at least 1, and pass@k not all 0 and not all 1")
    columns = np.stack((np.ones_like(t), np.log(t), np.log(t) ** 2, np.log(n), np.log(t) * np.log(n)), 1)
    between = (float(t.min()), float(t.max()))
    begin = np.linalg.lstsq(columns, np.log(-np.log(np.clip(y, 1e-3, 1 - 1e-3))), rcond=None)[0]
    return _coscaling(columns, y, begin, between)


def _coscaling(columns: ndarray, y: ndarray, begin: ndarray, between: tuple[float, float]) -> CoScaling:
    def off(x: ndarray) -> ndarray:
        return np.exp(-np.exp(np.minimum(columns @ x, 30.0))) - y

    def slope(x: ndarray) -> ndarray:
        z = np.minimum(columns @ x, 30.0)
        return -np.exp(z - np.exp(z))[:, None] * columns

    a0, a1, a2, b0, b1 = map(float, least_squares(off, begin, slope, method="lm").x)
    return CoScaling((a0, a1, a2), (b0, b1), between)


def best_temperatures(
    temperatures: Sequence[float], right: ndarray, m: int, ks: Sequence[int], *, level: float = 0.9, draws: int = 200,
    seed: int = 0,
) -> list[BestTemperature]:
    """T*(k) for each k from (temperatures, P) counts of right samples among m, the same P problems at every one.

    pass@k is unbiased at each k, hence k <= m; intervals are Bayesian bootstraps over problems (Rubin 1981), which use
    the same draws for all temperatures and all k. Raises UserError as `fit_coscaling` does.
    """
    counts = np.asarray(right)
    if counts.ndim != 2 or len(counts) != len(temperatures) or counts.min() < 0 or counts.max() > m:
        raise UserError(f"expected counts (temperatures, problems) = ({len(temperatures)}, P), each from 0 to {m}")
    if max(ks) > m or min(ks) < 1:
        raise UserError(f"pass@k from {m} samples needs k from 1 to {m}, got {list(ks)}")
    reached = 1 - comb(m - counts[:, None], np.asarray(ks)[:, None]) / comb(m, np.asarray(ks)[:, None])    # (T, k, P)
    t, k = (x.ravel() for x in np.meshgrid(temperatures, ks, indexing="ij"))
    law = fit_coscaling(t, k, reached.mean(-1).ravel())
    begin = np.array([*law.a, *law.b])
    columns = np.stack((np.ones_like(t), np.log(t), np.log(t) ** 2, np.log(k), np.log(t) * np.log(k)), 1)
    weights = chance.generator(seed, chance.Purpose.BOOTSTRAP, m).dirichlet(np.ones(counts.shape[1]), draws)
    again = [_coscaling(columns, (reached @ w).ravel(), begin, law.between) for w in weights]
    tail, out = (1 - level) / 2, []
    for one in ks:
        low, high = np.quantile([x.best(one) for x in again], [tail, 1 - tail])
        best = law.best(one)
        out.append(BestTemperature(one, best, min(float(low), best), max(float(high), best), best in law.between))
    return out


# size -----------------------------------------------------------------------------------------------------------------


def worth_of_size(times: float, pretraining: float, inference: float) -> float:
    """The factor on test-time compute at which a model costs as much as one `times` larger.

    Tokens of `pretraining` and `inference` over the model's life; pretraining costs 6, inference 2 operations per
    parameter and token, and the larger model pays both.
    """
    if min(times, pretraining, inference) <= 0:
        raise UserError("times, pretraining and inference must be above 0")
    return times + 3.0 * pretraining / inference * (times - 1.0)
