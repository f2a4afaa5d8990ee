"""OTR: imitate by trying: write one token where the reference has one, and be rewarded if it is the reference's.

    L = −(1/K) Σ_k R_k log π(a_k | x, z_<t),   a_1 .. a_K ~ π(· | x, z_<t),   R = 1 if a = z_t, else β
    in expectation (1 − β) π(z_t) times the gradient of −log π(z_t)          Ming et al. 2025, arXiv:2509.26313
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, reinforce
from isocost.ops import spread
from isocost.parts import guide, taught
from isocost.parts.taught import demonstration
from isocost.seams import Recipe
from isocost.types import Batch, Group, Role, Score
from isocost.world import World

CARD = Card("One-token rollout", "2509.26313", 2025, "reinforce", "It learns demonstrations and forgets less than SFT.")


async def reward(group: Group, world: World, *, wrong: float = -0.1) -> Group:
    """1 for the token that the reference has there, any end for its end; else `wrong`, which is β. No verifier."""
    target, ends = demonstration(group.problem, world), world.text.ends
    scored = []
    for r in group.rollouts:
        text = r.segments[-1]
        said, asked = int(text.tokens[text.own][0]), target[int((text.role == int(Role.TEACHER)).sum())]
        same = said == asked or (said in ends and asked in ends)
        scored.append(r.scored(Score(1.0 if same else wrong)))
    return group.of(scored)


def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    return spread(batch.reward, batch)   # no baseline: β stands for it


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Reference solutions of all problems."""
    share = profile.get("solutions")
    if share is None:
        return UNMEASURED, "no share of problems with solutions: `isocost profile` measures it"
    return HOLDS if share == 1 else FAILS, f"{share:.0%} of problems have a reference solution"


def recipe(**changes: Any) -> Recipe:
    # β, K and κ are not public. β weighs in the noise alone, for the gradient's mean only scales with 1 − β; κ is
    # pace.temperature, 1. A step has all places of a solution in the paper; here n / K of them, drawn for each group.
    return reinforce.recipe(
        name="otr",
        guide=partial(guide.as_variant, name=taught.ONE_TOKEN),
        play=partial(taught.one_token, samples=4),
        reward=partial(reward, wrong=-0.1),
        advantage=advantage,
    ).but(**changes)
