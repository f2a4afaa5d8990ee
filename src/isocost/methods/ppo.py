"""PPO with a critic: credit each token by how much the outcome exceeded the value predicted before it.

    A_t = Σ_k (γ λ)^k δ_{t+k},   δ_t = r_t + γ V(s_{t+1}) − V(s_t),   then brought to mean 0 and spread 1
    L = (1/Σ|y_i|) Σ_i Σ_t max(−A ρ, −A clip(ρ, 1 ± 0.2)),   V to A + V by half the mean square
    Schulman et al. 2017, arXiv:1707.06347; γ = 1, λ = 0.95 and the estimate of A as in arXiv:1506.02438
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.methods import Card, reinforce
from isocost.ops import EPS, gae
from isocost.parts import loss, weight
from isocost.parts.improve import policy, split
from isocost.seams import Recipe
from isocost.traits import asks, bounds, gives, requires, shares, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("PPO", "1707.06347", 2017, "reinforce", "A value function distinguishes the tokens of one answer.")

reads_values = requires(
    "values", at="enrich", why="it needs a critic's values; add ppo.enrich to `enrich`"
)


@gives("values")
@asks("critic")
def enrich(batch: Batch, world: World) -> Batch:
    """The critic's values at each sampled token, as `extra["values"]`; charged as `score` tokens."""
    if world.critic is None:
        raise UserError("this recipe learns a value function: it needs a world with a critic")
    return batch.but(extra={**batch.extra, "values": world.critic.values(batch)})


@trait("by_token")
@reads_values
@requires(
    "a critic", at="improve",
    why="it needs a critic that is trained; ppo.improve trains one",
)
@shares(gamma="gamma", lam="lam")
@bounds(gamma="[0, 1]", lam="[0, 1]", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, gamma: float = 1.0, lam: float = 0.95, whiten: bool = True, eps: float = EPS
) -> Tensor:  # -> (N, T)
    credit = gae(batch.extra["values"], batch, gamma=gamma, lam=lam)
    here = credit[batch.mask]
    return (credit - here.mean()) / (here.std(correction=0) + eps) * batch.mask if whiten else credit


@gives("a critic")
@reads_values
@shares(gamma="gamma", lam="lam")
@bounds(gamma="[0, 1]", lam="[0, 1]", faster="(0, inf)", epochs="[1, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *,
    gamma: float = 1.0, lam: float = 0.95, faster: float = 1.0, epochs: int = 1, minibatches: int = 1,
) -> dict[str, float]:
    """`improve.policy`, and as many updates of the critic towards its old values plus `ops.gae` of them.

    Needs `ppo.enrich`; `gamma` and `lam` must equal the advantage's. The critic's learning rate is `faster` times the
    policy's.
    """
    critic, values = world.critic, batch.extra["values"]
    assert critic is not None
    returns = values + gae(values, batch, gamma=gamma, lam=lam)
    parts = split(batch.but(extra={**batch.extra, "returns": returns}), minibatches)
    lr = recipe.pace(ledger).lr * faster
    fits = [critic.fit(part, part.extra["returns"], lr=lr) for _ in range(epochs) for part in parts]
    left, whole = (x[batch.mask].var(correction=0) for x in (returns - values, returns))
    return {
        **policy(batch, recipe, world, ledger, epochs=epochs, minibatches=minibatches),
        **{k: sum(t[k] for t in fits) / len(fits) for k in fits[0]},
        "critic/explained": float(1 - left / whole.clamp(min=EPS**2)),
    }


def recipe(**changes: Any) -> Recipe:
    # The critic is a copy of the policy with its own head, at the policy's learning rate; trainers of language models
    # often give it ten times that. Set gamma and lam in both places.
    return reinforce.recipe(
        name="ppo",
        enrich=(enrich,),
        advantage=partial(advantage, gamma=1.0, lam=0.95),
        weight=weight.token_mean,
        loss=partial(loss.clipped, low=0.2, high=0.2),
        improve=partial(improve, gamma=1.0, lam=0.95, faster=1.0, minibatches=4),
    ).but(**changes)
