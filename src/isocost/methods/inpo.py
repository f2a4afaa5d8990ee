"""INPO: self-play by mirror descent on a preference game, with a squared loss on pairs of answers.

    L = Σ_i<j ( u_i − u_j − (P(i ≻ j) − 1/2) / η )²,   u = log π − (τ/η) log π_ref − (1 − τ/η) log π_t
    its minimum: π_t+1 ∝ exp(P(y ≻ π_t) / η) π_ref^(τ/η) π_t^(1 − τ/η), whose fixed point is the Nash policy of the game
    Zhang et al. 2024, "Iterative Nash Policy Optimization", arXiv:2407.00617
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, grpo, reinforce
from isocost.ops import in_groups, spread
from isocost.parts import enrich, prefer
from isocost.parts.improve import descend, with_old
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("INPO", "2407.00617", 2024, "reinforce", "Where no answer beats all others, its policy is beaten least.")
NOW = "now"     # log-probs of the current policy, which a batch has after its first update

needs = grpo.needs      # the group must have different rewards


@trait("compares_siblings")
@enrich.reads_reference
@bounds(eta="(0, inf)", tau="[0, inf)")
def advantage(batch: Batch, ledger: Ledger, *, eta: float = 0.1, tau: float = 0.01) -> Tensor:  # -> (N, T)
    return missing(batch, batch.reward / eta, tau / eta)


def missing(batch: Batch, target: Tensor, pull: float) -> Tensor:
    """`target` − u of each rollout, less its siblings' mean: −1/2G times the gradient of L in log π. (N, T)

    Over all pairs of a group L is G times the sum of these squares and a constant, so pairs need not be listed.
    `target` is (R,); the reference has the weight `pull` and the policy of the batch 1 − `pull`.
    """
    past = batch.logp if batch.old is None else batch.old
    gap = batch.extra.get(NOW, past) - pull * batch.extra["reference"] - (1 - pull) * past
    u = torch.zeros_like(target).index_add(0, batch.rollout, (gap * batch.mask).sum(-1).to(target))
    return spread(in_groups(_centred, target - u, batch), batch)


def _centred(x: Tensor) -> Tensor:  # (G,) -> (G,)
    return x - x.mean()


@bounds(updates="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, updates: int = 4
) -> dict[str, float]:
    """`updates` updates on the loss of pairs; before each but the first the batch is scored again (`score` tokens)."""
    return fit(with_old(batch, world, updates=updates), recipe, world, ledger, updates)


def fit(batch: Batch, recipe: Recipe, world: World, ledger: Ledger, updates: int) -> dict[str, float]:
    """`improve` from the batch's `old` log-probs, which stay fixed. Metrics are means over the updates."""
    seen = []
    for k in range(updates):
        if k:
            now = world.learner.score(batch).logp.to(batch.logp.dtype) * batch.mask
            batch = batch.but(extra={**batch.extra, NOW: now})
            batch = batch.but(advantage=recipe.advantage(batch, ledger))
        seen.append(descend(batch, recipe, world, ledger, 1, 1))
    return {key: sum(s[key] for s in seen) / updates for key in seen[0]}


def recipe(**changes: Any) -> Recipe:
    # η and τ are not published in numbers that carry over. The paper has three iterations of tens of thousands of
    # prompts, and of eight answers trains on the best against the worst; here an iteration is a batch, and all pairs of
    # a group are trained on with the chances by which they win, which is the loss that the paper derives. Without a
    # judge the verifier's score decides who wins, which has no cycles: reward.judge and reward.cycle name others.
    won = partial(prefer.reward, judge="", cycle=0.0, classes=3)
    return reinforce.recipe(
        name="inpo", reward=won, enrich=(enrich.reference,), advantage=partial(advantage, eta=0.1, tau=0.01),
        improve=partial(improve, updates=4),
    ).but(**changes)
