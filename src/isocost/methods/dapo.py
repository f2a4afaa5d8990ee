"""DAPO: clip higher, average over tokens, refill what settled groups leave, charge for running out of room.

    L = (1/Σ|y_i|) Σ_i Σ_t max(−A ρ, −A clip(ρ, 1 − 0.2, 1 + 0.28)),   groups with 0 < #right < n only
    r_i ← r_i − ½ · clip((|y_i| − (L_max − L_cache)) / L_cache, 0, 1)          Yu et al. 2025, arXiv:2503.14476
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, grpo
from isocost.parts import loss, reward, select, weight
from isocost.seams import Recipe

CARD = Card("DAPO", "2503.14476", 2025, "grpo", "Four small changes keep entropy up and gradients alive.")

SIZE = 16              # n of the paper's runs
MOST_DROPPED = 0.9     # share of groups that may be settled: above it a step needs more than ten waves


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """A filter that leaves something: not nearly every group settled at the paper's n."""
    state, why = grpo.needs(profile)
    if state != HOLDS:
        return state, why
    share = next((row["share"] for row in profile.get("dead") or [] if row["n"] == SIZE), None)
    if share is None:
        return UNMEASURED, f"no share of settled groups at n={SIZE}: `isocost profile` measures it"
    waves = f"{1 / (1 - share):.1f} waves" if share < 1 else "no number of waves"
    state = FAILS if share > MOST_DROPPED else HOLDS
    return state, f"{share:.0%} of groups of {SIZE} are settled and would be dropped: {waves} to fill a step"


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(
        name="dapo",
        loss=partial(loss.clipped, low=0.2, high=0.28),
        weight=weight.token_mean,
        select=partial(select.mixed, part="right"),   # by correctness, not by the shaped reward
        # The paper's penalty is 1 where right is ±1.
        reward=partial(reward.verified_unless_cut, penalty=0.5, limit=20480, cache=4096),
        refill=True,
    ).but(**changes)
