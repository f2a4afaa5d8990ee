"""Judge many methods, each against its parent, with a controlled false discovery rate.

Among forty comparisons some differences are significant by chance. The procedure of Benjamini and Hochberg (1995) holds
the expected share of false discoveries to `RATE`: of m p-values the k smallest are accepted, k the largest for which
the k-th is at most RATE k / m. Intervals have the matching level 1 - RATE k / m (Benjamini and Yekutieli 2005), so an
answer is accepted if and only if its interval excludes zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isocost.compare.judge import DIFFERENT, MARGIN, QUESTIONS, SAME, UNKNOWN, PairAnswer, compare
from isocost.disk.shape import Plain
from isocost.errors import UserError
from isocost.laws.tracks import Track

RATE = 0.1          # expected share of accepted differences that are false


@dataclass(frozen=True)
class Change:
    """One method against its parent. `means` are the mean rewards of the method and its parent at `cost`, in the wave's
    unit. `verdict` is `better`, `worse`, `same` or `cannot tell`; `by` is the question that decided. `runs` are the
    numbers of runs that counted."""

    method: str
    parent: str
    runs: tuple[int, int]
    cost: float
    means: tuple[float, float]
    answers: tuple[PairAnswer, ...]
    verdict: str
    by: str
    notes: tuple[str, ...]

    def answer(self, question: str) -> PairAnswer:
        """The answer to one of `QUESTIONS`, the method minus its parent."""
        return next(a for a in self.answers if a.question == question)


@dataclass(frozen=True)
class ChangeSet(Plain):
    """Every change, in the order given. Of `asked` answers `called` were accepted, each at the error rate `alpha`;
    `rate` is the false discovery rate. `margin` is in reward."""

    unit: str
    margin: float
    rate: float
    asked: int
    called: int
    alpha: float
    changes: tuple[Change, ...]

    @property
    def exit_code(self) -> int:
        """For scripts: 0 if a method differs from its parent, 3 if all are the same within the margin, else 4."""
        verdicts = [c.verdict for c in self.changes]
        if all(x == "same" for x in verdicts):
            return SAME
        return DIFFERENT if any(x in ("better", "worse") for x in verdicts) else UNKNOWN


def accepted(p: Sequence[float], rate: float = RATE) -> int:
    """How many of the smallest p-values are accepted, by Benjamini and Hochberg's procedure."""
    ordered = sorted(p)
    return max((k for k in range(1, len(p) + 1) if ordered[k - 1] <= rate * k / len(p)), default=0)


def wave(arms: Mapping[str, Sequence[Track]], parents: Mapping[str, str], *, unit: str = "rollouts",
         margin: float = MARGIN, rate: float = RATE, seed: int = 0) -> ChangeSet:
    """Judge every method against its parent, whose runs are shared by all of its children.

    `parents` maps each judged method to an arm. Each pair is read at the largest cost that its own runs reached.

    Raises UserError without methods, for a parent without runs, and in the cases of `isocost.compare.judge.compare`.
    """
    if not parents:
        raise UserError("comparing with parents needs at least one method and its parent")
    lacking = next((f"{m}'s parent {p}" for m, p in parents.items() if p not in arms), None)
    if lacking:
        raise UserError(f"{lacking} has no runs")

    def judged(alpha: float | None) -> list[Any]:
        return [compare({m: arms[m], p: arms[p]}, unit=unit, margin=margin, seed=seed, alpha=alpha)
                for m, p in parents.items()]

    p = [a.p for c in judged(None) for a in c.answers]
    called = accepted(p, rate)
    alpha = rate * max(called, 1) / len(p)
    changes = []
    for (method, parent), c in zip(parents.items(), judged(alpha), strict=True):
        (verdict,), (own, its) = c.verdicts, c.arms
        said = {method: "better", parent: "worse"}.get(verdict.better, verdict.better)
        changes.append(Change(
            method, parent, (len(own.runs), len(its.runs)), c.cost, (own.mean, its.mean),
            tuple(c.answer(q, method, parent) for q in QUESTIONS), said, verdict.by, c.missing,
        ))
    return ChangeSet(unit, margin, rate, len(p), called, alpha, tuple(changes))
