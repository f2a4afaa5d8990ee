"""VL-DAC: one value for each turn of a dialogue, and PPO's ratio for each token.

    A_t = Σ_k (γ λ)^k δ_{t+k},   δ_t = r_t + γ V(s_{t+1}) − V(s_t),   t a turn;  all tokens of a turn have its A_t
    L = mean of max(−A ρ, −A clip(ρ, 1 ± 0.1)) + 0.04 k3(π, reference) over tokens,  V to A + V by half the mean square
    Bredis et al. 2025, arXiv:2508.04280
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, gigpo, isoeasy, ppo
from isocost.ops import EPS, Turns, at_turns, gae_turns, spread_turns, turn_ends, turns_of
from isocost.parts import enrich, loss, pace
from isocost.parts.improve import policy
from isocost.seams import Recipe
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("VL-DAC", "2508.04280", 2025, "ppo", "A critic of turns is steadier than a critic of tokens.")

needs = gigpo.needs


@trait("by_token", "needs_turns")
@ppo.reads_values
@requires("a critic", at="improve", why="it needs a critic of turns that is trained; vldac.improve trains one")
@shares(gamma="gamma", lam="lam")
@bounds(gamma="[0, 1]", lam="[0, 1]", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, gamma: float = 0.9, lam: float = 0.95, whiten: bool = True, eps: float = EPS
) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    credit = gae_turns(at_turns(batch.extra["values"], turns, batch), turns, gamma=gamma, lam=lam)
    if whiten:
        credit = (credit - credit.mean()) / (credit.std(correction=0) + eps)
    return spread_turns(credit, turns, batch)


@gives("a critic")
@ppo.reads_values
@shares(gamma="gamma", lam="lam")
@bounds(gamma="[0, 1]", lam="[0, 1]", faster="(0, inf)", epochs="[1, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    gamma: float = 0.9, lam: float = 0.95, faster: float = 1.0, epochs: int = 2, minibatches: int = 1,
) -> dict[str, float]:
    """`improve.policy`, and `epochs` updates of the critic at the first token of each turn, by returns over turns.

    Needs `ppo.enrich`; `gamma` and `lam` must equal the advantage's. The critic's learning rate is `faster` times the
    policy's.
    """
    fits = fitted(batch, recipe, world, ledger, gamma=gamma, lam=lam, faster=faster, epochs=epochs)
    return {**policy(batch, recipe, world, ledger, epochs=epochs, minibatches=minibatches), **fits}


def fitted(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, gamma: float, lam: float, faster: float, epochs: int
) -> dict[str, float]:
    """The critic's part of `improve`: its updates, and their metrics."""
    critic, turns = world.critic, turns_of(batch)
    assert critic is not None
    value = at_turns(batch.extra["values"], turns, batch)
    returns = value + gae_turns(value, turns, gamma=gamma, lam=lam)
    at = first_tokens(batch, turns)
    lr, target = recipe.pace(ledger).lr * faster, spread_turns(returns, turns, batch)
    fits = [critic.fit(batch.but(mask=at), target, lr=lr) for _ in range(epochs)]
    return {**{k: sum(t[k] for t in fits) / len(fits) for k in fits[0]}, "critic/explained": explained(value, returns)}


def first_tokens(batch: Batch, turns: Turns) -> Tensor:
    """The mask of the first sampled token of each turn: before it the value is that of the turn's state. -> (N, T)"""
    out = torch.zeros_like(batch.mask)
    out[turns.row, turn_ends(turns, batch)[0]] = True
    return out


def explained(value: Tensor, returns: Tensor) -> float:
    """The share of the returns' variance that the values explain."""
    left, whole = (x.var(correction=0) for x in (returns - value, returns))
    return float(1 - left / whole.clamp(min=EPS**2))


def recipe(**changes: Any) -> Recipe:
    # γ, λ, the clip, the KL and two epochs are the paper's. Its value head reads the policy's hidden state without a
    # gradient to it; the critic here is a model of its own, so the factor of its loss has no effect. Advantages are
    # brought to mean 0 and spread 1, as in PPO. Left out: steps of the critic alone at the start, and the stop where a
    # ratio exceeds 10.
    clip, leash = partial(loss.clipped, low=0.1, high=0.1), partial(isoeasy.to_reference, scale=0.04, estimate="k3")
    return ppo.recipe(
        name="vldac", enrich=(ppo.enrich, enrich.reference), advantage=partial(advantage, gamma=0.9, lam=0.95),
        loss=partial(isoeasy.plus, terms=(clip, leash)), improve=partial(improve, gamma=0.9, lam=0.95, epochs=2),
        pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
