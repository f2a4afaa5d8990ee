"""GRPO: the advantage of a rollout is its distance from its siblings' mean, in units of their spread.

    A_i = (r_i − mean r) / (std r + ε)          L = (1/R) Σ_i (1/|y_i|) Σ_t max(−A ρ, −A clip(ρ, 1 ± 0.2))
    Shao et al. 2024, arXiv:2402.03300 (without its KL term, as is usual since; `isoeasy` has one)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, reinforce
from isocost.ops import EPS, per_group
from isocost.parts import loss, weight
from isocost.seams import Recipe
from isocost.traits import bounds, exported, trait

CARD = Card("GRPO", "2402.03300", 2024, "reinforce", "A group of siblings replaces the critic.")

MOST_UNSOLVED = 0.9   # largest share of problems with no right sample: above it groups have nothing to compare


@exported(advantage="spread")
@trait("by_group_spread")
@bounds(eps="[0, inf)")
@per_group
def advantage(r: Tensor, *, eps: float = EPS) -> Tensor:  # (G,) -> (G,)
    return (r - r.mean()) / (r.std() + eps)


def unsolved(profile: Mapping[str, Any]) -> tuple[float, str]:
    """(share of problems that no sample solved, the same in words); of graded rewards, those with equal low rewards.

    Equal rewards of at least 1/2 count as solved.
    """
    if profile.get("graded"):
        share = float(profile["unsolved"])
        return share, f"on {share:.0%} of problems all samples earned the same, less than 1/2"
    share = profile["histogram"][0] / sum(profile["histogram"])
    return share, f"{share:.0%} of problems were never right"


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Siblings that differ: most problems have at least one right sample."""
    state, why = reinforce.needs(profile)
    if state != HOLDS:
        return state, why
    if not profile.get("histogram"):
        return UNMEASURED, "no histogram of right samples per problem: `isocost profile` measures it"
    share, said = unsolved(profile)
    state = FAILS if share > MOST_UNSOLVED else HOLDS
    return state, f"{said} (at most {MOST_UNSOLVED:.0%} leaves groups to compare)"


def recipe(**changes: Any) -> Recipe:
    clip = partial(loss.clipped, low=0.2, high=0.2)
    return reinforce.recipe(name="grpo", advantage=advantage, weight=weight.rollout_mean, loss=clip).but(**changes)
