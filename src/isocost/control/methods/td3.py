"""TD3: a deterministic actor, the lesser of two critics, noise on the target's action, a delayed actor.

    y = r + γ min_k Q'_k(s', ã),   ã = clip(π'(s') + clip(0.2 z, ±0.5), ±1)
    L_Q = Σ_k mean (Q_k(s, a) − y)²     L_π = −mean Q_1(s, π(s)),  in every second update, as the slow copies

    Fujimoto et al. 2018, arXiv:1802.09477
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import improve, tempo
from isocost.control.replay import uniform
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("TD3", "1802.09477", 2018, None, "The lesser of two critics and a late actor remove overestimation.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """An actor and K critics of (s, a), each with a slow copy."""
    size = agent.width, agent.depth
    return {
        "actor": Mlp(space.observation, space.actions, *size, slow=True),
        "critic": Mlp(space.observation + space.actions, 1, *size, members=agent.members, slow=True),
    }


def smoothed(batch: Transitions, slow: Params, luck: Luck, *, noise: float, limit: float) -> Tensor:
    """ã, the slow actor's next action with clipped noise on it: (S, B, A)."""
    z = (noise * luck.normal("next", *batch.action.shape[1:])).clamp(-limit, limit)
    return (torch.tanh(slow("actor", batch.following)[:, 0]) + z).clamp(-1, 1)


def target(
    batch: Transitions, params: Params, slow: Params, luck: Luck, *, noise: float = 0.2, limit: float = 0.5
) -> Tensor:
    """r + γ min_k Q'_k(s', ã): (S, B)."""
    action = smoothed(batch, slow, luck, noise=noise, limit=limit)
    return batch.reward + batch.discount * slow("critic", batch.following, action)[..., 0].amin(1)


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """Squared error of each critic; the actor's value by the first critic, when it is due."""
    critic = (params("critic", batch.observation, batch.action)[..., 0] - target[:, None]) ** 2
    found = {"critic": critic.mean(-1).sum(1)}
    if "actor" in params.due:
        action = torch.tanh(params("actor", batch.observation)[:, 0])
        found["actor"] = -params.fixed("critic", batch.observation, action)[:, 0, :, 0].mean(-1)
    return found


def agent(**changes: Any) -> Agent:
    return Agent(
        name="td3", acts="continuous", networks=networks, sample=partial(uniform, gamma=0.99),
        target=partial(target, noise=0.2, limit=0.5), losses=losses, explore=partial(improve.with_noise, noise=0.1),
        tempo=partial(tempo.steady, warmup=200, tau=0.005, actor_every=2, slow_every=2),
    ).but(**changes)
