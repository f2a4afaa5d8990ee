"""What sampling says about training against a verifier or cloning good answers: how unlike the policy's answers are.

    sigma_x^2 = sum over h of E[Var_a Q(s_h, a)]      "Scaling Test-Time Compute Without Verification or RL is
                                                      Suboptimal", arXiv 2502.12118

There cloning n traces of H tokens lags by something that grows with sigma_x, and a verifier's use of them does not; the
gap widens like the root of H where the policy also does much better than its mean often enough (anti-concentration).
Rewards are two-level: 0 until an answer holds the solution, 1 for every token from there to H.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.errors import UserError


@dataclass(frozen=True)
class Heterogeneity:
    """How unlike a policy's answers to one problem are: sigma, its mean return, and the share of them well above."""

    sigma: float
    mean: float
    above: float        # share with a return of mean + reach sigma or more; of all, where sigma is 0


@dataclass(frozen=True)
class Advice:
    """What to learn a problem set by: "verifier", "clone", "guide" or "cannot tell"; and the shares of problems why."""

    way: str
    never: float        # nothing was ever right: there is nothing to verify or to clone
    alike: float        # answers so alike that clones of them lag by no more than a verifier's use of them does
    settled: float      # answers differ, but none does much better than their mean
    open: float         # answers differ, and some do: what a verifier can point at
    why: str


SAMPLES = 16            # of each problem, below which shares of them say little
HALF = 0.5              # of the problems, above which they decide


def bilevel(hits: Sequence[float | None], horizon: int) -> ndarray:
    """(m,) returns of answers that first held the solution at token `hits` (from 0), or never (None), of H tokens."""
    if any(h is not None and not 0 <= h < horizon for h in hits):
        raise UserError(f"a solution is reached at one of tokens 0 to {horizon - 1}, or never")
    return np.array([0.0 if h is None else horizon - h for h in hits])


def spreads(returns: ndarray, reach: float = 1.0) -> list[Heterogeneity]:
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
    return [Heterogeneity(*map(float, row)) for row in zip(sigma, mean, above, strict=True)]


def advise(returns: ndarray, horizon: float = 1.0, *, traces: int | None = None, reach: float = 0.5) -> Advice:
    """Whether to train against a verifier, to clone good answers, or to guide first, from (P, m) returns in 0..horizon.

    Cloning n traces lags by about sigma_x / sqrt(n), the use of a verifier by about H / n: so answers are alike where
    sigma_x / H <= 1 / sqrt(n), n the `traces` there would be to clone (as many as there are samples, if not given).
    A verifier also wants answers that do better than their mean by `reach` sigma. The paper leaves its constants open:
    those of the rates are taken as 1, and half a sigma is reached at every pass rate up to 0.8. Half of the problems
    decide: those never right first, then the others among themselves.
    """
    found = spreads(returns, reach)
    samples = np.asarray(returns).shape[1]
    least = (traces or len(found) * samples) ** -0.5
    never = np.array([s.mean <= 0 for s in found])
    alike = np.array([s.sigma / horizon <= least for s in found]) & ~never
    above = np.array([s.above > 0 for s in found]) & ~never & ~alike
    shares = {"never": never.mean(), "alike": alike.mean(), "settled": (~never & ~alike & ~above).mean(),
              "open": above.mean()}
    some = max(1 - shares["never"], 1e-12)
    unlike = shares["open"] / some
    if samples < SAMPLES:
        way, why = "cannot tell", f"{samples} samples of each problem, where {SAMPLES} say something"
    elif shares["never"] > HALF:
        way, why = "guide", f"{shares['never']:.0%} of problems were never right: there is nothing to learn from yet"
    elif unlike >= HALF:
        way, why = "verifier", f"on {unlike:.0%} of the others answers differ, and some are well above their mean"
    else:
        way, why = "clone", f"on {1 - unlike:.0%} of the others answers are alike, or none is well above their mean"
    return Advice(way, **{k: float(v) for k, v in shares.items()}, why=why)


def advise_by(profile: Mapping[str, Any], **settings: Any) -> Advice:
    """The same from a profile, whose answers are right or wrong: returns of 1 and 0, whenever they got there."""
    right, m = np.asarray(profile["right"]), int(profile["samples"])
    return advise((np.arange(m) < right[:, None]).astype(float), **settings)
