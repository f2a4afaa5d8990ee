"""Data scaling: the score with more environments, objects, examples or labels.

    1 - score = beta X^alpha                          "Data Scaling Laws in Imitation Learning", arXiv 2410.18647
    R0 + (A - R0) / (1 + (Xmid / X)^b)                the sigmoid of `forms`, which "Scaling RL for Content Moderation",
                                                      arXiv 2512.20061, finds in examples, rollouts and steps alike

X in the first law is a measure of diversity: environments, objects, pairs of them. The number of demonstrations in one
environment is not, because they saturate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy import ndarray
from scipy.special import stdtrit

from isocost.errors import UserError
from isocost.stats.forms import SIGMOID, Fitted


@dataclass(frozen=True)
class GapLaw:
    """1 - score = beta X^alpha, with the interval of alpha and the correlation (Pearson's r) of the logarithms."""

    beta: float
    alpha: float
    interval: tuple[float, float]
    correlation: float
    level: float

    def __call__(self, x: ndarray | float) -> ndarray:
        return 1 - self.beta * np.asarray(x, dtype=float) ** self.alpha

    def needed(self, score: float) -> float:
        """X that reaches a score. Raises UserError if no X does, or if the score does not rise with X."""
        if not score < 1 or not self.alpha < 0:
            raise UserError(f"no X reaches a score of {score:g} under 1 - {self.beta:.3g} X^{self.alpha:.3g}")
        return float(((1 - score) / self.beta) ** (1 / self.alpha))


def fit_gap(x: ndarray, score: ndarray, *, level: float = 0.9) -> GapLaw:
    """A straight line through ln(1 - score) against ln X, both (K,); Student's interval, with points as the unit.

    Raises UserError for fewer than three different X, an X of 0 or less, or a score of 1 or more, which has no gap.
    """
    x, y = np.asarray(x, dtype=float), np.asarray(score, dtype=float)
    if len(np.unique(x)) < 3:
        raise UserError(f"a power law with an interval needs at least 3 values of X; got {len(np.unique(x))}")
    if not (x > 0).all() or not (y < 1).all():
        raise UserError("X must be above 0 and scores below 1: remove the points whose score is 1")
    u, v = np.log(x), np.log(1 - y)
    du, dv = u - u.mean(), v - v.mean()
    alpha = float(du @ dv / (du @ du))
    left = dv - alpha * du
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(du @ du))
    reach = float(stdtrit(len(x) - 2, (1 + level) / 2)) * error
    spread = math.sqrt(float(dv @ dv) * float(du @ du))
    r = float(du @ dv) / spread if spread else 0.0
    return GapLaw(float(np.exp(v.mean() - alpha * u.mean())), alpha, (alpha - reach, alpha + reach), r, level)


def needed(curve: Fitted, reward: float) -> float:
    """X at which a fitted sigmoid reaches a reward. Raises UserError if that is not between its start and asymptote."""
    if curve.form != SIGMOID:
        raise UserError(f"expected a fitted sigmoid, got a {curve.form.name}")
    low, high, middle, b = (curve.parameters[p] for p in SIGMOID.parameters)
    if not low < reward < high:
        raise UserError(f"the curve goes from {low:.3g} to {high:.3g} and never reaches {reward:g}")
    return float(middle * ((reward - low) / (high - reward)) ** (1 / b))


def times_less(ours: Fitted, theirs: Fitted, reward: float) -> float:
    """The ratio of the X that two fitted sigmoids need for a reward, `theirs` over `ours`: data efficiency."""
    return needed(theirs, reward) / needed(ours, reward)
