"""What a law is made of: fitted arms and their curves, bands, n*(C), and what is not identified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy import ndarray

from isocost.stats.forms import LOG_SIGMOID
from isocost.stats.intervals import Interval, Kind
from isocost.stats.second import reached_by

FINEST = 2.0**0.125     # least factor from n* to a bound: n* is interpolated between n a doubling apart


@dataclass(frozen=True, slots=True)
class NotIdentified:
    """What the records do not identify (`reason`), what would resolve it (`settle`), and about how many rollouts it
    costs.

    `option` is the option of `isocost pilot` that adds these runs; empty if there is none.
    """

    reason: str
    settle: str
    rollouts: float
    option: str = ""


@dataclass(frozen=True, slots=True)
class Flag:
    """A named caution; `text` is one sentence.

    Names: edge_of_grid, natural_bound, extrapolation, epochs, identifiability, few_seeds, few_evaluations, diverged,
    collapsed, falls, falling, misfit, bent, rate, second_rise, short, cut, fixed_batch, metric, overfitting.
    """

    name: str
    text: str


@dataclass(frozen=True, eq=False)
class Fit:
    """One arm's curve on one split: F forms, D draws, S folds.

    `parameters` are the sigmoid's R0, A, Cmid, b (ScaleRL's letters). `points` (F, 3) are A, Cmid, b of each form;
    `draws` (D, 4) are posterior draws of the form's index in `Law.tails`, A, Cmid, b; `folds` (S, F, 3) are the points
    with each run left out, empty if an arm has one run. `second` (D, 3) is each draw's second rise: its share of the
    gain (0: there is none), midpoint and exponent; A is then the asymptote of both, Cmid and b are those of the first.
    """

    parameters: dict[str, float]
    points: ndarray
    draws: ndarray
    folds: ndarray
    second: ndarray = field(default_factory=lambda: np.zeros((1, 3)))      # in old records: none

    def midpoints(self, tails: Sequence[float]) -> ndarray:
        """The C (D,) at which each draw is past half of its gain."""
        return reached_by(0.5, self.draws, self.second, tails)


@dataclass(frozen=True, eq=False)
class FittedArm:
    """One n: the S runs used, evaluated at K common points C > 0, and their fitted curves.

    `select` and `audit` are rewards (S, K); `epochs` and `seconds` (K,) are means over runs, NaN if unrecorded;
    `diverged` counts the runs left out because they diverged (NaN, below their start, or back at it after a rise),
    `fallen` are their last audit rewards (empty in records from before it). `moved` is False if the mean has not risen
    enough to identify the arm's curve. `fits` are (select, audit). `still` if the runs have not risen from their base
    at all, so that they do not tell when they will: they are not forecast.
    """

    n: int
    B: int
    lr: float
    runs: tuple[str, ...]
    seeds: tuple[int, ...]
    diverged: int
    C: ndarray
    select: ndarray
    audit: ndarray
    epochs: ndarray
    seconds: ndarray
    moved: bool
    fits: tuple[Fit, Fit]
    fallen: tuple[float, ...] = ()
    still: bool = False


@dataclass(frozen=True, eq=False)
class Band:
    """A curve over compute with its interval: C, value, low, high, all (K,)."""

    C: ndarray
    value: ndarray
    low: ndarray
    high: ndarray
    level: float
    kind: Kind


@dataclass(frozen=True, eq=False)
class Frontier:
    """The upper envelope of fitted curves: at C (K,) the best n by `select`, its corrected `audit` value, its band."""

    C: ndarray
    n: ndarray
    value: ndarray
    low: ndarray
    high: ndarray
    level: float


@dataclass(frozen=True, eq=False)
class Growth:
    """n*(C) if it is identified: log2 n* = L + (U - L) / (1 + exp(-k (ln C - ln C0))), natural logarithm of C.

    `parameters` has an interval for each of L, U, k, C0; `draws` (D, 4) are theirs. The form is IsoCompute's
    (arXiv 2603.12151); n* saturates at 2^U.
    """

    parameters: dict[str, Interval]
    draws: ndarray

    def at(self, C: float) -> Interval:
        """n* at C, not rounded, with its confidence interval."""
        own = list(self.parameters.values())
        values = 2.0 ** LOG_SIGMOID.f(np.array(float(C)), *self.draws.T)
        centre = float(2.0 ** LOG_SIGMOID.f(np.array(float(C)), *(np.array(p.value) for p in own)))
        low, high = (float(q) for q in np.quantile(values, tails_of(own[0].level), method="weibull"))
        return Interval(centre, min(low, centre) / FINEST, max(high, centre) * FINEST, own[0].level, "confidence",
                        own[0].dof)


class Predicted(NamedTuple):
    """Held-out reward on the test split at one C: the confidence interval of the mean curve, which is that of runs that
    do not diverge, and the prediction interval of the mean of new runs, of which some do (`Law.falls`)."""

    confidence: Interval
    prediction: Interval


def tails_of(level: float) -> tuple[float, float]:
    """The probabilities of the ends of a central interval of this level."""
    return (1 - level) / 2, (1 + level) / 2
