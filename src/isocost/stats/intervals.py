"""Run-to-run noise and intervals: the run is the unit, its variance is pooled over arms, quantiles are Student's.

Three seeds cannot give a 90 % percentile interval: resampling a mean never leaves [min, max], which contains a
symmetric truth 75 % of the time at most. So the variance is pooled over arms. There are two kinds of interval:
*confidence* (of the mean curve) and *prediction* (of the mean of K new runs on this held-out set).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy import ndarray
from scipy.special import ndtr, stdtrit

from isocost.disk.shape import Plain

Kind = Literal["confidence", "prediction"]


@dataclass(frozen=True, slots=True)
class Interval(Plain):
    """A value with its bounds, for the mean curve or new runs by `kind`; `dof` are of the run-to-run variance."""

    value: float
    low: float
    high: float
    level: float
    kind: Kind
    dof: float

    @property
    def width(self) -> float:
        """high - low, in reward."""
        return self.high - self.low

    def holds(self, x: float) -> bool:
        """Whether x lies inside, bounds included."""
        return self.low <= x <= self.high

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def student(level: float, dof: float) -> float:
    """The half-width, in standard errors, of a central Student interval of this level."""
    return float(stdtrit(dof, (1 + level) / 2))


@dataclass(frozen=True, eq=False)
class Noise:
    """The differences between runs of one setting, on a logit scale, pooled over arms.

    `C` (K,) rollouts; `residuals` (2, I, K): for select and audit, the distance of each of I runs from its arm's mean,
    divided by `spread(mean)`; `dof` is I minus the number of arms. A run's residuals stay together, so that every draw
    has the correlation of its checkpoints.
    """

    C: ndarray
    residuals: ndarray
    dof: float

    def sd(self, C: ndarray, reward: ndarray, split: int = 1) -> ndarray:
        """The run-to-run standard deviation in reward of one run at C (...), where the mean is `reward` (...)."""
        pooled = np.sqrt((self.residuals[split] ** 2).sum(0) / self.dof)
        return spread(reward) * np.interp(np.log(C), np.log(self.C), pooled)


FLOOR = 0.05        # rewards nearer to 0 or 1 than this get the spread of this reward


def spread(reward: ndarray) -> ndarray:
    """The derivative of the inverse logit, R (1 - R), with a floor, so that a saturated arm has noise."""
    inside = np.clip(reward, FLOOR, 1 - FLOOR)
    return np.asarray(inside * (1 - inside))


def mixture_quantiles(centre: ndarray, sd: ndarray, probabilities: Sequence[float]) -> ndarray:
    """Quantiles (Q, ...), by bisection, of equal mixtures of normals with centres and sds (D, ...)."""
    if not np.any(sd > 0):
        return np.quantile(centre, probabilities, axis=0, method="weibull")
    sd = np.maximum(sd, 1e-9)
    out = []
    for probability in probabilities:
        low, high = (centre - 9 * sd).min(0), (centre + 9 * sd).max(0)
        for _ in range(50):
            middle = (low + high) / 2
            below = ndtr((middle - centre) / sd).mean(0) < probability
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        out.append((low + high) / 2)
    return np.array(out)


PRIOR_SD = 0.04     # assumed if no arm has two runs: reward, at R = 1/2; twice the value measured in the embedded study
PRIOR_DOF = 2.0


def prior_noise(C: ndarray) -> Noise:
    """The noise that is assumed if it was not measured: wide, with few degrees of freedom."""
    row = np.full((2, 1, len(C)), PRIOR_SD / 0.25 * np.sqrt(PRIOR_DOF))
    return Noise(C, row, PRIOR_DOF)
