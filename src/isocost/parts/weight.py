"""How tokens are averaged: (N, T), computed once on the whole batch, so micro-batches and ranks cannot change it.

A rollout without a sampled token in the mask counts neither in the numerator nor in the denominator. Groups without an
advantage do count: with k of m groups uniform, and rollouts of one length, every average below shrinks the update to
(m - k) / m of what it is with `select.mixed`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.ops import lengths, plain, spread
from isocost.traits import exported


@exported(average="token")
def token_mean(batch: Batch) -> Tensor:
    """Every token has equal weight: 1 / tokens. Long rollouts weigh more. -> (N, T)"""
    return batch.mask / batch.mask.sum().clamp(min=1)


@exported(average="rollout")
def rollout_mean(batch: Batch) -> Tensor:
    """Every rollout has equal weight, shared by its tokens: 1 / (R |y|). -> (N, T)"""
    length = lengths(batch)
    if plain(length):
        each = length.numpy()
        share = 1 / np.maximum(each, 1) / each.dtype.type(max(np.count_nonzero(each > 0), 1))
        return spread(torch.from_numpy(share), batch)
    return spread(1 / length.clamp(min=1), batch) / count(length)


def count(x: Tensor) -> Tensor:
    """Number of positive entries, at least 1."""
    return (x > 0).sum().clamp(min=1)
