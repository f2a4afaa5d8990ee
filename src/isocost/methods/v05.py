"""V_0.5: a baseline between the group's mean and its expected reward, weighted by how far the two disagree.

    A_i = (r_i − b) / the batch's spread (by default: `whiten`),   r in {−1, 1}
    b = ŵ v̄ + (1 − ŵ) V,   ŵ = Δ̂² / (Δ̂² + 1/k),   Δ̂² = max(0, (v̄ − V)² − 1/k)
    attempts from 4 to 16 while MSE(k) − MSE(k + 1) ≥ c = 1/16²,   MSE(k) = Δ̂² / (k Δ̂² + 1)
    Zhang et al. 2026, arXiv:2603.10848 (there V is a value model's; here it is the ledger's)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, grpo
from isocost.ops import EPS, spread
from isocost.parts.allocate import equal
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("V_0.5", "2603.10848", 2026, "grpo", "With a prior, a group of four has the baseline of a larger one.")


@trait("phased")
@bounds(start="[1, inf)", most="[1, inf)", least="[0, inf)")
def allocate(
    problems: Sequence[Problem], ledger: Ledger, total: int, *, gain: Callable[[Group, Ledger], float],
    start: int = 4, most: int = 16, least: float = 0.0039,
) -> Generator[list[int], list[Group], None]:
    """`start` attempts each, then one at a time while `gain` from one more is at least `least`, up to `most`.

    A wave spends its total, so that methods are compared at equal cost: the largest gains come first when it runs out,
    and attempts that no group needs are distributed equally.
    """
    counts = equal(problems, ledger, min(total, start * len(problems)))
    while total:
        groups = yield counts
        total -= sum(counts)
        gains = [gain(g, ledger) if len(g.rollouts) < most else -1.0 for g in groups]
        best = sorted((i for i, x in enumerate(gains) if x >= least), key=lambda i: -gains[i])[:total]
        counts = [int(i in best) for i in range(len(groups))] if best else equal(problems, ledger, total)


def gain(group: Group, ledger: Ledger) -> float:
    """The reduction of the baseline's error from one more attempt; the ledger has not counted the group yet."""
    mean, prior, k = _evidence(group, ledger, [])
    return error_drop(mean, prior, k) if k else 0.0


def _evidence(group: Group, ledger: Ledger, own: list[float]) -> tuple[float, float, int]:
    """v̄, V and k. Rewards of 0 and 1 become −1 and 1, where the mean of k has variance 1/k at most."""
    known = remembered(group.problem, ledger, own)
    prior = 0.0 if known is None else 2 * known - 1
    return (2 * float(group.rewards.mean()) - 1 if len(group.rewards) else 0.0), prior, len(group.rewards)


def remembered(problem: Problem, ledger: Ledger, own: Sequence[float] = (), *, last: int = 4) -> float | None:
    """Mean reward of the problem's latest groups; of a new problem, of all problems; None if nothing is known.

    `own` are the rewards of the current group, if the ledger has counted it already: they are left out, because a
    baseline that includes the reward it is subtracted from is biased. `last` groups, at most 15, because the policy
    changes.
    """
    known = list(ledger.of(problem.id, problem.variant).recent)
    if len(own) and known:
        known.remove(min(known, key=lambda mean: abs(mean - np.mean(own))))
    if known:
        return float(np.mean(known[-last:]))
    tries = sum(t.tries for t in ledger.tallies.values()) - len(own)
    total = sum(t.total for t in ledger.tallies.values()) - sum(own)
    return float(total / tries) if tries > 0 else None


def error_drop(mean: float, prior: float, k: int) -> float:
    """Reduction of the squared error of `fused` from one more reward, MSE(k) = Δ̂² / (k Δ̂² + 1), with Δ̂² fixed."""
    gap = _gap(mean, prior, k)
    return gap / (k * gap + 1) - gap / ((k + 1) * gap + 1)


def _gap(mean: float, prior: float, k: int) -> float:
    """Δ̂²: the squared bias of the prior, minus the variance of k draws."""
    return max(0.0, (mean - prior) ** 2 - 1 / k)


@trait("tracks_pass_rate")
@trait("by_batch_spread", whiten=True)
@bounds(eps="[0, inf)")
def advantage(batch: Batch, ledger: Ledger, *, whiten: bool = True, eps: float = EPS) -> Tensor:  # -> (N, T)
    bases = [fused(*_evidence(g, ledger, g.rewards.tolist())) for g in batch.groups]
    sizes = torch.tensor([len(g.rollouts) for g in batch.groups], device=batch.reward.device)
    credit = 2 * batch.reward - 1 - batch.reward.new_tensor(bases).repeat_interleave(sizes)
    # The paper whitens as its base algorithm does. The mean stays in: subtracting it would undo half of b. If the whole
    # batch has one advantage, for example before anything was right, there is no spread to divide by.
    scale = credit.std(correction=0)
    return spread(credit / (scale + eps) if whiten and scale > eps else credit, batch)


def fused(mean: float, prior: float, k: int) -> float:
    """Between the mean of k rewards of −1 and 1 and the prior: the prior where chance explains the gap (V_0.5).

    b = ŵ mean + (1 − ŵ) prior, ŵ = Δ̂² / (Δ̂² + 1/k); 1/k bounds the mean's variance (arXiv:2603.10848).
    """
    gap = _gap(mean, prior, k)
    trust = gap / (gap + 1 / k)
    return trust * mean + (1 - trust) * prior


def recipe(**changes: Any) -> Recipe:
    need = partial(allocate, gain=gain, start=4, most=16, least=0.0039)
    return grpo.recipe(name="v05", advantage=advantage, allocate=need).but(**changes)
