"""How held-out reward is measured, and at which compute, the same for every run of a study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any

from isocost.planner.study_runs import Size

LEAST_POINTS = 4        # evaluations after the base that are kept: the fewest that a curve can be fitted to


@dataclass(frozen=True)
class EvaluationPlan:
    """How held-out reward is measured, the same for every run of a study.

    `problems` are evaluated, validation and test split together, by `samples` attempts each (None: exactly). Each split
    has half of them, so a value is the mean over `problems` / 2. `held_out` is how many there are where fewer are
    evaluated. `first` is the first evaluation point after the base policy, in rollouts; None is one common update.
    """

    problems: int = 256
    samples: int | None = None
    held_out: int | None = None
    first: int | None = None

    @property
    def rollouts(self) -> int:
        """Rollouts sampled by one evaluation; 0 if exact."""
        return self.problems * (self.samples or 0)

    @property
    def sd(self) -> float:
        """Standard error that sampling gives one evaluation, at the widest (pass rate 1/2); 0 if exact."""
        return self.sd_of(1)

    def sd_of(self, attempts: int) -> float:
        """The same of best@k or worst@k, k attempts: at most that of the samples parted into whole lots of k."""
        return 0.0 if self.samples is None else 0.5 / sqrt(self.problems / 2 * max(self.samples // attempts, 1))

    def points(self, C: int, unit: int) -> tuple[int, ...]:
        """Evaluation points of a run of C rollouts after the base, in multiples of `unit`.

        Exact evaluations are two per doubling; sampled ones are one, or two where a curve would have too few and none
        was cut.
        """
        start = ceil((self.first or unit) / unit) * unit
        sparse = points(C, start, 1)
        dense = self.samples is None or (self.first is None and len(sparse) < LEAST_POINTS)
        return points(C, start, 2) if dense else sparse

    @staticmethod
    def of_profile(profile: Mapping[str, Any]) -> EvaluationPlan:
        """As the profile found the held-out problems: their number, and whether they are read exactly."""
        held_out = int(profile.get("select") or 0) + int(profile.get("audit") or 0)
        return EvaluationPlan(held_out or 256, None if profile.get("exact", True) else 4)


def points(C: int, unit: int, per_doubling: int = 2) -> tuple[int, ...]:
    """Evaluation points in rollouts: log-spaced from `unit` to C, multiples of `unit` so that every arm meets them.

    `per_doubling` 0 gives the middle and the end.
    """
    if per_doubling == 0:
        return tuple(sorted({max(unit, C // (2 * unit) * unit), C}))
    out, x, step = {C}, float(unit), 2 ** (1 / per_doubling)
    while x <= C / sqrt(step):       # nothing crowds the last point
        out.add(round(x / unit) * unit)
        x *= step
    return tuple(sorted(out))


def evaluations_of(e: EvaluationPlan, runs: Sequence[Size], unit: int) -> int:
    """How often these runs are evaluated in all, the base included."""
    many = Counter(C for *_, C in runs)
    return sum(k * (1 + len(e.points(C, unit))) for C, k in many.items())
