"""PPO with a critic: credit each token by how much better things went than was foreseen before it.

    A_t = Σ_k (γ λ)^k δ_{t+k},   δ_t = r_t + γ V(s_{t+1}) − V(s_t),   then brought to mean 0 and spread 1
    L = (1/Σ|y_i|) Σ_i Σ_t max(−A ρ, −A clip(ρ, 1 ± 0.2)),   V to A + V by half the mean square
    Schulman et al. 2017, arXiv:1707.06347; γ = 1, λ = 0.95 and the estimate of A as in arXiv:1506.02438
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from isocost.methods import Card, reinforce
from isocost.ops import EPS, gae
from isocost.parts import enrich, improve, loss, weight
from isocost.seams import Recipe
from isocost.traits import bounds, requires, shares, trait
from isocost.types import Batch

CARD = Card("PPO", "1707.06347", 2017, "reinforce", "A value function tells tokens of one answer apart.")


@trait("by_token")
@enrich.reads_values
@requires(
    "a critic", at="improve",
    why="it credits by what a critic foresees, which improve.with_critic teaches it",
)
@shares(gamma="gamma", lam="lam")
@bounds(gamma="[0, 1]", lam="[0, 1]", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, gamma: float = 1.0, lam: float = 0.95, whiten: bool = True, eps: float = EPS
) -> Tensor:  # -> (N, T)
    credit = gae(batch.extra["values"], batch, gamma=gamma, lam=lam)
    here = credit[batch.mask]
    return (credit - here.mean()) / (here.std(correction=0) + eps) * batch.mask if whiten else credit


def recipe(**changes: Any) -> Recipe:
    # The critic is a copy of the policy with a head of its own, at the policy's rate; trainers of language models
    # often give it ten times that. Set gamma and lam in both places.
    return reinforce.recipe(
        name="ppo",
        enrich=(enrich.values,),
        advantage=partial(advantage, gamma=1.0, lam=0.95),
        weight=weight.token_mean,
        loss=partial(loss.clipped, low=0.2, high=0.2),
        improve=partial(improve.with_critic, gamma=1.0, lam=0.95, faster=1.0, minibatches=4),
    ).but(**changes)
