"""What is subtracted from a reward, when it is not the mean of the group alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def remembered(problem: Problem, ledger: Ledger, own: Sequence[float] = (), *, last: int = 4) -> float | None:
    """Mean reward of the problem's latest groups; of one that is new, of all problems; None when nothing is known.

    `own` are the rewards of the group that asks, where the ledger has counted it already: they are left out, for a
    baseline that knows the reward it is subtracted from is biased. `last` groups, at most 15: the policy moves.
    """
    known = list(ledger.of(problem.id, problem.variant).recent)
    if len(own) and known:
        known.remove(min(known, key=lambda mean: abs(mean - np.mean(own))))
    if known:
        return float(np.mean(known[-last:]))
    tries = sum(t.tries for t in ledger.tallies.values()) - len(own)
    total = sum(t.total for t in ledger.tallies.values()) - sum(own)
    return float(total / tries) if tries > 0 else None


def fused(mean: float, prior: float, k: int) -> float:
    """Between the mean of k rewards of −1 and 1 and the prior: the prior where chance explains the gap (V_0.5).

    b = ŵ mean + (1 − ŵ) prior, ŵ = Δ̂² / (Δ̂² + 1/k); 1/k bounds the mean's variance (arXiv:2603.10848).
    """
    gap = _gap(mean, prior, k)
    trust = gap / (gap + 1 / k)
    return trust * mean + (1 - trust) * prior


def gain(mean: float, prior: float, k: int) -> float:
    """What one more reward takes off the squared error of `fused`, MSE(k) = Δ̂² / (k Δ̂² + 1); Δ̂² is held."""
    gap = _gap(mean, prior, k)
    return gap / (k * gap + 1) - gap / ((k + 1) * gap + 1)


def _gap(mean: float, prior: float, k: int) -> float:
    """Δ̂²: the prior's squared bias, less what k draws bring about by chance."""
    return max(0.0, (mean - prior) ** 2 - 1 / k)
