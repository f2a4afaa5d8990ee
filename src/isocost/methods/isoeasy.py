"""IsoCompute's recipe for easy problems: the group mean, a corrected sampler, a KL penalty, an entropy bonus.

    A_i = r_i − mean r          L = min(π_old/μ, 2) · max(−A ρ, −A clip(ρ, 1 ± 0.2)) + β KL(π ‖ π_0) − γ H(π)
    arXiv:2603.12151 (β, γ and the estimate of KL are not stated there; those here are common defaults)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost import ops
from isocost.batch import Batch, Forward
from isocost.errors import UserError
from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, grpo
from isocost.ops import EPS, per_group
from isocost.parts import enrich, pace
from isocost.parts.loss import Out, clipped, corrected
from isocost.seams import Loss, Recipe
from isocost.traits import asks, bounds, exported, trait

CARD = Card("IsoCompute, easy", "2603.12151", 2026, "grpo", "The best n grows with the budget, then saturates.")

ESTIMATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"k1": ops.k1, "k2": ops.k2, "k3": ops.k3}


@exported(advantage="mean")
@exported(advantage="spread", when={"std": True})
@trait("by_group_spread", std=True)
@bounds(eps="[0, inf)")
@per_group
def advantage(r: Tensor, *, std: bool = False, eps: float = EPS) -> Tensor:  # (G,) -> (G,)
    # Off: the spread weights problems by 1/√(p(1−p)), more so as n grows, and a sweep of n would change the objective.
    return (r - r.mean()) / (r.std() + eps if std else 1.0)


@exported("low", "high", "cap", "kl", "entropy", "estimate", surrogate="clipped")
@asks("entropy")
@enrich.reads_reference
@bounds(low="[0, 1]", high="[0, inf]", cap="(0, inf]", kl="[0, inf)", entropy="[0, inf)")
def loss(
    out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, cap: float = 2.0,
    kl: float = 1e-3, entropy: float = 1e-3, estimate: str = "k2",
) -> Out:
    surrogate = partial(corrected, inner=partial(clipped, low=low, high=high), cap=cap)
    leash = partial(to_reference, scale=kl, estimate=estimate)
    return plus(out, batch, terms=(surrogate, leash, partial(entropy_bonus, scale=entropy)))


@exported("estimate", of={"kl": "scale"})
@enrich.reads_reference
@bounds(scale="[0, inf)")
def to_reference(out: Forward, batch: Batch, *, scale: float = 1e-3, estimate: str = "k2") -> Out:
    """scale · KL(π ‖ reference), estimated per token; needs `enrich.reference`.

    On samples of π the gradient of k2 is that of KL(π ‖ reference); k3's is that of KL(reference ‖ π), and k1's has
    zero mean.
    """
    if estimate not in ESTIMATES:
        raise UserError(f"loss.estimate is {estimate!r}; expected one of {', '.join(ESTIMATES)}")
    reference = batch.extra["reference"]
    return scale * ESTIMATES[estimate](out.logp, reference), {"kl": ops.k3(out.logp.detach(), reference)}


@exported()
def plus(out: Forward, batch: Batch, *, terms: Sequence[Loss]) -> Out:
    """The sum of several losses. If two report a metric of the same name, the last one is kept."""
    total = torch.zeros_like(out.logp)
    seen: dict[str, Tensor] = {}
    for term in terms:
        loss, more = term(out, batch)
        total, seen = total + loss, {**seen, **more}
    return total, seen


@exported(of={"entropy": "scale"})
@asks("entropy")
@bounds(scale="[0, inf)")
def entropy_bonus(out: Forward, batch: Batch, *, scale: float = 1e-3) -> Out:
    """-scale · H(π): keeps the entropy up. Use it together with a KL penalty on hard problems."""
    return -scale * out.entropy, {}


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """An easy set: few problems that the policy never solves."""
    if profile.get("regime") is None:
        return UNMEASURED, "no regime: `isocost profile` measures it"
    return HOLDS if profile["regime"] == "easy" else FAILS, f"the problems are {profile['regime']}"


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(
        name="isoeasy", advantage=advantage, loss=loss, enrich=(enrich.reference,), groups=32,
        # lr is 1e-6 · √(nB / 1024).
        pace=partial(pace.warmed, lr=5e-7, warmup=10, max_tokens=8192, temperature=0.6),
    ).but(**changes)
