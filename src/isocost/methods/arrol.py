"""ARRoL: tell early which attempts will be right, and let only so many of each kind go on.

    P(keep i) = κ (p̂_i ρ / p̄ + (1 − p̂_i)(1 − ρ) / (1 − p̄)), in [0, 1], after L tokens;   p̄ the group's mean of p̂
    mean P = κ, and of those kept a share ρ is right if p̂ is; p̂ is a share right among earlier attempts alike
    Xu et al. 2026, arXiv:2603.24840
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import schedule
from isocost.seams import Recipe

CARD = Card("ARRoL", "2603.24840", 2026, "grpo", "Half the tokens, fewer groups that are all right or all wrong.")


def recipe(**changes: Any) -> Recipe:
    # L, κ, ρ and the cold start are the paper's. Its head reads hidden states, which no seam shows: here the mean
    # log-prob of the L tokens is binned as the paper bins its head's output. n counts what is begun, so twice GRPO's.
    early = partial(schedule.pruned, at=512, keep=0.5, aim=0.5, cold=20, outlook=schedule.confidence)
    return grpo.recipe(name="arrol", schedule=early, rollouts=16).but(**changes)
