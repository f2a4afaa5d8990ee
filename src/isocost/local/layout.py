"""A batch laid out by shared prompts: the prompt that rows of a group have in common is read once.

A row is a prompt (all before its first masked token) and its continuation, without the last token, which predicts
nothing. The torch learner reads blocks (`Shared`), the kernel ragged spans (`Units`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.batch import Batch

UNIT = 96        # tokens that make a unit for the kernel, at least
SPLIT = 512      # tokens after which a group is split, so that threads have equal work


@dataclass(frozen=True)
class TokenRows:
    """N rows of tokens, each with a prompt; `owner` is the first row that has the same prompt, in the same group."""

    tokens: ndarray      # (N, T)
    prompt: ndarray      # (N,) tokens of the prompt
    length: ndarray      # (N,) tokens
    owner: ndarray       # (N,)

    @classmethod
    def of(cls, batch: Batch) -> TokenRows:
        """Raises ValueError for a mask at position 0: no token before it predicts it."""
        tokens, mask, length = batch.tokens.cpu().numpy(), batch.mask.cpu().numpy(), batch.length.cpu().numpy()
        if mask[:, 0].any():
            raise ValueError("a row's first token is masked: no token before it predicts it")
        prompt = np.where(mask.any(1), mask.argmax(1), length)
        return cls(tokens, prompt, length, _owners(tokens, prompt, batch.group[batch.rollout].cpu().numpy()))

    @classmethod
    def apart(cls, rows: Sequence[Sequence[int]], prompt: Sequence[int]) -> TokenRows:
        """Rows without shared prompts."""
        length = np.array([len(r) for r in rows])
        tokens = np.zeros((len(rows), length.max()), dtype=np.int64)
        for to, row in zip(tokens, rows, strict=True):
            to[: len(row)] = row
        return cls(tokens, np.array(prompt), length, np.arange(len(rows)))

    def beginning_alike(self) -> TokenRows:
        """The same rows, sharing the beginning of all prompts that saves most; each keeps a token of its prompt."""
        order = np.lexsort(self.tokens.T[::-1])
        near = self.tokens[order]
        equal = np.logical_and.accumulate(near[1:] == near[:-1], axis=1).sum(1)    # tokens that neighbours begin with
        sizes = np.arange(int(self.prompt.min()))
        saved = sizes * (equal >= sizes[:, None]).sum(1)
        if not saved.any():
            return self
        size = int(saved.argmax())
        new = np.append(True, equal < size)
        owner = np.empty_like(order)
        owner[order] = order[new][np.cumsum(new) - 1]
        return TokenRows(self.tokens, np.full(len(order), size), self.length, owner)


@dataclass(frozen=True)
class Shared:
    """Blocks of one prompt and several rows that continue it; K masked tokens."""

    tokens: Tensor       # (blocks, L)
    position: Tensor     # (blocks, L)
    bias: Tensor         # (blocks, 1, L, L): 0 where a token may attend, else -inf
    before: Tensor       # (K,) for each masked token, the index of the one before it in the flattened blocks
    spot: Tensor         # (K,) its own index in the flattened (N, T) batch
    read: int            # tokens that are not padding

    @classmethod
    def of(cls, rows: TokenRows, mask: ndarray, widest: int, body: torch.dtype, device: torch.device) -> Shared:
        """Blocks of at most `widest` tokens, if a row fits."""
        tokens, plen, length, T = rows.tokens, rows.prompt, rows.length, rows.tokens.shape[1]
        Tp, Ts = int(plen.max()), int(max((length - 1 - plen).max(), 0))
        block, place = _blocks(rows.owner, max(1, (widest - Tp) // max(Ts, 1)))
        lead = np.zeros(block.max() + 1, dtype=np.int64)
        lead[block] = rows.owner
        L = Tp + (int(place.max()) + 1) * Ts
        there = np.arange(Tp) < plen[lead, None]
        grid, position, which = (np.zeros((len(lead), L), dtype=np.int64) for _ in range(3))
        grid[:, :Tp], position[:, :Tp], which[:, :Tp] = tokens[lead, :Tp], np.arange(Tp), np.where(there, 0, -1)
        at = plen[:, None] + np.arange(Ts)
        inside = np.minimum(at, T - 1)
        here = block[:, None], Tp + place[:, None] * Ts + np.arange(Ts)
        grid[here], position[here] = np.take_along_axis(tokens, inside, 1), inside
        which[here] = np.where(at < length[:, None] - 1, 1 + place[:, None], -1)
        i, t = np.nonzero(mask)
        first = t == plen[i]
        before = block[i] * L + np.where(first, plen[i] - 1, Tp + place[i] * Ts + t - 1 - plen[i])
        see = (which[:, None, :] == 0) | (which[:, None, :] == which[:, :, None])
        bias = np.where(see & np.tri(L, dtype=bool), np.float32(0), np.float32(-np.inf))[:, None]
        grid_, position_, bias_, before_, spot = (
            torch.from_numpy(x).to(device) for x in (grid, position, bias, before, i * T + t)
        )
        return cls(grid_, position_, bias_.to(body), before_, spot, int((which >= 0).sum()))


@dataclass(frozen=True)
class Units:
    """The kernel's layout: spans of tokens, each a prompt or a row that continues one; K masked tokens."""

    first_span: ndarray      # (units + 1,) where each unit's spans begin; one thread computes a unit
    counts: ndarray          # (spans,) tokens
    lead: ndarray            # (spans,) the span, earlier in its unit, that this one continues; -1 for a prompt
    tokens: ndarray          # all tokens, span after span
    first_mask: ndarray      # (units + 1,) where each unit's masked tokens begin
    at: ndarray              # (K,) which of `tokens` predicts the masked token
    row: ndarray             # (K,) its row
    position: ndarray        # (K,) its position in the row
    target: ndarray          # (K,) its id
    temperature: ndarray     # (K,)
    owner: ndarray           # (units,) the first row of each

    @classmethod
    def of(
        cls, rows: TokenRows, row: ndarray, position: ndarray, target: ndarray, temperature: ndarray,
        whole: ndarray | None = None,
    ) -> Units:
        """From rows and K tokens, which are returned in another order; `whole` rows (N,) are a unit with their
        owner's."""
        own = np.maximum(rows.length - 1 - rows.prompt, 0)
        most = max(1, max(SPLIT, 4 * int(rows.prompt.max())) // max(int(own.max()), 1))
        whole = np.zeros(len(own), dtype=bool) if whole is None else whole
        block, place = _blocks(rows.owner, np.where(whole, len(own), most))
        order = np.lexsort((place, block))                       # rows in the order of their spans
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        opens = np.flatnonzero(np.diff(block[order], prepend=-1))    # the first row of each block
        prompts = opens + np.arange(len(opens))                  # the span of each block's prompt
        spans = rank + block + 1                                 # the span of each row
        counts, source, begin = (np.zeros(len(order) + len(opens), dtype=np.int64) for _ in range(3))
        lead = np.full(len(counts), -1)
        counts[prompts], source[prompts] = rows.prompt[order[opens]], order[opens]
        counts[spans], source[spans], begin[spans] = own, np.arange(len(order)), rows.prompt
        lead[spans] = prompts[block]
        ends = np.cumsum(counts)
        starts = ends - counts
        inside = np.arange(ends[-1]) - np.repeat(starts, counts)
        tokens = rows.tokens[np.repeat(source, counts), np.repeat(begin, counts) + inside]

        first = position == rows.prompt[row]
        before = np.where(first, starts[prompts[block[row]]], starts[spans[row]] - rows.prompt[row]) + position - 1
        sort = np.argsort(rank[row], kind="stable")
        alone = whole[order[opens]]
        new = np.diff(starts[prompts] // UNIT, prepend=-1).astype(bool) | alone | np.append(False, alone[:-1])
        unit = np.cumsum(new) - 1                                # of each block
        firsts = np.flatnonzero(np.diff(unit, prepend=-1))
        first_mask = np.searchsorted(unit[block[row[sort]]], np.arange(len(firsts) + 1))
        return cls(
            np.append(prompts[firsts], len(counts)), counts, lead, np.ascontiguousarray(tokens), first_mask,
            before[sort], row[sort], position[sort], np.ascontiguousarray(target[sort]),
            np.ascontiguousarray(temperature[sort], dtype=np.float32), order[opens][firsts],
        )


def _owners(tokens: ndarray, prompt: ndarray, group: ndarray) -> ndarray:
    """(N,) for each row the first of its group if their prompts are equal, else the row itself."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    leader = first[inverse]
    equal = ((tokens == tokens[leader]) | (np.arange(tokens.shape[1]) >= prompt[:, None])).all(1)
    return np.where(equal & (prompt == prompt[leader]), leader, np.arange(len(tokens)))


def _blocks(owner: ndarray, most: int | ndarray) -> tuple[ndarray, ndarray]:
    """(N,) block of each row and (N,) its place in it: rows of one owner, at most `most` (of all or each) in a
    block."""
    _, first, which, count = np.unique(owner, return_index=True, return_inverse=True, return_counts=True)
    each = np.broadcast_to(most, len(owner))
    most, many = each, each[first]
    order = np.argsort(which, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    start = np.cumsum(-(-count // many)) - -(-count // many)
    return start[which] + rank // most, rank % most
