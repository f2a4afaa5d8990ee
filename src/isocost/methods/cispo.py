"""CISPO: cap the importance weight of a token instead of clipping, so that every token keeps its gradient.

    L = −mean_groups (1/Σ|y_i|) Σ_i Σ_t sg(min(ρ, ε)) A log π,   A of GRPO, ε = 5
    MiniMax 2025, arXiv:2506.13585; cap 5 and average per prompt as in ScaleRL, arXiv:2510.13786
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch, Forward
from isocost.methods import Card, grpo
from isocost.ops import lengths, spread
from isocost.parts.loss import Out, reweighed
from isocost.parts.weight import count
from isocost.seams import Recipe
from isocost.traits import bounds, exported, gives

CARD = Card("CISPO", "2506.13585", 2025, "grpo", "Rare but pivotal tokens keep their gradient.")


@exported(average="prompt")
def weight(batch: Batch) -> Tensor:
    """Every group has equal weight, shared by all tokens of its rollouts: 1 / (groups · tokens of the group). -> (N, T)
    """
    tokens = torch.zeros_like(batch.reward).index_add(0, batch.group, lengths(batch))
    return spread(1 / tokens.clamp(min=1)[batch.group], batch) / count(tokens)


@exported("high", surrogate="truncated")
@gives("importance ratios")
@bounds(high="(0, inf]")
def loss(out: Forward, batch: Batch, *, high: float = 5.0) -> Out:
    """-sg(min(ρ, high)) A log π: the weight is capped and every token keeps its gradient (CISPO, arXiv:2506.13585)."""
    return reweighed(out, batch, over="token", high=high)


def recipe(**changes: Any) -> Recipe:
    capped = partial(loss, high=5.0)
    return grpo.recipe(name="cispo", loss=capped, weight=weight).but(**changes)
