"""Lite PPO: the mean of the group, the spread of the batch, and equal weight for every token.

    A_i = (r_i − mean r) / std_batch(r)          L = (1/Σ|y_i|) Σ_i Σ_t max(−A ρ, −A clip(ρ, 1 ± 0.2))
    Liu et al. 2025, "Tricks or traps?", arXiv:2508.08221
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, grpo
from isocost.ops import EPS, in_groups, spread
from isocost.parts import weight
from isocost.seams import Recipe
from isocost.traits import bounds, trait

CARD = Card("Lite PPO", "2508.08221", 2025, "grpo", "The spread of the batch does not inflate nearly uniform groups.")


@trait("compares_siblings", "by_batch_spread")
@bounds(eps="[0, inf)")
def advantage(batch: Batch, ledger: object, *, eps: float = EPS) -> Tensor:  # -> (N, T)
    # The spread is that of the rewards themselves, so the distance between problems counts; ScaleRL takes that of the
    # centred rewards.
    lead = in_groups(lambda r: r - r.mean(), batch.reward, batch)
    return spread(lead / (batch.reward.std(correction=0) + eps), batch)


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(name="liteppo", advantage=advantage, weight=weight.token_mean).but(**changes)
