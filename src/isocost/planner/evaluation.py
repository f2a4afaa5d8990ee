"""How held-out reward is measured, and at which compute, the same for every run of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt
from typing import Any, ClassVar

from isocost.disk.shape import Plain
from isocost.planner.training.study_runs import Size

LEAST_POINTS = 4        # least evaluations after the base: fewer cannot fit a curve


@dataclass(frozen=True)
class EvaluationPlan(Plain):
    """How held-out reward is measured, the same for every run of a study.

    `problems` are evaluated, validation and test split together, by `samples` attempts each (None: exactly). Each split
    has half of them, so a value is the mean over `problems` / 2; with `splits` 1 it is over all of them, and both
    chooses and is reported. `held_out` is the number of held-out problems if fewer are evaluated. `first` is the first
    evaluation point after the base, in rollouts; None is one common update. With `even` a run has about so many points
    at equal distances, for trainers that evaluate every so many updates.
    """

    problems: int = 256
    samples: int | None = None
    held_out: int | None = None
    first: int | None = None
    splits: int = 2
    even: int | None = None

    LATER: ClassVar = ("splits", "even")

    @property
    def rollouts(self) -> int:
        """Rollouts sampled by one evaluation; 0 if exact."""
        return self.problems * (self.samples or 0)

    @property
    def sd(self) -> float:
        """The sampling standard error of one evaluation, at its largest (pass rate 1/2); 0 if exact."""
        return self.sd_of(1)

    def sd_of(self, attempts: int) -> float:
        """The same for best@k or worst@k with k attempts: at most that of the samples in disjoint sets of k."""
        if self.samples is None:
            return 0.0
        return 0.5 / sqrt(self.problems / self.splits * max(self.samples // attempts, 1))

    def points(self, C: int, unit: int) -> tuple[int, ...]:
        """Evaluation points of a run of C rollouts after the base, in multiples of `unit`: log-spaced, or `even`."""
        if self.even:
            return spaced(C, unit, self.even)
        start = ceil((self.first or unit) / unit) * unit
        sparse = points(C, start, 1)
        dense = self.samples is None or (self.first is None and len(sparse) < LEAST_POINTS)
        return points(C, start, 2) if dense else sparse

    @staticmethod
    def of_profile(profile: Mapping[str, Any]) -> EvaluationPlan:
        """The evaluation of a profile: its number of held-out problems, and whether they are evaluated exactly."""
        held_out = int(profile.get("select") or 0) + int(profile.get("audit") or 0)
        return EvaluationPlan(held_out or 256, None if profile.get("exact", True) else 4)


@lru_cache(1 << 14)      # a search for the largest budget asks for the same few thousands again and again
def points(C: int, unit: int, per_doubling: int = 2) -> tuple[int, ...]:
    """Log-spaced points from `unit` to C, multiples of `unit` that every arm has; 0 per doubling: middle and end."""
    if per_doubling == 0:
        return tuple(sorted({max(unit, C // (2 * unit) * unit), C}))
    out, x, step = {C}, float(unit), 2 ** (1 / per_doubling)
    while x <= C / sqrt(step):       # no point close to the last one
        out.add(round(x / unit) * unit)
        x *= step
    return tuple(sorted(out))


def spaced(C: int, unit: int, many: int) -> tuple[int, ...]:
    """At most about `many` evenly spaced points to C, multiples of `unit`; their distance divides C if it can."""
    units = C // unit
    least = max(1, ceil(units / many))
    most = max(least, units // min(many, LEAST_POINTS))
    step = next((k for k in range(least, most + 1) if units % k == 0), least) * unit
    return tuple(sorted({*range(step, C + 1, step), C}))


def evaluations_of(e: EvaluationPlan, runs: Sequence[Size], unit: int) -> int:
    """The number of evaluations of these runs in all, with that of the base."""
    many = Counter(C for *_, C in runs)
    return sum(k * (1 + len(e.points(C, unit))) for C, k in many.items())


def evaluated(points: Sequence[int], update: int, updates: int) -> int:
    """Evaluations that a run makes of these points, with that of the base: one after an update that reaches any."""
    return 1 + len({min(ceil(x / update), updates) for x in points})
