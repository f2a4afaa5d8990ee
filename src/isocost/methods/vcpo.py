"""VCPO: a minimum-variance baseline for stale rollouts, and a step scaled by the effective sample size.

    L = −(1/R) Σ_i (1/|y_i|) Σ_t sg(min(w_i, 8)) (r_i − b) / std r · log π,   w_i = Π_t π_θ / π_sampler
    b = Σ_i w_i² ‖∇ log π(y_i)‖² r_i / Σ_i w_i² ‖∇ log π(y_i)‖²  in each group
    lr ← lr · √min(1, ρ / ρ_full),   ρ = (Σ w)² / (R Σ w²)          Huang et al. 2026, arXiv:2602.17616
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.methods import Card, grpo
from isocost.ops import EPS, of_rollouts, siblings_of, spread
from isocost.parts import loss
from isocost.parts.improve import rows_of, with_old
from isocost.seams import Recipe
from isocost.traits import asks, bounds, requires, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("VCPO", "2602.17616", 2026, "grpo", "Training stays stable on rollouts many steps old.")


@trait("by_rollout")
@asks("gradients")
@requires(
    "importance ratios", at="loss",
    why="its baseline and its step need importance ratios, which this loss does not report; use "
        "loss.reweighed",
)
@bounds(full="(0, inf)", power="[0, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, full: float = 1.0, power: float = 0.5
) -> dict[str, float]:
    """One update with each group's minimum-variance baseline, and a step scaled by the effective sample size.

    A rollout's advantage, one for all its tokens, is reduced by b = Σ W A / Σ W over its group, W = ‖w ∇ log π(y)‖², w
    its importance ratio. The learning rate is multiplied by min(1, ρ / full)^power, where ρ = (Σ w)² / (R Σ w²) of the
    ratios before any cap, the metric `importance_ratio` of the loss (VCPO, arXiv:2602.17616). Both come from one
    backward pass per rollout, which is all that the update needs. Raises UserError for advantages or weights that
    differ between tokens, and for a loss without that metric.
    """
    batch = with_old(batch, world, updates=1)
    assert batch.advantage is not None and batch.weight is not None
    credit, share = (of_rollouts(x, batch) for x in (batch.advantage, batch.weight))
    if not torch.equal(spread(credit, batch), batch.advantage) or not torch.equal(spread(share, batch), batch.weight):
        raise UserError("a baseline for whole rollouts needs one advantage and one weight for all tokens of a rollout")
    total = batch.reward.new_zeros(())
    seen: list[dict[str, float]] = []
    for siblings in siblings_of(batch):
        gradient, metrics = _centred(siblings, credit, share, batch, recipe, world)
        total, seen = total + gradient, seen + metrics
    ratios = [s["importance_ratio"] for s in seen]
    counting = sum(ratios) ** 2 / (len(ratios) * sum(r * r for r in ratios))
    lr = recipe.pace(ledger).lr * min(1.0, counting / full) ** power
    norm = world.learner.step(total, lr=lr)
    means = {k: sum(s[k] for s in seen) / len(seen) for k in seen[0]}
    return {**means, "loss": means["loss"] * len(seen), "counting": counting, "grad_norm": norm, "learning_rate": lr}


def _centred(
    siblings: Tensor, credit: Tensor, share: Tensor, batch: Batch, recipe: Recipe, world: World
) -> tuple[Tensor, list[dict[str, float]]]:
    """The gradient of a group with its baseline subtracted, and the metrics of each rollout."""
    ones = batch.mask.to(credit.dtype)
    rows = batch.but(advantage=ones, weight=ones).rows(rows_of(siblings, batch))
    rewarded, scores, square_norms, seen = credit.new_zeros(()), credit.new_zeros(()), [], []
    for i, (gradient, measured) in zip(siblings, world.learner.gradients(rows, recipe.loss), strict=True):
        if "importance_ratio" not in measured:
            raise UserError("the loss reports no importance_ratio, which the step needs: use loss.reweighed")
        scores, rewarded = scores + share[i] * gradient, rewarded + share[i] * credit[i] * gradient
        square_norms.append(float(gradient.square().sum()))
        seen.append(measured)
    weights = credit.new_tensor(square_norms)
    base = (weights * credit[siblings]).sum() / weights.sum().clamp(min=EPS**2)
    for measured, here in zip(seen, share[siblings] * (credit[siblings] - base), strict=True):
        measured["loss"] *= float(here)
    return rewarded - base * scores, seen


def recipe(**changes: Any) -> Recipe:
    # The advantage is the parent's: b moves with it, so (r − b) / std r is what remains of (r − mean r) / std r. ρ uses
    # the ratios before the cap; b uses those of the gradient, which are capped (in the released code b's are not).
    return grpo.recipe(
        name="vcpo",
        loss=partial(loss.reweighed, over="sequence", high=8.0),
        improve=partial(improve, full=1.0, power=0.5),
    ).but(**changes)
