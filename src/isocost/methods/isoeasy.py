"""IsoCompute's recipe for easy problems: GRPO's group mean, a corrected sampler, a leash and an entropy bonus.

    A_i = r_i − mean r          L = min(π_old/μ, 2) · max(−A ρ, −A clip(ρ, 1 ± 0.2)) + β KL(π ‖ π_0) − γ H(π)
    arXiv:2603.12151 (β, γ and the estimate of KL are not stated there; those here are common defaults)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, grpo
from isocost.ops import EPS, per_group
from isocost.parts import enrich, pace
from isocost.parts import loss as losses
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Batch, Forward

CARD = Card("IsoCompute, easy", "2603.12151", 2026, "grpo", "The best n grows with the budget, then saturates.")


@trait("by_group_spread", std=True)
@bounds(eps="[0, inf)")
@per_group
def advantage(r: Tensor, *, std: bool = False, eps: float = EPS) -> Tensor:  # (G,) -> (G,)
    # Off: the spread weighs problems by 1/√(p(1−p)), more so as n grows, and a sweep of n would change the objective.
    return (r - r.mean()) / (r.std() + eps if std else 1.0)


@enrich.reads_reference
@bounds(low="[0, 1]", high="[0, inf]", cap="(0, inf]", kl="[0, inf)", entropy="[0, inf)")
def loss(
    out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, cap: float = 2.0,
    kl: float = 1e-3, entropy: float = 1e-3, estimate: str = "k2",
) -> losses.Out:
    surrogate = partial(losses.corrected, inner=partial(losses.clipped, low=low, high=high), cap=cap)
    leash = partial(losses.to_reference, scale=kl, estimate=estimate)
    return losses.plus(out, batch, terms=(surrogate, leash, partial(losses.entropy_bonus, scale=entropy)))


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """An easy set: few problems the policy never solves."""
    if profile.get("regime") is None:
        return UNMEASURED, "no regime: `isocost profile` measures it"
    return HOLDS if profile["regime"] == "easy" else FAILS, f"the problems are {profile['regime']}"


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(
        name="isoeasy", advantage=advantage, loss=loss, enrich=(enrich.reference,), groups=32,
        # lr is 1e-6 · √(nB / 1024).
        pace=partial(pace.warmed, lr=5e-7, warmup=10, max_tokens=8192, temperature=0.6),
    ).but(**changes)
