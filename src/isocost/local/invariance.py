"""Batch invariance: a row's logits, log-probs and tokens have the same bits alone and in any batch.

It is measured at a model's own shapes, with the sampling cache: one layer with random weights, the same rows alone and
together. Matrix libraries violate it if the routine, and so the order of a sum, depends on the shape of a product: He
et al. 2025, "Defeating Nondeterminism in LLM Inference".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost import processor
from isocost.local.cache import Cache
from isocost.local.caches import open_cache
from isocost.local.decoder import Backend, Config, Decoder

TICKS = 2            # tokens each row writes
VOCABULARY = 4096    # ids of the head that are compared
LENGTHS = (2, 5, 9, 12, 16, 17, 64)         # tokens of prompts: below, at and above a tile's edge
CROWDS = (20, 130)                          # rows that continue the same prompts in one batch
MANY_LENGTHS = (2, 5, 9, 12, 16, 17, 33, 65, 129, 257, 300, 600)    # and around the block sizes of a long row's keys
MANY_CROWDS = (20, 50, 130)


@dataclass(frozen=True)
class Invariance:
    """Rows that were computed alone and in batches."""

    compared: int        # pairs of the same row alone and in a batch
    differ: int          # of them, those whose bits differ
    rows: int            # of the largest batch
    tokens: int          # of the longest row
    first: str = ""      # the first pair that differs, in words

    @property
    def holds(self) -> bool:
        return self.differ == 0

    def __str__(self) -> str:
        batches = f"batches of up to {self.rows} rows and {self.tokens} tokens"
        if self.holds:
            return f"{self.compared} comparisons of a row alone and in {batches}: the bits are the same"
        return f"{self.differ} of {self.compared} rows have different last bits alone and in {batches}: {self.first}"


@cache
def measure(
    config: Config, body: torch.dtype, device: torch.device, kernels: str, threads: int, *, many: bool = False
) -> Invariance:
    """Compare rows alone and in batches, at the widths of `config`; `many` for more lengths and larger batches."""
    small = replace(config, layers=1, vocab=min(config.vocab, VOCABULARY))
    decoder = Decoder.from_config(small, torch.Generator().manual_seed(0))
    store = open_cache(small, Backend(device, body, kernels, threads), 0)
    store.load({k: p.detach() for k, p in decoder.named_parameters()})
    rng = np.random.default_rng(0)
    lengths = [n for n in (MANY_LENGTHS if many else LENGTHS) if n + TICKS <= config.max_len]
    prompts = [rng.integers(0, small.vocab, n) for n in lengths]
    alone = [_written(store, [p], [1])[0] for p in prompts]
    compared = differ = rows = 0
    first = ""
    for end in range(2, len(prompts) + 1):
        if end < len(prompts) and lengths[end] <= 16:            # short prompts are read together, as one product
            continue
        crowds = MANY_CROWDS if many else CROWDS
        for crowd in (end, crowds[end % len(crowds)]):
            counts = np.bincount(np.arange(max(crowd, end)) % end).tolist()
            rows = max(rows, sum(counts))
            for i, together in enumerate(_written(store, prompts[:end], counts)):
                compared += 1
                if together != alone[i]:
                    differ += 1
                    first = first or (f"first a row of {lengths[i]} tokens, in a batch of {sum(counts)} rows whose "
                                      f"longest has {lengths[end - 1]}")
    return Invariance(compared, differ, rows, max(lengths, default=0) + TICKS, first)


def remedy(body: torch.dtype, why: str) -> str:
    """What to change where torch's results depend on the batch; `why` says why the native kernel is not in use."""
    settings = [f"{processor.MKL}={processor.MKL_STRICT}"] if processor.intel() else []
    if body == torch.bfloat16 and processor.has_amx():
        settings.append(f"{processor.ONEDNN}={processor.ONEDNN_VECTORS}")
    do = "use the native kernel, whose results do not depend on the batch" + (f" (not in use: {why})" if why else "")
    if not settings:
        return do
    return f"{do}; or start Python with {' '.join(settings)} in the environment: torch reads it at its first product"


def _written(store: Cache, prompts: Sequence[ndarray], counts: Sequence[int]) -> list[set[bytes]]:
    """For each prompt the bits of logits, log-probs and ids, after it and after each token of the rows from it."""
    logits = store.read(list(prompts), list(counts), 0, TICKS)
    out = [{x} for x in _bits(store, logits)]
    which = np.repeat(np.arange(len(prompts)), counts)
    length = np.array([len(p) for p in prompts], dtype=np.int64)[which]
    for tick in range(TICKS):
        last = np.array([p[tick % len(p)] for p in prompts], dtype=np.int64)[which]
        for k, x in zip(which.tolist(), _bits(store, store.tick(last, length)), strict=True):
            out[k].add(x)
        length = length + 1
    store.free(0)
    return out


def _bits(store: Cache, logits: Tensor) -> list[bytes]:
    whole = logits.cpu().numpy().copy()
    rows = len(whole)
    ids, logp = store.draw(logits, np.ones(rows, dtype=np.float32), np.full(rows, 0.5))
    return [a.tobytes() + b.tobytes() + c.tobytes() for a, b, c in zip(whole, ids, logp, strict=True)]
