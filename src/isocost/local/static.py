"""A cache of keys and values whose addresses and shapes repeat, so that a tick can be captured as a CUDA graph.

A tick of the decoder launches some 700 kernels in a model of 28 layers, each of which takes longer to launch than to
compute for few rows. Here a tick reads its inputs from tensors that stay where they are, for a number of rows and of
keys that is rounded up to few sizes. The first tick of each size is captured (`isocost.local.graphs`); later ones
replay it. Ticks that sample from the whole distribution draw their tokens inside the graph, which feeds them to the
next tick: the host waits once every `CHUNK` ticks. Weights are loaded in place, so graphs stay valid.

On a processor the same ticks run uncaptured.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from torch import Tensor

from isocost.local.cache import TILE, TorchCache
from isocost.local.decoder import Config, wide
from isocost.local.graphs import WARM, Capture, Work
from isocost.local.native import EndIds, Tape
from isocost.local.sampling import draw

CHUNK = 8        # ticks between two checks for requests that are complete
LEAST = 64       # keys of the smallest tick
MOST = 128       # captured ticks that are kept: those used last
log = logging.getLogger("isocost")


class Tick(NamedTuple):
    """The size of a tick: its rows and keys, and whether it draws the next tokens or gives logits."""

    rows: int
    keys: int
    draws: bool


def bucket(size: int) -> int:
    """`size` rounded up to a power of two, or from 24 on also to three quarters of one."""
    power = 1 << (size - 1).bit_length()
    return 3 * power // 4 if power >= 32 and size <= 3 * power // 4 else power


class StaticCache(TorchCache):
    """`TorchCache` with ticks that are captured. A row's memory is allocated at its start, up to its last token.

    `burst` ends with the chunk of ticks in which a request has all its rows; the rows of others have then gone on by up
    to `chunk` - 1 tokens. Memory that grows has new addresses, and all ticks are captured again; so it grows in large
    steps, within `memory` bytes unless the rows in flight need more. `captured` counts captures. Where one fails, `why`
    says so, it is logged once, and ticks are launched kernel by kernel from then on.
    """

    bursts = True

    def __init__(
        self, config: Config, body: torch.dtype, device: torch.device, capture: Capture, memory: int = 2**30
    ):
        super().__init__(config, body, device)
        self.memory, self.captured, self.why = memory, 0, ""
        self._capture, self.chunk = capture, CHUNK
        self.least_rows = 1 if device.type == "cuda" else TILE      # on a processor, fewer would change a row's bits
        self._ticks: OrderedDict[Tick, Work] = OrderedDict()
        self._reach = np.zeros(0, dtype=np.int64)           # per slot: tokens its row may have; 0 if it is free
        self._ends = torch.zeros(1, config.vocab + 1, dtype=torch.bool, device=device)
        self._ends_known = np.zeros((0, 0), dtype=bool)
        self._logits = torch.zeros(0)
        self._allocate_inputs(0)

    # what the engine calls ------------------------------------------------------------------------------------

    @torch.inference_mode()
    def read(
        self, starts: list[ndarray], counts: list[int], first: int, own: int, tapes: Sequence[Tape | None] = ()
    ) -> Tensor:
        self._reach = np.concatenate((self._reach[:first], np.repeat([len(s) + own for s in starts], counts)))
        self._reserve(first)
        hidden = self._read(starts, counts, first)
        filled = F.pad(hidden, (0, 0, 0, max(self.least_rows - len(hidden), 0)))
        return self.decoder.logits(filled)[: len(starts)]

    @torch.inference_mode()
    def tick(self, last: ndarray, length: ndarray) -> Tensor:
        live = len(last)
        if not self._logits.numel():
            self._logits = torch.zeros(
                len(self._last), self.config.vocab, device=self.device, dtype=wide(self.decoder.body)
            )
        self._put(self._last, last)
        self._put(self._length, length)
        self._sized(live, int(length.max()) + 1, draws=False)()
        return self._logits[:live]

    @torch.inference_mode()
    def burst(
        self, last: ndarray, length: ndarray, left: ndarray, of: ndarray, ends: EndIds, temperature: ndarray,
        u: ndarray, same: ndarray,
    ) -> tuple[ndarray, ndarray, ndarray]:
        (live, ticks), to_go = u.shape, np.bincount(of)
        same[:] = np.arange(live)                           # every row is read for itself
        if not np.array_equal(ends.lines, self._ends_known):
            self._ends_known = ends.lines.copy()
            if len(ends.lines) > len(self._ends):
                shape = 2 * len(ends.lines), self.config.vocab + 1
                self._ends = torch.zeros(shape, dtype=torch.bool, device=self.device)
                self._ticks.clear()                         # they hold its address
            self._put(self._ends, ends.lines)
            self._ends[:, -1] = True                        # the id V is not a token
        self._left.zero_()                                  # of the rows that only fill the bucket
        for there, here in ((self._last, last), (self._length, length), (self._left, left), (self._by, ends.by),
                            (self._temperature, temperature)):
            self._put(there, here)
        ids, logp, new, at = list[ndarray](), list[ndarray](), np.zeros(live, dtype=np.int64), 0
        going, complete = np.ones(live, dtype=bool), False
        while at < ticks and not complete:
            some = min(self.chunk, ticks - at)
            self._at.zero_()
            self._put(self._u[:, :some], u[:, at : at + some])
            tick = self._sized(live, int((length + np.minimum(at + some, left))[going].max()), draws=True)
            for _ in range(some):
                tick()
            ids.append(self._ids[:live, :some].cpu().numpy().copy())        # `.cpu()` copies from a GPU only
            logp.append(self._logp[:live, :some].cpu().numpy().copy())
            finite = (ids[-1] < self.config.vocab).all(0)
            some = some if finite.all() else int(finite.argmin()) + 1       # the caller stops at what is not finite
            wrote, stopped = _wrote(ids[-1][:, :some], ends, left - at)
            new += np.where(going, wrote, 0)
            going &= ~stopped
            at += some
            complete = not finite.all() or bool((np.bincount(of[~going], None, len(to_go)) == to_go).any())
        return np.concatenate(ids, 1), np.concatenate(logp, 1), new

    @torch.inference_mode()
    def move(self, source: ndarray, target: ndarray) -> None:
        keys = self._keys(int(self._reach[source].max()))
        rows = self._cache[:, :, self._to(source), :, :keys]
        self._cache[:, :, self._to(target), :, :keys] = rows
        self._reach[target] = self._reach[source]

    def free(self, first: int) -> None:
        self._reach = self._reach[:first]

    # inside ---------------------------------------------------------------------------------------------------

    def _keys(self, tokens: int) -> int:
        """Keys for this many tokens: a bucket, in the whole tiles that `read` fills."""
        return min(max(bucket(tokens), LEAST, self._least_keys), super()._keys(max(self.config.max_len, LEAST)))

    def _sized(self, live: int, keys: int, *, draws: bool) -> Work:
        """A tick for so many rows and keys, captured the first time."""
        size = Tick(min(max(bucket(live), self.least_rows), len(self._last)), self._keys(keys), draws)
        if size not in self._ticks:
            work = self._drawing(size) if draws else self._reading(size)
            self._ticks[size] = self._made(work)
            if len(self._ticks) > MOST:
                self._ticks.popitem(last=False)
        self._ticks.move_to_end(size)
        return self._ticks[size]

    def _made(self, work: Work) -> Work:
        """The work, captured if it can be. A capture may run it, so its inputs are put back."""
        if self.why:
            return work
        inputs = (self._last, self._length, self._left, self._at)
        before = [x.clone() for x in inputs]
        try:
            made = self._capture(work)
            self.captured += 1
        except Exception as error:      # whatever torch or a driver raises, decoding can go on without it
            self.why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
            log.warning(f"decoding without CUDA graphs, which is slower: a tick could not be captured ({self.why})")
            self._ticks.clear()
            made = work
        for x, old in zip(inputs, before, strict=True):
            x.copy_(old)
        return made

    def _reading(self, size: Tick) -> Work:
        """Read the last token of each row; leave logits."""
        rows = size.rows
        last, length, out = self._last[:rows], self._length[:rows], self._logits[:rows]
        return lambda: _copy(out, self._run(last, length, size))

    def _drawing(self, size: Tick) -> Work:
        """Read the last token of each row, draw the next, and make it the last, unless the row has ended."""
        rows, most = size.rows, self.config.vocab - 1
        last, length, left, u, at = self._last[:rows], self._length[:rows], self._left[:rows], self._u[:rows], self._at
        by, ends = self._by[:rows], self._ends
        ids, chances, temperature = self._ids[:rows], self._logp[:rows], self._temperature[:rows, None]

        def work() -> None:
            distribution = F.log_softmax(self._run(last, length, size) / temperature, -1)
            drawn = draw(distribution, u.index_select(1, at)[:, 0])
            token = drawn.clamp(max=most)
            ids.index_copy_(1, at, drawn[:, None])
            chances.index_copy_(1, at, distribution.gather(-1, token[:, None]))
            live = left > 0
            last.copy_(torch.where(live, token, last))
            length.add_(live)
            left.sub_(1).mul_(live & ~ends[by, drawn])
            at.add_(1)

        return work

    def _run(self, last: Tensor, length: Tensor, size: Tick) -> Tensor:
        look = self._looking(length, size.rows, size.keys)
        return self.decoder.logits(self.decoder.run(last, self.decoder.turns[length], look))

    def _reserve(self, kept: int) -> None:
        """Allocate memory for all rows up to their last token; the first `kept` of them are there already."""
        c, old = self.config, self._cache
        has_slots, has_keys = (old.shape[2], old.shape[4]) if old.ndim == 6 else (0, 0)
        slots, keys = max(len(self._reach), self.least_rows), self._keys(int(self._reach.max()))
        if slots <= has_slots and keys <= has_keys:
            return
        one = 2 * c.layers * c.kv_heads * c.head_dim * self.decoder.body.itemsize
        if slots * max(keys, has_keys) * one <= self.memory:
            keys = max(keys, has_keys)
        slots = max(slots, min(bucket(max(slots, has_slots)), self.memory // (keys * one)))
        self._ticks.clear()         # they hold addresses
        self._views = {}
        self._cache = torch.zeros(0)
        if not kept:                # for a large cache there may not be room for both
            old = self._cache
        self._cache = torch.zeros(
            (c.layers, 2, slots, c.kv_heads, keys, c.head_dim), device=self.device, dtype=self.decoder.body
        )
        if kept:
            both = min(keys, has_keys)
            self._cache[:, :, :kept, :, :both] = old[:, :, :kept, :, :both]
        row, head = (torch.arange(n, device=self.device) for n in (slots, c.kv_heads))
        self._rooms = (row[:, None] * c.kv_heads + head) * keys
        self._allocate_inputs(slots)

    def _allocate_inputs(self, slots: int) -> None:
        """The tensors that a tick reads and writes, one row per slot."""
        where, kind = self.device, wide(self.decoder.body)
        columns = self.chunk + WARM         # passes before a capture may go beyond a chunk
        self._last, self._length, self._left, self._by = (
            torch.zeros(slots, dtype=torch.long, device=where) for _ in range(4)
        )
        self._temperature = torch.ones(slots, dtype=torch.float32, device=where)
        self._u = torch.zeros(slots, columns, dtype=torch.float64, device=where)
        self._ids = torch.zeros(slots, columns, dtype=torch.long, device=where)
        self._logp = torch.zeros(slots, columns, dtype=kind, device=where)
        self._at = torch.zeros(1, dtype=torch.long, device=where)       # the column of `u`, `ids` and `logp`
        self._logits = torch.zeros(0, device=where, dtype=kind)         # allocated by the first tick that gives logits

    @staticmethod
    def _put(there: Tensor, here: ndarray) -> None:
        """Copy to the first rows, in place."""
        there[: len(here)].copy_(torch.from_numpy(np.ascontiguousarray(here)), non_blocking=True)


def _copy(there: Tensor, here: Tensor) -> None:
    there.copy_(here)


def _wrote(ids: ndarray, ends: EndIds, left: ndarray) -> tuple[ndarray, ndarray]:
    """How many of these ids each row wrote, with up to `left` to write, and whether it has stopped."""
    ended = ends.of(ids) | (ids >= ends.lines.shape[1] - 1)
    first = np.where(ended.any(1), ended.argmax(1) + 1, ids.shape[1] + 1)
    last = np.minimum(first, left)
    return np.minimum(last, ids.shape[1]), last <= ids.shape[1]
