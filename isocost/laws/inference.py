"""What more sampling at test time buys: how it saturates with attempts or rounds, and what a larger model costs.

    F(N) = F_max (1 - (1 - p)^N)                      "Scaling over Scaling" (TTSPM), parallel and sequential alike
    factor = M + 3 (D_pre / D_inf) (M - 1)            Snell et al. 2024, arXiv 2408.03314
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.errors import UserError


@dataclass(frozen=True)
class Saturation:
    """F(N) = plateau (1 - (1 - p)^N): p is the chance that one more attempt, or round, succeeds where it can at all."""

    plateau: float
    p: float

    def __call__(self, n: ndarray | float) -> ndarray:
        return self.plateau * -np.expm1(np.asarray(n, dtype=float) * np.log1p(-self.p))

    def gain(self, n: ndarray | float) -> ndarray:
        """F(N + 1) - F(N): what the next one adds."""
        return self.plateau * self.p * (1 - self.p) ** np.asarray(n, dtype=float)

    def enough(self, least: float) -> int:
        """N*: the first N after which the next one adds no more than `least`."""
        if not least > 0:
            raise UserError(f"the least gain is {least}; it must be above 0, for the last ones add next to nothing")
        return max(0, math.ceil(math.log(least / (self.plateau * self.p)) / math.log1p(-self.p)))


def fit_saturation(n: ndarray, reached: ndarray) -> Saturation:
    """Least squares through (K,) numbers and what was reached with them, in [0, 1].

    For a given p the plateau is linear; p is searched. A mean over problems of unequal difficulty is a mixture of such
    curves and rises more slowly at its end: the plateau is then of those problems that these N can solve. Raises
    UserError for fewer than two different N.
    """
    n, y = np.asarray(n, dtype=float), np.asarray(reached, dtype=float)
    if len(np.unique(n)) < 2:
        raise UserError(f"a plateau needs two values of N or more; there are {len(np.unique(n))}")
    grid = np.concatenate((np.geomspace(1e-4, 0.5, 400), 1 - np.geomspace(0.5, 1e-4, 200)))
    for _ in range(4):                                    # ever finer around the best
        rise = -np.expm1(n * np.log1p(-grid)[:, None])
        plateau = np.clip((rise * y).sum(1) / (rise**2).sum(1), 0.0, 1.0)
        squares = ((plateau[:, None] * rise - y) ** 2).sum(1)
        k = int(np.argmin(squares))
        best = Saturation(float(plateau[k]), float(grid[k]))
        grid = np.linspace(grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)], 200)
    return best


def worth_of_size(times: float, pretraining: float, inference: float) -> float:
    """How many times more test-time compute a model may spend for what one `times` larger costs.

    Tokens of `pretraining` and `inference` over the model's life; pretraining costs 6, inference 2 operations per
    parameter and token, and the larger model pays both.
    """
    if min(times, pretraining, inference) <= 0:
        raise UserError("size and numbers of tokens must be above 0")
    return times + 3.0 * pretraining / inference * (times - 1.0)
