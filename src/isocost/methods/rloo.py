"""RLOO: the baseline of each rollout is the mean of the others.

    A_i = r_i − mean_{j≠i} r_j = (r_i − mean r) · n / (n − 1)          L = −(1/R) Σ_i A_i Σ_t log π(y_it)
    Ahmadian et al. 2024, arXiv:2402.14740
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from isocost.methods import Card, grpo, reinforce
from isocost.ops import per_group
from isocost.seams import Recipe
from isocost.traits import exported

CARD = Card("RLOO", "2402.14740", 2024, "reinforce", "Leave-one-out is unbiased at any group size and needs no critic.")

needs = grpo.needs   # siblings that differ


@exported(advantage="others")
@per_group
def advantage(r: Tensor) -> Tensor:  # (G,) -> (G,)
    return (r - r.mean()) * len(r) / (len(r) - 1)


def recipe(**changes: Any) -> Recipe:
    return reinforce.recipe(name="rloo", advantage=advantage).but(**changes)
