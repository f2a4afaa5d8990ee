"""Train against a verifier or clone good answers: a choice by the heterogeneity of the policy's answers.

    sigma_x^2 = sum over h of E[Var_a Q(s_h, a)]      "Scaling Test-Time Compute Without Verification or RL is
                                                      Suboptimal", arXiv 2502.12118

In that paper the regret of cloning n traces of H tokens grows with sigma_x, and that of using a verifier does not. The
gap grows like sqrt(H) if the policy also exceeds its mean by much often enough (anti-concentration).
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
    """The heterogeneity of a policy's answers to one problem: sigma, mean return, and the share well above the mean."""

    sigma: float
    mean: float
    above: float        # share with a return of at least mean + reach sigma; 1 if sigma is 0


@dataclass(frozen=True)
class Advice:
    """How to train on a problem set: "verifier", "clone", "guide" or "cannot tell"; and the shares of problems behind
    it."""

    way: str
    never: float        # no answer was right: nothing to verify or to clone
    alike: float        # heterogeneity so small that cloning loses nothing to a verifier
    settled: float      # answers differ, but none is much better than the mean
    open: float         # answers differ and some are much better: a verifier can select them
    why: str


SAMPLES = 16            # least samples per problem for advice
HALF = 0.5              # share of problems that decides


def bilevel(hits: Sequence[float | None], horizon: int) -> ndarray:
    """(m,) returns of answers that first held the solution at token `hits` (from 0), or never (None), of H tokens."""
    if any(h is not None and not 0 <= h < horizon for h in hits):
        raise UserError(f"expected hits from 0 to {horizon - 1}, or None for never")
    return np.array([0.0 if h is None else horizon - h for h in hits])


def spreads(returns: ndarray, reach: float = 1.0) -> list[Heterogeneity]:
    """The heterogeneity of each of P problems, from (P, m) returns of sampled answers, m at least 2.

    sigma_x^2 sums, over steps, the variance that the choice of a token adds to the expected return. Tokens are the only
    random part of an answer, so these changes are the steps of a martingale and their variances add up to that of the
    return: the sample variance is an unbiased estimate, without resampling from prefixes. `reach` is the paper's c
    times sqrt(kappa).
    """
    table = np.asarray(returns, dtype=float)
    if table.ndim != 2 or table.shape[1] < 2:
        raise UserError("heterogeneity needs at least 2 answers per problem")
    sigma, mean = table.std(1, ddof=1), table.mean(1)
    above = (table >= (mean + reach * sigma)[:, None] - 1e-12).mean(1)
    return [Heterogeneity(*map(float, row)) for row in zip(sigma, mean, above, strict=True)]


def advise(returns: ndarray, horizon: float = 1.0, *, traces: int | None = None, reach: float = 0.5) -> Advice:
    """Whether to train against a verifier, to clone good answers, or to guide first, from (P, m) returns in 0..horizon.

    The regret of cloning n traces is about sigma_x / sqrt(n), that of a verifier about H / n. So heterogeneity is small
    if sigma_x / H <= 1 / sqrt(n), with n the number of `traces` available for cloning (by default the number of
    samples). A verifier also needs answers that exceed their mean by `reach` sigma. The paper does not fix its
    constants: those of the rates are taken as 1, and half a sigma is exceeded at every pass rate up to 0.8. Half of the
    problems decide: first those never right, then the others among themselves.
    """
    found = spreads(returns, reach)
    samples = np.asarray(returns).shape[1]
    least = (traces or len(found) * samples) ** -0.5
    never = np.array([s.mean <= 0 for s in found])
    alike = np.array([s.sigma / horizon <= least for s in found]) & ~never
    above = np.array([s.above > 0 for s in found]) & ~never & ~alike
    shares = {"never": never.mean(), "alike": alike.mean(), "settled": (~never & ~alike & ~above).mean(),
              "open": above.mean()}
    solvable = max(1 - shares["never"], 1e-12)
    unlike = shares["open"] / solvable
    if samples < SAMPLES:
        way, why = "cannot tell", f"{samples} samples per problem; at least {SAMPLES} are needed"
    elif shares["never"] > HALF:
        way, why = "guide", f"{shares['never']:.0%} of problems were never right, so there is no answer to learn from"
    elif unlike >= HALF:
        way, why = "verifier", f"on {unlike:.0%} of the others answers differ, and some are well above the mean"
    else:
        way, why = "clone", f"on {1 - unlike:.0%} of the others answers are alike, or none is well above the mean"
    return Advice(way, **{k: float(v) for k, v in shares.items()}, why=why)


def advise_by(profile: Mapping[str, Any], **settings: Any) -> Advice:
    """`advise` from a profile, whose answers are right or wrong: returns of 1 and 0."""
    right, m = np.asarray(profile["right"]), int(profile["samples"])
    return advise((np.arange(m) < right[:, None]).astype(float), **settings)
