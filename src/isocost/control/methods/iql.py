"""IQL: V is an upper expectile of Q over the actions of the set, so no action outside of it is ever valued.

    L_V = mean |τ − 1(u < 0)| u²,  u = min_k Q'_k(s, a) − V(s)        L_Q = Σ_k mean (r + γ V(s') − Q_k(s, a))²
    L_π = mean min(exp(β u), 100) |a − μ(s)|² / 2

    Kostrikov et al. 2021, arXiv:2110.06169. The actor's deviation is fixed at 1, as in OGBench; the paper learns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import backup, improve, tempo
from isocost.control.parts.mix import weighted
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("IQL", "2110.06169", 2021, None, "Expectiles improve on a set's policy without values of unseen actions.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """An actor of means, V, and K critics with a slow copy."""
    size = agent.width, agent.depth
    return {
        "actor": Mlp(space.observation, space.actions, *size),
        "value": Mlp(space.observation, 1, *size),
        "critic": Mlp(space.observation + space.actions, 1, *size, members=agent.members, slow=True),
    }


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """r + γ V(s'), and min_k Q'_k(s, a): (S, B, 2)."""
    after = params("value", batch.following)[:, 0, :, 0]
    seen = slow("critic", batch.observation, batch.action)[..., 0].amin(1)
    return torch.stack((batch.reward + batch.discount * after, seen), -1)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, tau: float = 0.7, beta: float = 3.0
) -> dict[str, Tensor]:
    """Squared error of each critic, the expectile `tau` for V, and cloning by weights of temperature 1 / `beta`."""
    y, seen = target.unbind(-1)
    critic = (params("critic", batch.observation, batch.action)[..., 0] - y[:, None]) ** 2
    advantage = seen - params("value", batch.observation)[:, 0, :, 0]
    mean = torch.tanh(params("actor", batch.observation)[:, 0])
    return {
        "critic": critic.mean(-1).sum(1), "value": backup.expectile(advantage, tau).mean(-1),
        "actor": backup.imitated(backup.weight(advantage.detach(), beta), mean, batch.action),
    }


def agent(**changes: Any) -> Agent:
    return Agent(
        name="iql", acts="continuous", networks=networks,
        sample=partial(weighted, gamma=0.99, weighting="none", temperature=0.1), target=target,
        losses=partial(losses, tau=0.7, beta=3.0), explore=partial(improve.with_noise, noise=0.0),
        tempo=partial(tempo.offline, tau=0.005),
    ).but(**changes)
