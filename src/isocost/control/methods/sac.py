"""SAC: two critics, a stochastic actor, and an entropy bonus whose weight is learned.

    y = r + γ (min_k Q'_k(s', a') − α log π(a'|s')),  a' ~ π(s')
    L_Q = Σ_k mean (Q_k(s, a) − y)²     L_π = mean (α log π(a|s) − min_k Q_k(s, a))     L_α = −log α · mean(log π − A)

    Haarnoja et al. 2018, arXiv:1812.05905
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Numbers, Params
from isocost.control.parts import improve, tempo
from isocost.control.replay import uniform
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("SAC", "1812.05905", 2018, None, "An entropy bonus with a learned weight makes off-policy learning stable.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """An actor of mean and log sd, K critics of (s, a), and log α."""
    size = agent.width, agent.depth
    return {
        "actor": Mlp(space.observation, 2 * space.actions, *size),
        "critic": Mlp(space.observation + space.actions, 1, *size, members=agent.members, slow=True),
        "temperature": Numbers((0.0,)),
    }


POOLS: Mapping[str, Callable[[Tensor], Tensor]] = {"min": lambda q: q.amin(1), "mean": lambda q: q.mean(1)}


def target(batch: Transitions, params: Params, slow: Params, luck: Luck, *, pessimism: str = "min") -> Tensor:
    """r + γ (min_k Q'_k(s', a') − α log π(a'|s')): (S, B). `pessimism` is the least or the mean of the critics."""
    action, surprise = improve.squashed(params, batch.following, luck.normal("next", *batch.action.shape[1:]))
    value = POOLS[pessimism](slow("critic", batch.following, action)[..., 0])
    return batch.reward + batch.discount * (value - params.numbers("temperature").exp() * surprise)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, pessimism: str = "min"
) -> dict[str, Tensor]:
    """Squared error of each critic; when due, the actor's entropy-regularised value, and entropy against its aim, −A.
    """
    critic = (params("critic", batch.observation, batch.action)[..., 0] - target[:, None]) ** 2
    found = {"critic": critic.mean(-1).sum(1)}
    if "actor" in params.due:
        found |= improved(batch, params, luck, value=lambda q: POOLS[pessimism](q[..., 0]))
    return found


def improved(
    batch: Transitions, params: Params, luck: Luck, *, value: Callable[[Tensor], Tensor], name: str = "critic"
) -> dict[str, Tensor]:
    """The losses of actor and temperature; `value` makes one value of the critics' outputs, (S, K, B, out) -> (S, B).
    """
    action, surprise = improve.squashed(params, batch.observation, luck.normal("new", *batch.action.shape[1:]))
    alpha, aim = params.fixed.numbers("temperature").exp(), -batch.action.shape[-1]
    return {
        "actor": (alpha * surprise - value(params.fixed(name, batch.observation, action))).mean(-1),
        "temperature": -(params.numbers("temperature")[:, 0] * (surprise.detach() + aim).mean(-1)),
    }


def agent(**changes: Any) -> Agent:
    return Agent(
        name="sac", acts="continuous", networks=networks, sample=partial(uniform, gamma=0.99), target=target,
        losses=losses, explore=improve.by_policy, tempo=partial(tempo.steady, warmup=200, tau=0.005),
    ).but(**changes)
