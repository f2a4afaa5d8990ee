"""Whether the best n is likely to grow with compute on these problems, from what the plan and the profile know.

The study behind it (`experiments/nstar_grows.py`, docs/when_n_grows.md) varied interference, the share of hard
problems, the number of training problems, the batch, the learning-rate rule, the optimiser and the metric. What it
supports is a statement about rollouts per training problem, C / P: with few of them the best n stayed where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

FEW = 25.0          # rollouts per training problem up to which the best n did not grow
MANY = 100.0        # from here on it grew in a part of the worlds, and fell in none
HARD = 1            # a problem with at most this many right of 16 samples is hard, as in the study
PAGE = "docs/when_n_grows.md"

GROWS, FLAT, UNKNOWN = "may grow", "does not grow", "not identified"


@dataclass(frozen=True)
class NGrowth:
    """The answer, the sentence that says why, and the quantities that it follows from.

    `per_problem` is C / P, rollouts of one run per training problem at the end of the plan. `hard` is the share of
    profiled problems with at most one right sample of 16; None if not measured.
    """

    answer: str
    text: str
    per_problem: float
    hard: float | None

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def of(data: Mapping[str, Any]) -> NGrowth:
        """What `data()` wrote."""
        return NGrowth(**data)


def n_growth(C: int, problems: int | None, histogram: list[int] | None = None) -> NGrowth | None:
    """The answer for runs of C rollouts on a set of `problems`; None if their number is not known.

    `histogram` counts profiled problems by right samples of 16, as profile.json holds it.
    """
    if not problems:
        return None
    per = C / problems
    hard = None
    if histogram and sum(histogram):
        hard = sum(histogram[: HARD + 1]) / sum(histogram)
    end = f"{per:,.3g} rollouts per training problem at the end of a run"
    if per <= FEW:
        return NGrowth(FLAT, f"the best n does not grow with compute up to here, as far as our study goes: {end} "
                             f"(at most {FEW:g}; {PAGE})", per, hard)
    if per < MANY:
        return NGrowth(UNKNOWN, f"whether the best n grows with compute is not identified: {end} (our study is clear "
                                f"below {FEW:g} only; {PAGE})", per, hard)
    return NGrowth(GROWS, f"the best n may grow with compute here: {end} (it did in a part of our study from {MANY:g} "
                          f"on; {PAGE}). Compare a larger n again before a much longer run", per, hard)
