"""Many methods, each against its parent: whether a change does what it claims, with the false ones counted.

Asking of forty methods whether they differ from their parents calls some different by luck. Benjamini and Hochberg
(1995) hold the expected share of such calls among all that are made to `RATE`: of m p-values the k smallest are
believed, k the largest for which the k-th is at most RATE k / m. Intervals are drawn at the level that belongs to it,
1 - RATE k / m (Benjamini and Yekutieli 2005), so that what is called different is what has an interval without zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from isocost.compare.judge import MARGIN, QUESTIONS, Answer, compare
from isocost.compare.tracks import Track
from isocost.errors import UserError

RATE = 0.1          # of all differences that are called, the share that may be none


@dataclass(frozen=True)
class Change:
    """One method against its parent: its mean reward and its parent's at equal cost, the three answers and a verdict.

    `verdict` is `better` or `worse` with the question that decided, `same`, or `cannot tell`. `runs` are how many of
    each arm counted, `cost` what each had spent in the wave's unit.
    """

    method: str
    parent: str
    runs: tuple[int, int]
    cost: float
    means: tuple[float, float]
    answers: tuple[Answer, ...]
    verdict: str
    by: str
    notes: tuple[str, ...]

    def answer(self, question: str) -> Answer:
        """The answer to one of `QUESTIONS`, the method less its parent."""
        return next(a for a in self.answers if a.question == question)


@dataclass(frozen=True)
class Wave:
    """Every change, in the order given; `called` of `asked` answers were believed, each held to `alpha`."""

    unit: str
    margin: float
    rate: float
    asked: int
    called: int
    alpha: float
    changes: tuple[Change, ...]

    def data(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def believed(p: Sequence[float], rate: float = RATE) -> int:
    """How many of the smallest p-values are believed, by Benjamini and Hochberg's rule."""
    ordered = sorted(p)
    return max((k for k in range(1, len(p) + 1) if ordered[k - 1] <= rate * k / len(p)), default=0)


def wave(arms: Mapping[str, Sequence[Track]], parents: Mapping[str, str], *, unit: str = "rollouts",
         margin: float = MARGIN, rate: float = RATE, seed: int = 0) -> Wave:
    """Judge every method against its parent, whose runs are shared by all of its children.

    `parents` maps each method that is judged to an arm. Each pair is read at the largest cost that its own runs
    reached. Raises UserError for a parent that has no runs, and where a single comparison would.
    """
    if not parents:
        raise UserError("a wave needs a method and its parent")
    lacking = next((f"{m}'s parent {p}" for m, p in parents.items() if p not in arms), None)
    if lacking:
        raise UserError(f"{lacking} has no runs to be compared with")

    def judged(alpha: float | None) -> list[Any]:
        return [compare({m: arms[m], p: arms[p]}, unit=unit, margin=margin, seed=seed, alpha=alpha)
                for m, p in parents.items()]

    p = [a.p for c in judged(None) for a in c.answers]
    called = believed(p, rate)
    alpha = rate * max(called, 1) / len(p)
    changes = []
    for (method, parent), c in zip(parents.items(), judged(alpha), strict=True):
        (verdict,), (own, its) = c.verdicts, c.arms
        said = {method: "better", parent: "worse"}.get(verdict.better, verdict.better)
        changes.append(Change(
            method, parent, (len(own.runs), len(its.runs)), c.cost, (own.mean, its.mean),
            tuple(c.answer(q, method, parent) for q in QUESTIONS), said, verdict.by, c.missing,
        ))
    return Wave(unit, margin, rate, len(p), called, alpha, tuple(changes))
