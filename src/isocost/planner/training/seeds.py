"""Seeds: the minimum detectable difference between two arms of a prescription, and how many seeds one takes.

The comparison is that of the audit: runs paired by seed, a Student interval of the mean difference with seeds - 1
degrees of freedom. Runs of one seed have the problems in the same order, but their rewards are hardly correlated, so
the standard deviation of a difference is taken as sqrt(2) times that of a run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from isocost.disk.shape import Plain
from isocost.laws.law import Law
from isocost.planner.training.prescription import Plan, PlannedArm
from isocost.stats.power import MOST, POWER, detectable_paired, seeds_for


@dataclass(frozen=True)
class ComparisonPower(Plain):
    """The minimum difference that a plan's comparison detects with `seeds` per arm, and the one the law predicts.

    `sd` is that of one run's reward at the plan's C, from `dof` degrees of freedom. `needed` seeds detect the predicted
    `difference`; None if none is predicted, or if `MOST` seeds are too few.
    """

    seeds: int
    sd: float
    dof: float
    detectable: float | None
    difference: float | None
    needed: int | None
    text: str


def comparison(plan: Plan, law: Law) -> ComparisonPower | None:
    """The power of a plan's comparison; None if it has one arm, or if the law has no curve of the first."""
    arm, other = plan.arm, plan.comparator
    if other is None or arm.confidence is None:
        return None
    sd = _sd(law, arm)
    least = detectable_paired(plan.seeds, sd)
    difference = None if other.confidence is None else arm.confidence.value - other.confidence.value
    needed = None if difference is None else seeds_for(difference, sd)
    return ComparisonPower(plan.seeds, sd, law.dof, least if isfinite(least) else None, difference, needed,
                      _text(plan.seeds, least, difference, needed))


def _sd(law: Law, arm: PlannedArm) -> float:
    """Run-to-run standard deviation at the reward that is expected of the arm."""
    assert arm.confidence is not None
    return float(law.noise.sd(np.array([float(arm.C)]), np.array([arm.confidence.value]))[0])


def _text(seeds: int, least: float, difference: float | None, needed: int | None) -> str:
    said = (f"minimum detectable difference with {seeds} seeds per arm: {least:.3f} ({POWER:.0%} power)"
            if isfinite(least) else "one seed per arm detects no difference: the noise is not measured")
    if difference is None:
        return f"{said}; the law predicts no difference: it has no curve of the comparator"
    expected = f"{said}; the predicted difference is {difference:+.3f}"
    if needed is None:
        return f"{expected}, too small to detect with {MOST:,} seeds"
    return f"{expected} and {'needs' if needed <= seeds else 'would need'} {needed} seeds"
