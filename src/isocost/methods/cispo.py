"""CISPO: cap the weight of a token, not its update, so that no token loses its gradient.

    L = −mean_groups (1/Σ|y_i|) Σ_i Σ_t sg(min(ρ, ε)) A log π,   A of GRPO, ε = 5
    MiniMax 2025, arXiv:2506.13585; cap 5 and average per prompt as in ScaleRL, arXiv:2510.13786
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import loss, weight
from isocost.seams import Recipe

CARD = Card("CISPO", "2506.13585", 2025, "grpo", "Rare but pivotal tokens keep their gradient.")


def recipe(**changes: Any) -> Recipe:
    capped = partial(loss.truncated, high=5.0)
    return grpo.recipe(name="cispo", loss=capped, weight=weight.prompt_mean).but(**changes)
