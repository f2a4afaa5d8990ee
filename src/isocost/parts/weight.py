"""How tokens are averaged: (N, T), settled once on the whole batch, so micro-batches and ranks cannot change it.

A rollout without a sampled token in the mask leaves the numerator and the denominator alike. Groups that carry no
advantage do not: they are part of the average. With k of m groups dead, and rollouts of one length, every average
below shrinks the update to (m - k) / m of what `select.mixed` would leave.
"""

from __future__ import annotations

import torch
from torch import Tensor

from isocost.ops import lengths, spread
from isocost.seams import Weight
from isocost.traits import bounds
from isocost.types import Batch, Stop


def token_mean(batch: Batch) -> Tensor:
    """Every token the same: 1 / tokens. Long rollouts weigh more. -> (N, T)"""
    return batch.mask / batch.mask.sum().clamp(min=1)


def rollout_mean(batch: Batch) -> Tensor:
    """Every rollout the same, its tokens sharing: 1 / (R |y|). -> (N, T)"""
    return spread(1 / lengths(batch).clamp(min=1), batch) / _count(lengths(batch))


def rollout_sum(batch: Batch) -> Tensor:
    """Log-probs of whole rollouts, averaged over rollouts: 1 / R a token. -> (N, T)"""
    return batch.mask / _count(lengths(batch))


def prompt_mean(batch: Batch) -> Tensor:
    """Every group the same, all tokens of its rollouts sharing: 1 / (groups · tokens of the group). -> (N, T)"""
    tokens = torch.zeros_like(batch.reward).index_add(0, batch.group, lengths(batch))
    return spread(1 / tokens.clamp(min=1)[batch.group], batch) / _count(tokens)


@bounds(tokens="[1, inf)")
def fixed_length(batch: Batch, *, tokens: int = 1024) -> Tensor:
    """Tokens averaged over a length that does not depend on the rollout: 1 / (R · tokens). -> (N, T)"""
    return batch.mask / (_count(lengths(batch)) * tokens)


def unless_cut(batch: Batch, *, inner: Weight) -> Tensor:
    """Any average, over the rollouts that ended by themselves: the truncated ones count in baselines only.

    DAPO's overlong filtering (arXiv:2503.14476). -> (N, T)
    """
    cut = torch.tensor([r.stop is Stop.LENGTH for g in batch.groups for r in g.rollouts], device=batch.mask.device)
    return inner(batch.but(mask=batch.mask & ~cut[batch.rollout, None]))


def _count(x: Tensor) -> Tensor:
    return (x > 0).sum().clamp(min=1)
