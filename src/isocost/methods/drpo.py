"""DRPO: reward short answers among the right ones alone, so that a long right answer is never made less likely.

    L = −[ Σ_{i right} w_i s_i / Σ w  −  τ log mean_{j wrong} exp(s_j / τ) ] + (β/2) max(KL − δ, 0)²,   per problem
    w_i = exp((1 − |y_i| / C) / λ),   s_i the mean log π of a rollout's tokens;   groups with both kinds only
    Li et al. 2025, "Decoupled reward policy optimization", arXiv:2510.04474
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost import ops
from isocost.batch import Batch, Forward
from isocost.methods import Card, grpo
from isocost.ops import lengths, row_mean, siblings_of, spread
from isocost.parts import select
from isocost.parts.improve import split, with_old
from isocost.parts.loss import Out, credit
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("DRPO", "2510.04474", 2025, "grpo", "Answers become shorter at less loss of accuracy.")


@trait("compares_siblings")
@bounds(lam="(0, inf]", tau="(0, inf]", longest="[1, inf)")
def advantage(
    batch: Batch, ledger: object, *, lam: float = 0.1, tau: float = 10.0, longest: int = 1024
) -> Tensor:  # -> (N, T)
    """w_i / Σ w of a right rollout, −softmax(s / τ) among the wrong ones of a wrong one; 0 in a group of one kind.

    These are the factors of ∇ s in the gradient of the equation, with s by the policy that sampled. Right is a reward
    above 1/2. `longest` is C, in tokens.
    """
    each = lengths(batch)
    total = torch.zeros_like(batch.reward).index_add(0, batch.rollout, (batch.logp * batch.mask).sum(-1).to(each))
    mean, out = total / each.clamp(min=1), torch.zeros_like(batch.reward)
    for own in siblings_of(batch):
        right = batch.reward[own] > 0.5
        if right.any() and not right.all():
            out[own[right]] = torch.softmax(-each[own[right]] / (longest * lam), 0)
            out[own[~right]] = -torch.softmax(mean[own[~right]] / tau, 0)
    return spread(out, batch)


def weight(batch: Batch) -> Tensor:
    """The mean over a rollout's tokens, summed over a group's rollouts, and the mean over groups. -> (N, T)"""
    groups = batch.group[batch.rollout].unique().numel()
    return spread(1 / (lengths(batch).clamp(min=1) * max(groups, 1)), batch)


def loss(out: Forward, batch: Batch) -> Out:
    """−A log π, and the part of the trust region that `drpo.improve` found: its factor times log π_old − log π."""
    moved = ops.log_ratio(out, batch)
    return -credit(batch) * out.logp - batch.extra.get("leash", 0.0) * moved, {"log_ratio": moved}


@bounds(beta="[0, inf)", delta="[0, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, beta: float = 1e3, delta: float = 1e-4,
    minibatches: int = 4,
) -> dict[str, float]:
    """`minibatches` updates, before each of which KL(π_old ‖ π) is estimated on its rollouts, at the cost of a score.

    Beyond `delta` it is pulled back by beta (KL − δ), a constant (DRPO, arXiv:2510.04474). KL is the mean over rollouts
    of the mean over their tokens.
    """
    batch, lr, seen = with_old(batch, world, updates=minibatches), recipe.pace(ledger).lr, []
    for part in split(batch, minibatches):
        part, kl = part.but(weight=recipe.weight(part)), 0.0
        if part.old is not None and beta:
            each = row_mean(part.old - world.learner.score(part).logp, part.mask)
            there = part.rollout.unique()
            share = part.group[there].unique().numel() / there.numel()     # `weight` sums over a group's rollouts
            kl = float(each.mean())
            leash = torch.full_like(part.logp, max(beta * (kl - delta), 0.0) * share)
            part = part.but(extra={**part.extra, "leash": leash})
        seen.append({**world.learner.update(part, recipe.loss, lr=lr), "kl": kl, "learning_rate": lr})
    return {k: sum(s[k] for s in seen) / len(seen) for k in seen[0]}


def recipe(**changes: Any) -> Recipe:
    # λ, τ, β, δ are the released ones; C is 8192 there, here 1024, as pace.max_tokens. The released code computes s of
    # wrong answers anew in each update, and the trust region in its one forward pass. Four updates on a batch: with
    # one, the trust region does not act.
    return grpo.recipe(
        name="drpo", select=select.mixed, advantage=partial(advantage, lam=0.1, tau=10.0, longest=1024), weight=weight,
        loss=loss, improve=partial(improve, beta=1e3, delta=1e-4, minibatches=4),
    ).but(**changes)
