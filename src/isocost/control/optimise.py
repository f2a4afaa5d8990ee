"""Adam (Kingma & Ba, arXiv:1412.6980) and the averaged copy, over the flat weights of a stack: (S, K, P)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from isocost.control import native

FIRST, SECOND, TINY = 0.9, 0.999, 1e-8


@dataclass
class Moments:
    """Adam's state of one network: the averages of gradients and of their squares, and each run's number of steps."""

    first: Tensor       # (S, K, P)
    second: Tensor      # (S, K, P)
    steps: Tensor       # (S,)

    @classmethod
    def of(cls, weights: Tensor) -> Moments:
        return cls(torch.zeros_like(weights), torch.zeros_like(weights), torch.zeros(len(weights)))


def adam(weights: Tensor, moments: Moments, gradient: Tensor, rate: Tensor, decay: float = 0.0) -> None:
    """One step in place. `rate` is (S,); `decay` shrinks the weights by rate * decay (AdamW, arXiv:1711.05101)."""
    moments.steps += 1
    steps = moments.steps.double()      # float32 powers of 0.999 lose digits
    size = (rate / (1 - FIRST**steps)).float()
    scale = (1 / (1 - SECOND**steps)).sqrt().float()
    kept = (1 - rate * decay).float()
    arrays = weights, moments.first, moments.second, gradient
    if native.adam(*arrays, (size, scale, kept), (FIRST, SECOND, TINY)):
        return
    size, scale, kept = (x.view(-1, 1, 1) for x in (size, scale, kept))
    moments.first.lerp_(gradient, 1 - FIRST)
    moments.second.mul_(SECOND).addcmul_(gradient, gradient, value=1 - SECOND)
    weights.mul_(kept).sub_(size * moments.first / (moments.second.sqrt().mul_(scale).add_(TINY)))


def follow(slow: Tensor, weights: Tensor, tau: float) -> None:
    """slow <- slow + tau (weights - slow), in place."""
    slow.lerp_(weights, tau)
