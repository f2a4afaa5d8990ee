"""FQL: a flow clones the set; an actor of one step is held to what the flow does, and improved by the critic.

    y = r + γ mean_k Q'_k(s', μ(s', z'))        L_Q = Σ_k mean (Q_k(s, a) − y)²        L_flow as in flow BC
    L_μ = α mean |μ(s, z) − flow(s, z)|² − mean_k Q_k(s, μ(s, z))

    Park et al. 2025, arXiv:2502.02538. No gradient goes through the flow's ten steps, and none from Q into the flow.
    Its critics have LayerNorm, four layers of 512 and GELU; here all networks have relu, and the agent's sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import flow, tempo
from isocost.control.parts.mix import weighted
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("FQL", "2502.02538", 2025, "flowbc", "An actor of one step equals a flow that is improved, and is cheaper.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """The flow, the actor of (s, z), and K critics with a slow copy."""
    size = agent.width, agent.depth
    return {
        "flow": flow.velocity(space.observation, space.actions, agent),
        "actor": Mlp(space.observation + space.actions, space.actions, *size),
        "critic": Mlp(space.observation + space.actions, 1, *size, members=agent.members, slow=True),
    }


def one_step(params: Params, observation: Tensor, noise: Tensor) -> Tensor:
    """μ(s, z): (S, B, A), not clipped."""
    return params("actor", observation, noise)[:, 0]


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """r + γ mean_k Q'_k(s', μ(s', z')): (S, B)."""
    action = one_step(params, batch.following, luck.normal("next", *batch.action.shape[1:])).clamp(-1, 1)
    return batch.reward + batch.discount * slow("critic", batch.following, action)[..., 0].mean(1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, alpha: float = 10.0, steps: int = 10
) -> dict[str, Tensor]:
    """Squared error of each critic; the flow's and the actor's."""
    critic = (params("critic", batch.observation, batch.action)[..., 0] - target[:, None]) ** 2
    return {"critic": critic.mean(-1).sum(1), **improved(batch, params, luck, alpha=alpha, steps=steps)}


def improved(batch: Transitions, params: Params, luck: Luck, *, alpha: float, steps: int) -> dict[str, Tensor]:
    """The losses of flow and actor."""
    z = luck.normal("new", *batch.action.shape[1:])
    with torch.no_grad():
        taught = flow.carried(params, "flow", batch.observation, z, steps)
    action = one_step(params, batch.observation, z)
    away = ((action - taught) ** 2).mean(-1).mean(-1)
    value = params.fixed("critic", batch.observation, action.clamp(-1, 1))[..., 0].mean(1)
    return {"flow": flow.cloned(params, "flow", batch.observation, batch.action, luck),
            "actor": alpha * away - value.mean(-1)}


def explore(params: Params, observation: Tensor, luck: Luck | None) -> Tensor:
    """μ(s, z), clipped."""
    size = params.networks["actor"].outputs
    start = flow.noise(luck, "one step", *observation.shape[:2], size)
    return one_step(params, observation, start).clamp(-1, 1)


def agent(**changes: Any) -> Agent:
    return Agent(
        name="fql", acts="continuous", networks=networks,
        sample=partial(weighted, gamma=0.99, weighting="none", temperature=0.1), target=target,
        losses=partial(losses, alpha=10.0, steps=10), explore=explore, tempo=partial(tempo.offline, sampled=True),
    ).but(**changes)
