"""How many attempts each slot of a wave gets, and problems in bins by pass rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from math import comb, floor
from typing import TYPE_CHECKING

from isocost.traits import exported
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen


@exported()
def equal(problems: Sequence[Problem], ledger: Ledger, total: int) -> list[int]:
    """The same count for every slot; a remainder goes to the first slots, one each. The sum is exactly `total`."""
    each, over = divmod(total, len(problems))
    return [each + (slot < over) for slot in range(len(problems))]


UNSEEN = -1   # the bin of a problem that was not sampled yet


@dataclass
class Bins:
    """Problems by their windowed pass@k, and the distance from solved of the problems of each bin."""

    window: dict[str, list[tuple[float, float, int]]] = field(default_factory=dict)   # pass@k, right, attempts
    of: dict[str, int] = field(default_factory=dict)             # problem -> bin
    score: dict[int, float] = field(default_factory=dict)        # bin -> running mean of its loss

    def rate(self, name: str) -> float:
        """Share right in the window, from a flat prior, so never exactly 0 or 1. 0.5 for a new problem."""
        window = self.window.get(name, [])
        return (1 + sum(r for _, r, _ in window)) / (2 + sum(n for _, _, n in window))


def bins(ledger: Ledger, *, count: int, k: int, window: int, margin: float, beta: float = 0.1) -> Bins:
    """Problems in `count` bins of equal width by mean pass@k over the latest `window` groups (arXiv:2601.19280).

    A problem leaves its bin only when it is past the edge by `margin`. A bin's score is the running mean, at rate
    `beta`, of 1 − mean reward of the problems that were in it when a step started. The mean is over problems, so a
    common bin counts no more than a rare one.
    """
    return ledger.fold(partial(_sort, count=count, k=k, window=window, margin=margin, beta=beta), Bins())


def _sort(
    known: Bins, seen: Sequence[Seen], *, count: int, k: int, window: int, margin: float, beta: float
) -> Bins:
    seen = [s for s in seen if not s.variant]
    losses: dict[int, list[float]] = {}
    for s in seen:
        losses.setdefault(known.of.get(s.id, UNSEEN), []).append(1 - s.right / len(s.rewards))
    for b, each in losses.items():
        mean = sum(each) / len(each)
        known.score[b] = (1 - beta) * known.score.get(b, mean) + beta * mean
    for s in seen:
        mine = (pass_at(s.right, len(s.rewards), k), s.right, len(s.rewards))
        known.window[s.id] = [*known.window.get(s.id, []), mine][-window:]
        solved = sum(p for p, _, _ in known.window[s.id]) / len(known.window[s.id])
        known.of[s.id] = rebin(solved, known.of.get(s.id, UNSEEN), count, margin)
    return known


def pass_at(right: float, attempts: int, k: int) -> float:
    """Probability that one of k attempts, drawn from these without replacement, is right; of all if there are fewer."""
    k, wrong = min(k, attempts), attempts - round(right)
    return 1 - comb(wrong, k) / comb(attempts, k)


def rebin(rate: float, old: int, count: int, margin: float) -> int:
    """The bin of a rate among `count` on [0, 1], or the old bin while its edge is not crossed by `margin`."""
    new = min(floor(rate * count + 1e-9), count - 1)
    if old == UNSEEN or new == old:
        return new
    crossed = rate - (old + 1) / count if new > old else old / count - rate
    return new if crossed >= margin - 1e-9 else old
