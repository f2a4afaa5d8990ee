"""V_0.5: a baseline between what the group earned and what was expected of it, by how far the two disagree.

    A_i = (r_i − b) / the batch's spread (by default: `whiten`),   r in {−1, 1}
    b = ŵ v̄ + (1 − ŵ) V,   ŵ = Δ̂² / (Δ̂² + 1/k),   Δ̂² = max(0, (v̄ − V)² − 1/k)
    attempts from 4 to 16 while MSE(k) − MSE(k + 1) ≥ c = 1/16²,   MSE(k) = Δ̂² / (k Δ̂² + 1)
    Zhang et al. 2026, arXiv:2603.10848 (there V is a value model's; here it is the ledger's)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.methods import Card, grpo
from isocost.ops import EPS, spread
from isocost.parts import allocate, baseline
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Batch, Group

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("V_0.5", "2603.10848", 2026, "grpo", "Given a prior, a group of four has the baseline of a larger one.")


def gain(group: Group, ledger: Ledger) -> float:
    """What one more attempt takes off the baseline's error; the ledger has not counted the group yet."""
    mean, prior, k = _evidence(group, ledger, [])
    return baseline.gain(mean, prior, k) if k else 0.0


@trait("tracks_pass_rate")
@trait("by_batch_spread", whiten=True)
@bounds(eps="[0, inf)")
def advantage(batch: Batch, ledger: Ledger, *, whiten: bool = True, eps: float = EPS) -> Tensor:  # -> (N, T)
    bases = [baseline.fused(*_evidence(g, ledger, g.rewards.tolist())) for g in batch.groups]
    sizes = torch.tensor([len(g.rollouts) for g in batch.groups], device=batch.reward.device)
    credit = 2 * batch.reward - 1 - batch.reward.new_tensor(bases).repeat_interleave(sizes)
    # The paper whitens as its base algorithm does. The mean stays in: to take it out would undo half of b. Where the
    # whole batch has one credit, as when nothing was right yet, there is no spread to divide by.
    scale = credit.std(correction=0)
    return spread(credit / (scale + eps) if whiten and scale > eps else credit, batch)


def _evidence(group: Group, ledger: Ledger, own: list[float]) -> tuple[float, float, int]:
    """v̄, V and k. Rewards of 0 and 1 become −1 and 1, where the mean of k has variance 1/k at most."""
    known = baseline.remembered(group.problem, ledger, own)
    prior = 0.0 if known is None else 2 * known - 1
    return (2 * float(group.rewards.mean()) - 1 if len(group.rewards) else 0.0), prior, len(group.rewards)


def recipe(**changes: Any) -> Recipe:
    need = partial(allocate.while_it_pays, gain=gain, start=4, most=16, least=0.0039)
    return grpo.recipe(name="v05", advantage=advantage, allocate=need).but(**changes)
