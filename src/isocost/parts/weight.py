"""How tokens are averaged: (N, T), settled once on the whole batch, so micro-batches and ranks cannot change it.

A rollout without a sampled token in the mask leaves the numerator and the denominator alike. Groups that carry no
advantage do not: they are part of the average. With k of m groups dead, and rollouts of one length, every average
below shrinks the update to (m - k) / m of what `select.mixed` would leave.
"""

from __future__ import annotations

from torch import Tensor

from isocost.batch import Batch
from isocost.ops import lengths, spread


def token_mean(batch: Batch) -> Tensor:
    """Every token the same: 1 / tokens. Long rollouts weigh more. -> (N, T)"""
    return batch.mask / batch.mask.sum().clamp(min=1)


def rollout_mean(batch: Batch) -> Tensor:
    """Every rollout the same, its tokens sharing: 1 / (R |y|). -> (N, T)"""
    return spread(1 / lengths(batch).clamp(min=1), batch) / count(lengths(batch))


def count(x: Tensor) -> Tensor:
    return (x > 0).sum().clamp(min=1)
