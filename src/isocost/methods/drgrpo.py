"""Dr. GRPO: remove two biases, the spread in the advantage and the length in the average.

    A_i = r_i − mean r          L = (1/R) Σ_i (1/L_max) Σ_t max(−A ρ, −A clip(ρ, 1 ± 0.2))
    Liu et al. 2025, arXiv:2503.20783
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, grpo
from isocost.ops import lengths, per_group
from isocost.parts.weight import count
from isocost.seams import Recipe
from isocost.traits import bounds, exported

CARD = Card("Dr. GRPO", "2503.20783", 2025, "grpo", "Wrong answers stop growing longer.")


@exported(advantage="mean")
@per_group
def advantage(r: Tensor) -> Tensor:  # (G,) -> (G,)
    return r - r.mean()


@exported("tokens", average="length")
@bounds(tokens="[1, inf)")
def weight(batch: Batch, *, tokens: int = 1024) -> Tensor:
    """Tokens averaged over a length that is the same for all rollouts: 1 / (R · tokens). -> (N, T)"""
    return batch.mask / (count(lengths(batch)) * tokens)


def recipe(**changes: Any) -> Recipe:
    average = partial(weight, tokens=1024)   # L_max, a constant: pace.max_tokens as a rule
    return grpo.recipe(name="drgrpo", advantage=advantage, weight=average).but(**changes)
