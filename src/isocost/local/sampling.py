"""From logits to the sampling distribution, and to a sample. Row by row: no row can change another's bits."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.types import Sampling


def check(sampling: Sampling) -> None:
    """Raises UserError for settings that do not define a distribution."""
    if not sampling.temperature > 0:
        raise UserError(f"temperature is {sampling.temperature}; it must be above 0 (top_k=1 is greedy)")
    if not 0 < sampling.top_p <= 1:
        raise UserError(f"top_p is {sampling.top_p}; it must be above 0 and at most 1 (1 keeps everything)")
    if sampling.top_k < 0:
        raise UserError(f"top_k is {sampling.top_k}; it must be at least 0 (0 keeps everything)")


def truncate(logits: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """(N, V) tempered logits with -inf outside each row's kept set: the top_k (0: all), then of those, renormalised,
    the fewest most likely ids with total probability top_p. Ties are kept in order of id.
    """
    ranked, order = logits.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits.shape[-1], device=logits.device)
    ranked = ranked.masked_fill((rank >= top_k[:, None]) & (top_k > 0)[:, None], -torch.inf)
    p = ranked.softmax(-1)
    drop = (p.cumsum(-1) - p >= top_p[:, None]) & (top_p < 1)[:, None]
    return torch.full_like(logits, -torch.inf).scatter(-1, order, ranked.masked_fill(drop, -torch.inf))


def draw(logp: Tensor, u: Tensor) -> Tensor:
    """(N, V) log-probs and (N,) numbers in (0, 1) -> (N,) ids, none of probability 0, by inverting sums in float64."""
    cumulative = logp.exp().cumsum(-1, dtype=torch.float64)
    return torch.searchsorted(cumulative, u[:, None] * cumulative[:, -1:], right=True)[:, 0]


def kept_sets(batch: Batch, logits: Tensor) -> Tensor:
    """(K, V) the kept set of each masked token; all ids for rows without kept sets."""
    counts = batch.mask.sum(1).tolist()
    kept = torch.zeros(logits.shape, dtype=torch.bool)
    at = 0
    for ids, count in zip(batch.kept, counts, strict=True):
        if not ids:
            kept[at : at + count] = True
        else:
            if len(ids) != count:
                raise ValueError(f"a row has {count} sampled tokens and {len(ids)} kept sets")
            rows = np.repeat(np.arange(at, at + count), [len(x) for x in ids])
            kept[torch.from_numpy(rows), torch.from_numpy(np.concatenate(ids))] = True
        at += count
    return kept.to(logits.device)
