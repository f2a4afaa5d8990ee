"""Kimi k1.5: REINFORCE with a squared log-ratio that keeps each answer near the policy that sampled it.

    L = (1/R) Σ_i [ −A_i log π(y_i) + (τ/2) (log π(y_i) / π_i(y_i))² ],   A_i = r_i − mean r
    = E (r − r̄ − τ log π/π_i)² / 2τ up to a constant;   π_i the policy that sampled, the optimiser new with each batch
    Kimi Team 2025, arXiv:2501.12599
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from isocost import ops
from isocost.batch import Batch, Forward
from isocost.methods import Card, drgrpo, grpo, reinforce
from isocost.parts.improve import policy
from isocost.parts.loss import Out, credit
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Kimi k1.5", "2501.12599", 2025, "reinforce", "A squared log-ratio keeps many updates near the sampler.")

needs = grpo.needs   # the group must have different rewards


@bounds(tau="[0, inf)")
def loss(out: Forward, batch: Batch, *, tau: float = 0.1) -> Out:
    """-A log π + (τ/2) (log ρ)², with the ratio of the whole row: a squared loss on answers (arXiv:2501.12599).

    Its gradient is that of Σ (A - τ log ρ)² / 2τ: it pulls the row's log-ratio to A / τ and no further. The square is
    shared by the tokens, so their weights within a row must be equal.
    """
    log_ratio = ops.log_ratio(out, batch) * batch.mask
    whole = log_ratio.sum(-1, keepdim=True)
    return -credit(batch) * out.logp + tau / 2 * whole * log_ratio, {"log_ratio": whole.expand_as(log_ratio)}


@asks("forget")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, inner: Improve = policy
) -> dict[str, float]:
    """`inner`, with the optimiser's state reset before each batch (Kimi k1.5, arXiv:2501.12599)."""
    world.learner.forget()
    return inner(batch, recipe, world, ledger)


def recipe(**changes: Any) -> Recipe:
    # τ is not published: 0.1 lets an answer that is 1 above its siblings' mean become at most e^10 times as likely.
    # Four updates per batch, because with one the square has no gradient.
    learn = partial(improve, inner=partial(policy, minibatches=4))
    square = partial(loss, tau=0.1)
    return reinforce.recipe(name="kimi", advantage=drgrpo.advantage, loss=square, improve=learn).but(**changes)
