"""Nash Mirror Prox: each mirror step is against the policy that a first step from the same policy leads to.

    π_k+½ ∝ [exp(P(y ≻ π_k) / β) π_ref]^(η/(1+η)) π_k^(1/(1+η)),   π_k+1 the same with P(y ≻ π_k+½)
    KL(π* ‖ π_k) ≤ O((1 + 2β)^(−N/2)) after N queries, π* the Nash policy of the game less β KL(π ‖ π_ref)
    Tiapkin et al. 2025, "Accelerating Nash Learning from Human Feedback via Mirror Prox", arXiv:2505.19731
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, inpo
from isocost.ops import siblings_of
from isocost.parts import enrich, prefer
from isocost.parts.improve import with_old
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Nash Mirror Prox", "2505.19731", 2025, "inpo", "The last policy comes nearer to Nash than by self-play.")


@trait("compares_siblings")
@enrich.reads_reference
@bounds(beta="(0, inf)", eta="(0, inf)")
def advantage(batch: Batch, ledger: Ledger, *, beta: float = 0.02, eta: float = 0.2) -> Tensor:  # -> (N, T)
    pull = eta / (1 + eta)
    return inpo.missing(batch, batch.reward * pull / beta, pull)


@bounds(updates="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, updates: int = 2
) -> dict[str, float]:
    """`updates` updates of each half-step, both from the policy of the batch and on its answers (Nash-MP).

    The second step's rewards are wins against the policy after the first: siblings weighted by their probability ratio.
    """
    batch = with_old(batch, world, updates=2 * updates)
    first = inpo.fit(batch, recipe, world, ledger, updates)
    now = world.learner.score(batch).logp.to(batch.logp.dtype) * batch.mask
    batch = batch.but(extra={**batch.extra, inpo.NOW: now}, reward=against(batch, now))
    batch = batch.but(advantage=recipe.advantage(batch, ledger))
    second = inpo.fit(batch, recipe, world, ledger, updates)
    return {key: (first[key] + second[key]) / 2 for key in second}


def against(batch: Batch, opponent: Tensor) -> Tensor:
    """The probability of each answer to win against a policy with these log-probs, (N, T): (R,).

    Σ_j w_j P(i ≻ j) over the group, with importance weights w ∝ opponent / sampler that sum to 1.
    """
    shift = ((opponent - batch.logp) * batch.mask).sum(-1).to(batch.reward)
    shift = torch.zeros_like(batch.reward).index_add(0, batch.rollout, shift)
    won = [r for g in batch.groups for r in g.rollouts]
    out = batch.reward.clone()
    for siblings in siblings_of(batch):
        attempts = [won[i].attempt for i in siblings.tolist()]
        parts = [won[i].score.parts if won[i].score else {} for i in siblings.tolist()]
        chance = batch.reward.new_tensor([[p[f"over {a}"] for a in attempts] for p in parts])
        out[siblings] = chance @ torch.softmax(shift[siblings], 0)
    return out


def recipe(**changes: Any) -> Recipe:
    # β = 0.02 is a small pull to the reference; η is not published in a number that carries over. Each half-step of the
    # paper samples anew, and its form for large models has a mean of past policies as the opponent; here both have the
    # same answers, reweighted, so that a step costs as many queries as self-play and no second set of weights.
    won = partial(prefer.reward, judge="", cycle=0.0, classes=3)
    return inpo.recipe(
        name="nashmp", reward=won, advantage=partial(advantage, beta=0.02, eta=0.2),
        improve=partial(improve, updates=2),
    ).but(**changes)
