"""How an actor acts and is improved: forms that several methods share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from isocost.control.luck import Luck
from isocost.control.networks import Params

LOWEST, HIGHEST, TINY = -20.0, 2.0, 1e-6        # of log sd, and inside the logarithm: as in SB3


def squashed(params: Params, observation: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """A tanh-Gaussian policy: a = tanh(μ + σ z) -> (S, B, A), and log π(a) -> (S, B). `noise` is z, (S, B, A).

        log π(a) = Σ_j −z²/2 − log σ − log √(2π) − log(1 − a² + 1e-6)          (Haarnoja et al. 2018, appendix C)
    """
    mean, spread = params("actor", observation)[:, 0].chunk(2, -1)
    return squash(mean, spread, noise)


def squash(mean: Tensor, spread: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """The same of means and log sds, (..., A): the action, and log π(a), (...)."""
    spread = spread.clamp(LOWEST, HIGHEST)
    action = torch.tanh(mean + spread.exp() * noise)
    each = -0.5 * noise * noise - spread - 0.5 * math.log(2 * math.pi) - torch.log(1 - action * action + TINY)
    return action, each.sum(-1)


def by_policy(params: Params, observation: Tensor, luck: Luck | None) -> Tensor:
    """Acts by a tanh-Gaussian policy: a sample, or tanh(μ) in an evaluation."""
    mean, spread = params("actor", observation)[:, 0].chunk(2, -1)
    if luck is None:
        return torch.tanh(mean)
    return torch.tanh(mean + spread.clamp(LOWEST, HIGHEST).exp() * luck.normal("explore", *mean.shape[1:]))


def with_noise(params: Params, observation: Tensor, luck: Luck | None, *, noise: float = 0.1) -> Tensor:
    """Acts by a deterministic policy, tanh(μ) + noise · z."""
    action = torch.tanh(params("actor", observation)[:, 0])
    if luck is None:
        return action
    return (action + noise * luck.normal("explore", *action.shape[1:])).clamp(-1, 1)
