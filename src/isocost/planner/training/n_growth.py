"""Whether the best n is likely to grow with compute on these problems, from what the plan and the profile know.

The study behind it (docs/when_n_grows.md) varied interference, the share of hard
problems, the number of training problems, the batch, the learning-rate rule, the optimiser and the metric, mostly on
softmax bandits. Two quantities that are known before training carry the answer: rollouts per training problem, C / P,
and the share of hard problems. Interference as a pilot measures it did not predict the answer, so it is not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isocost.disk.shape import Plain

FEW = 70.0          # rollouts per training problem up to which no n above 4 gained more than `LOSS` over n = 4
MANY = 200.0        # from here on a larger n won in a part of the worlds in which at least `MOSTLY` were hard
LOSS = 0.025        # of reward
MOSTLY = 0.5        # share of hard problems
HARD = 1            # a problem with at most this many right of `SAMPLES` samples is hard, as in the study
SAMPLES = 16
PAGE = "docs/when_n_grows.md"

GROWS, FLAT, UNKNOWN = "may grow", "does not grow", "not identified"


@dataclass(frozen=True)
class NGrowth(Plain):
    """The answer, the sentence that says why, and the quantities that it follows from.

    `per_problem` is C / P, rollouts of one run per training problem at the end of the plan. `hard` is the share of
    profiled problems with at most one right sample of 16; None if not measured.
    """

    answer: str
    text: str
    per_problem: float
    hard: float | None


def n_growth(C: int, problems: int | None, right: Sequence[int] | None = None) -> NGrowth | None:
    """The answer for runs of C rollouts on `problems`, None if unknown; `right` counts them by right samples of 16."""
    if not problems:
        return None
    per = C / problems
    hard = sum(right[: HARD + 1]) / sum(right) if right and sum(right) else None
    each = f"{per:,.3g} rollouts per training problem"
    share = "" if hard is None else f", {hard:.0%} of the problems hard"
    answer, text = UNKNOWN, f"whether the best n grows with compute is not identified: {each}{share} ({PAGE})"
    if per <= FEW:
        answer = FLAT
        text = (f"in problems like yours the best n does not grow with compute up to here: {each} (up to {FEW:g}, no "
                f"n above 4 gained more than {LOSS:g} in our study, {PAGE})")
    elif per >= MANY and hard is not None and hard >= MOSTLY:
        answer = GROWS
        text = (f"in problems like yours the best n may grow with compute: {each}{share} (from {MANY:g} and "
                f"{MOSTLY:.0%} on, it did in a part of our study, {PAGE}); compare a larger n before a longer run")
    return NGrowth(answer, text, per, hard)
