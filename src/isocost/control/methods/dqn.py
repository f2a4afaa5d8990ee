"""DQN: one Q for each discrete action, a replay, and a target copy that is renewed at intervals.

    y = r + γ max_a' Q'(s', a')       L = mean H(Q(s, a) − y),  H(x) = x²/2 for |x| < 1, |x| − 1/2 beyond

    Mnih et al. 2015, Nature 518
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import tempo
from isocost.control.replay import uniform
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("DQN", "Mnih et al. 2015, Nature 518", 2015, None, "A replay and a slow target stabilise Q-learning.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """One network of s with a value for each action."""
    return {"critic": Mlp(space.observation, space.choices, agent.width, agent.depth, agent.members, slow=True)}


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """r + γ max_a' Q'(s', a'): (S, B)."""
    return batch.reward + batch.discount * slow("critic", batch.following)[:, 0].amax(-1)


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck) -> dict[str, Tensor]:
    """Huber's loss of the value of the action that was taken."""
    values = params("critic", batch.observation)[:, 0].gather(-1, batch.action.long())[..., 0]
    return {"critic": smooth_l1_loss(values, target, reduction="none").mean(-1)}


def explore(params: Params, observation: Tensor, luck: Luck | None, *, epsilon: float = 0.1) -> Tensor:
    """The best action; with probability ε a uniform one."""
    values = params("critic", observation)[:, 0]
    best = values.argmax(-1, keepdim=True)
    if luck is None:
        return best
    u = luck.uniform("explore", *best.shape[1:], 2)
    return torch.where(u[..., 0] < epsilon, (u[..., 1] * values.shape[-1]).long(), best)


def agent(**changes: Any) -> Agent:
    return Agent(
        name="dqn", acts="discrete", networks=networks, sample=partial(uniform, gamma=0.99), target=target,
        losses=losses, explore=partial(explore, epsilon=0.1),   # constant: the paper lowers it from 1 over 10^6 frames
        tempo=partial(tempo.steady, warmup=200, tau=1.0, slow_every=200),
        members=1,
    ).but(**changes)
