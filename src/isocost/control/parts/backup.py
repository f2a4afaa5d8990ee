"""Values learned from a set without the actions of a policy: expectiles, and the weights of cloning that they give."""

from __future__ import annotations

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Params
from isocost.control.types import Transitions

MOST = 100.0        # of a weight


def nothing(batch: Transitions, params: Params, slow: Params, luck: Luck) -> Tensor:
    """The target of a method without a critic: zeros, (S, B)."""
    return torch.zeros_like(batch.reward)


def expectile(difference: Tensor, tau: float, sign: Tensor | None = None) -> Tensor:
    """|τ − 1(d < 0)| d², with the sign of d or of another array. (Kostrikov et al. 2021, arXiv:2110.06169)"""
    below = (difference if sign is None else sign) < 0
    return torch.where(below, 1 - tau, tau) * difference**2


def implicit(slow: Params, name: str, start: Tensor, reward: Tensor, following: Tensor, discount: Tensor) -> Tensor:
    """Targets of each member of a value, and the advantage that picks their weights: (S, B, K + 1).

        y_k = r + γ V'_k(s₂),  A = r + γ min_k V'_k(s₂) − mean_k V'_k(s)         (HIQL, arXiv:2307.11949)
    """
    after, now = slow(name, following)[..., 0], slow(name, start)[..., 0]
    advantage = reward + discount * after.amin(1) - now.mean(1)
    return torch.cat((reward[:, None] + discount[:, None] * after, advantage[:, None]), 1).transpose(1, 2)


def implicit_loss(params: Params, name: str, start: Tensor, targets: Tensor, tau: float) -> Tensor:
    """The expectile loss of each member against `implicit`'s targets: (S,)."""
    aims = targets.transpose(1, 2)
    return expectile(aims[:, :-1] - params(name, start)[..., 0], tau, aims[:, -1:]).mean(-1).sum(1)


def gain(params: Params, name: str, after: Tensor, before: Tensor) -> Tensor:
    """V(s₂) − V(s), means of the members, without gradient: (S, B)."""
    with torch.no_grad():
        return (params(name, after) - params(name, before))[..., 0].mean(1)


def weight(advantage: Tensor, beta: float) -> Tensor:
    """min(exp(β A), 100)."""
    return (beta * advantage).exp().clamp(max=MOST)


def imitated(weights: Tensor, mean: Tensor, action: Tensor) -> Tensor:
    """Weighted cloning by a Gaussian with a deviation of 1: (S,), the mean of w |a − μ|² / 2."""
    return (weights * ((mean - action) ** 2).sum(-1) / 2).mean(-1)
