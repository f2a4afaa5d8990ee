"""DSAC-T: critics of a mean and a spread of the return; targets of the mean, and weights, that follow the spread.

    y = r + γ (Q'_m(s', a') − α log π),  m = argmin_k Q'_k,  a' ~ π'(s')     y_z: the same with Q'_m + z σ'_m, |z| <= 3
    b_k = Q_k + clip(y_z − Q_k, ±3 σ̄_k),   ω_k = clip(σ̄_k² / (σ_k² + 0.1), 0.1, 10)
    L_k = mean ω_k (H(Q_k − y) + σ_k (sg σ_k² − c H(sg Q_k − b_k)) / (sg σ_k + 0.1)),  H: Huber's with δ = 50

    σ_k² settles at c/2 · E (Q_k − b_k)²: c = 2 is the paper's fixed point. Duan et al. 2023, arXiv:2310.05858
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from isocost.control.luck import Luck
from isocost.control.methods import sac
from isocost.control.networks import Mlp, Network, Params
from isocost.control.parts import alike, improve, tempo
from isocost.control.seams import Agent
from isocost.control.types import Space, Transitions
from isocost.found import Card

CARD = Card("DSAC-T", "2310.05858", 2023, "sac", "One set of settings serves rewards of any scale.")
WIDEST, BIAS = 3.0, 0.1      # standard deviations of a drawn return, at most; keeps divisions finite


def networks(space: Space, agent: Agent) -> Mapping[str, Network]:
    """SAC's, with a mean and a spread for each critic and a slow copy of the actor."""
    size = agent.width, agent.depth
    return {**sac.networks(space, agent), "actor": Mlp(space.observation, 2 * space.actions, *size, slow=True),
            "critic": Mlp(space.observation + space.actions, 2, *size, agent.members, slow=True)}


def split(made: Tensor) -> tuple[Tensor, Tensor]:
    """(..., 2) -> means and spreads, (...)."""
    return made[..., 0], alike.softplus(made[..., 1])


def target(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """y, y_z, and σ̄ of each critic: (S, B, 2 + K)."""
    action, surprise = improve.squashed(slow, batch.following, luck.normal("next", *batch.action.shape[1:]))
    mean, spread = split(slow("critic", batch.following, action))
    drawn = mean + luck.normal("return", *mean.shape[1:]).clamp(-WIDEST, WIDEST) * spread
    least, bonus = mean.argmin(1, keepdim=True), params.numbers("temperature").exp() * surprise
    y, y_z = (batch.reward + batch.discount * (x.gather(1, least)[:, 0] - bonus) for x in (mean, drawn))
    # Of the slow critics on this batch; released code averages σ of past batches with the weight by which slow copies
    # follow.
    usual = split(slow("critic", batch.observation, batch.action))[1].mean(-1, keepdim=True).expand_as(mean)
    return torch.stack([y, y_z, *usual.unbind(1)], -1)


def losses(batch: Transitions, target: Tensor, params: Params, luck: Luck, *, square: float = 2.0) -> dict[str, Tensor]:
    """The critics' losses; SAC's actor and temperature, on the means. `square` is c: 1 is released code's."""
    mean, spread = split(params("critic", batch.observation, batch.action))
    y, y_z, usual = target[:, None, :, 0], target[:, None, :, 1], target[..., 2:].transpose(1, 2)
    still, wide = mean.detach(), spread.detach()
    error = (y_z - still).clamp(-WIDEST * usual, WIDEST * usual)
    weight = (usual**2 / (wide**2 + BIAS)).clamp(0.1, 10.0)
    critic = weight * (huber(mean - y) + spread * (wide**2 - square * huber(error)) / (wide + BIAS))
    found = {"critic": critic.mean(-1).sum(1)}
    if "actor" in params.due:
        found |= sac.improved(batch, params, luck, value=lambda q: q[..., 0].amin(1))
    return found


def huber(x: Tensor) -> Tensor:
    """x²/2 up to 50, and its tangent beyond."""
    return huber_loss(x, torch.zeros_like(x), reduction="none", delta=50.0)


def agent(**changes: Any) -> Agent:
    return sac.agent(
        name="dsact", networks=networks, target=target, losses=partial(losses, square=2.0),
        tempo=partial(tempo.steady, warmup=200, tau=0.005, actor_every=2, slow_every=2),
    ).but(**changes)
