"""What sampling says about training against a verifier or cloning good answers: how unlike the policy's answers are.

    sigma_x^2 = sum over h of E[Var_a Q(s_h, a)]      "Scaling Test-Time Compute Without Verification or RL is
                                                      Suboptimal", arXiv 2502.12118

There cloning n traces of H tokens lags by something that grows with sigma_x, and a verifier's use of them does not; the
gap widens like the root of H where the policy also does much better than its mean often enough (anti-concentration).
Rewards are two-level: 0 until an answer holds the solution, 1 for every token from there to H.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy import ndarray

from isocost.errors import UserError


@dataclass(frozen=True)
class Spread:
    """How unlike a policy's answers to one problem are: sigma, its mean return, and the share of them well above."""

    sigma: float
    mean: float
    above: float        # share with a return of mean + reach sigma or more; of all, where sigma is 0


def bilevel(hits: Sequence[float | None], horizon: int) -> ndarray:
    """(m,) returns of answers that first held the solution at token `hits` (from 0), or never (None), of H tokens."""
    if any(h is not None and not 0 <= h < horizon for h in hits):
        raise UserError(f"a solution is reached at one of tokens 0 to {horizon - 1}, or never")
    return np.array([0.0 if h is None else horizon - h for h in hits])


def spreads(returns: ndarray, reach: float = 1.0) -> list[Spread]:
    """One for each of P problems from (P, m) returns of sampled answers, m two or more.

    sigma_x^2 sums over steps what the choice of a token there moves the expected return. Tokens are the only chance in
    an answer, so those moves are the steps of a martingale and their variances add up to that of the return: it is the
    sample variance, unbiased, and no prefix need be tried again. `reach` is the paper's c times the root of kappa.
    """
    table = np.asarray(returns, dtype=float)
    if table.ndim != 2 or table.shape[1] < 2:
        raise UserError("how unlike answers are needs two or more of each problem")
    sigma, mean = table.std(1, ddof=1), table.mean(1)
    above = (table >= (mean + reach * sigma)[:, None] - 1e-12).mean(1)
    return [Spread(*map(float, row)) for row in zip(sigma, mean, above, strict=True)]
