"""Rounded weights (Jet-RL): sample and learn with the same rounded weights, and keep exact ones for the update alone.

    Q(W) = each row as whole numbers of b bits times max|row| / (2^(b−1) − 1)
    sampler Q(W);   learner: gradient at Q(W), or at W with both=False;   W ← W + update
    2026, "Jet-RL", arXiv:2601.14243
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.methods import Card, grpo
from isocost.ops import rounded
from isocost.parts import enrich
from isocost.parts.improve import policy
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Rounded weights (Jet-RL)", "2601.14243", 2026, "grpo", "One rounded flow has no mismatch, at any length.")


@asks("weights")
@bounds(bits="[2, 16]")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, bits: int = 4, both: bool = True,
    inner: Improve = policy,
) -> dict[str, float]:
    """Any improvement, at the rounded weights if `both`, else at the exact ones; what samples next is rounded.

    The world's reference keeps the exact weights, so no loss can compare with the policy before training. Raises
    UserError without a reference.
    """
    if world.reference is None:
        raise UserError("rounding needs a place for the exact weights: open the world with reference=True")
    exact, flow = world.reference.weights(), world.learner.weights()
    for name, own in flow.items():
        own.copy_(rounded(exact[name], bits) if both else exact[name])
    seen = inner(batch, recipe, world, ledger)
    for name, own in flow.items() if both else ():
        own.add_(exact[name].to(own) - rounded(exact[name], bits).to(own))
    world.follow(0.0)
    for name, own in flow.items():
        own.copy_(rounded(exact[name], bits))
    return seen


def recipe(**changes: Any) -> Recipe:
    # The paper's flow is in FP8, with blocks of 128 by 128 weights, rounded activations and gradients; here rows of
    # weights alone are rounded, to whole numbers of 4 bits, in full-precision arithmetic, so nothing is faster.
    # Evaluations, and the model that a run saves, are of the rounded weights. The first step samples exact ones.
    learn = partial(improve, bits=4, both=True, inner=policy)
    return grpo.recipe(name="jetrl", enrich=(enrich.reference,), improve=learn).but(**changes)
