"""ReBRAC: TD3 that is held to the set's actions twice, in the actor and, with a weight of its own, in the target.

    y = r + γ (min_k Q'_k(s', ã) − β₂ |ã − a'|²),  ã as in TD3, a' the set's next action
    L_π = mean (β₁ |π(s) − a|² − λ min_k Q_k(s, π(s))),  λ = 1 / mean |min_k Q_k|,  in every second update

    Tarasov et al. 2023, arXiv:2305.09836. Its critics have LayerNorm, and three hidden layers (here two). Where a
    trajectory was cut its next action is not known, and the target has no penalty.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.methods import td3
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import improve, tempo
from isocost.control.parts.mix import last_rows, weighted
from isocost.control.replay import Replay
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("ReBRAC", "2305.09836", 2023, "td3", "Two penalties and LayerNorm make TD3 + BC as good as any method.")


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """TD3's, with LayerNorm in the critics."""
    critic = Mlp(space.observation + space.actions, 1, agent.width, agent.depth, agent.members, norm=True, slow=True)
    return {**td3.networks(space, agent), "critic": critic}


def sample(
    replay: Replay, count: int, luck: Luck, *, gamma: float = 0.99, weighting: str = "none", temperature: float = 0.1
) -> Transitions:
    """Transitions with the set's next action, "next", and whether it is known, "known"."""
    batch = weighted(replay, count, luck, gamma=gamma, weighting=weighting, temperature=temperature)
    at = batch.others["row"]
    last = last_rows(replay)[at]
    following = replay.rows[torch.tensor(replay.runs)[:, None], (at + 1).minimum(last)]
    return batch._replace(others={"next": replay.split(following)[1], "known": (at < last).float()})


def target(
    batch: Transitions, params: Params, slow: Params, luck: Luck, *, noise: float = 0.2, limit: float = 0.5,
    penalty: float = 0.01
) -> Tensor:
    """TD3's target less `penalty` times the squared distance to the set's next action: (S, B)."""
    action = td3.smoothed(batch, slow, luck, noise=noise, limit=limit)
    away = batch.others["known"] * ((action - batch.others["next"]) ** 2).sum(-1)
    value = slow("critic", batch.following, action)[..., 0].amin(1)
    return batch.reward + batch.discount * (value - penalty * away)


def losses(
    batch: Transitions, target: Tensor, params: Params, luck: Luck, *, penalty: float = 0.1
) -> dict[str, Tensor]:
    """Squared error of each critic; value of the actor on a scale of 1, less `penalty` times its squared distance."""
    critic = (params("critic", batch.observation, batch.action)[..., 0] - target[:, None]) ** 2
    found = {"critic": critic.mean(-1).sum(1)}
    if "actor" in params.due:
        action = torch.tanh(params("actor", batch.observation)[:, 0])
        value = params.fixed("critic", batch.observation, action)[..., 0].amin(1)
        scale = value.detach().abs().mean(-1).clamp(min=1e-6)
        away = ((action - batch.action) ** 2).sum(-1)
        found["actor"] = penalty * away.mean(-1) - value.mean(-1) / scale
    return found


def agent(**changes: Any) -> Agent:
    return Agent(
        name="rebrac", acts="continuous", networks=networks,
        sample=partial(sample, gamma=0.99, weighting="none", temperature=0.1),
        target=partial(target, noise=0.2, limit=0.5, penalty=0.01),     # the paper: both by a grid for each set
        losses=partial(losses, penalty=0.1), explore=partial(improve.with_noise, noise=0.0),
        tempo=partial(tempo.offline, tau=0.005, actor_every=2, slow_every=2),
    ).but(**changes)
