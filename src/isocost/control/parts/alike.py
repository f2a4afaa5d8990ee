"""Sigmoid, softplus, atanh and cross-entropy that give a number the same bits wherever it is in an array.

torch's own compute 32 numbers at once and the last ones of an array by another formula, which rounds differently: a
run's numbers would depend on the other runs of its stack. exp and log1p do not, on the processors that were tried.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(−x)), in any shape."""
    small = _below(x).exp()
    return torch.where(x >= 0, torch.ones_like(x), small) / (1 + small)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), in any shape."""
    return torch.where(x >= 0, x, 0.0) + _below(x).exp().log1p()


def atanh(x: Tensor) -> Tensor:
    """½ log((1 + x) / (1 − x)), in any shape."""
    return (x.log1p() - (-x).log1p()) / 2


def cross_entropy(logit: Tensor, p: Tensor) -> Tensor:
    """−p log σ(x) − (1 − p) log σ(−x) of logits x and probabilities p, in any shape."""
    return softplus(logit) - p * logit


def _below(x: Tensor) -> Tensor:
    """−|x|, with the slope −1 at 0, where abs has none: with it sigmoid and softplus have theirs, 1/4 and 1/2."""
    return torch.where(x >= 0, -x, x)
