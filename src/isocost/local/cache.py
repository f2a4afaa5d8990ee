"""Keys and values of the rows in flight, and the decoder that reads and extends them.

The engine handles rows, requests and sampling; a cache handles slots, and computes logits from tokens. There are three:
in torch, for every device and dtype, over the kernel, for CPUs, and for GPUs one that replays CUDA graphs
(`isocost.local.static`). `isocost.local.caches` opens them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from torch import Tensor

from isocost.fast.columns import PaddedRows
from isocost.local import native
from isocost.local.decoder import Attend, Config, Decoder, causal
from isocost.local.native import EndIds, Tape
from isocost.local.sampling import draw, truncate
from isocost.local.sessions import Waiting
from isocost.local.weights import checksum
from isocost.types import Place
from isocost.world import Weights

TILE = 16        # rows and keys are padded to multiples of it: measured, products of 4 rows or more keep rows' bits
SMALL = 512      # multiplications of one attention product; below 400 torch takes another kernel
BLOCK = 256      # keys of one product: libraries split longer sums at positions that depend on the number of keys
PREFILL = 8192   # tokens of starts read in one pass
_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu    # with the log of the sum


class Cache(Protocol):
    """Slots 0, 1, 2, ... hold rows. A row has a start, which it was given, and its own tokens, which it wrote."""

    decoder: Decoder            # holds the weights
    bursts: bool                # `burst` is available
    chunk: int                  # ticks of a burst while requests wait for slots
    resumes: bool               # `resume` and `release` are available

    def load(self, weights: Weights) -> None: ...

    def checksum(self, weights: Weights | None = None) -> str:
        """A hash of its weights; or of others, converted as `load` would."""
        ...

    def bytes(self, tokens: int) -> int:
        """Bytes of one slot whose row has up to `tokens` tokens."""
        ...

    def read(
        self, starts: list[ndarray], counts: list[int], first: int, own: int, tapes: Sequence[Tape | None] = ()
    ) -> Tensor:
        """Read each start for its count of slots, one after the other from slot `first` on, each with room for `own`
        tokens more. Returns (starts, V) logits after each start's last token. What is read of a start that has a tape,
        and of its rows, is left on it.
        """
        ...

    def tape(self, start: ndarray, rows: int, own: int) -> Tape | None:
        """A tape for a start and its rows of up to `own` tokens; None if tapes are off or out of memory."""
        ...

    def read_again(self, starts: list[ndarray], own: list[ndarray]) -> None:
        """Read the start and own tokens of slots 0, 1, 2, ... again, with the current weights."""
        ...

    def tick(self, last: ndarray, length: ndarray) -> Tensor:
        """Read one more token in each of the first slots, whose keys are `length` many -> (slots, V) logits."""
        ...

    def truncate(self, logits: Tensor, temperature: ndarray, top_p: ndarray, top_k: ndarray) -> Tensor:
        """(N, V) logits, overwritten -> tempered, and -inf outside each row's kept set."""
        ...

    def draw(self, logits: Tensor, temperature: ndarray, u: ndarray) -> tuple[ndarray, ndarray]:
        """(N, V) logits, overwritten -> (N,) ids and their log-probs at these temperatures."""
        ...

    def burst(
        self, last: ndarray, length: ndarray, left: ndarray, of: ndarray, ends: EndIds, temperature: ndarray,
        u: ndarray, same: ndarray,
    ) -> tuple[ndarray, ndarray, ndarray]:
        """Many ticks and draws in one call; see `native.Kernel.decode`."""
        ...

    def move(self, source: ndarray, target: ndarray) -> None:
        ...

    def free(self, first: int) -> None:
        ...

    def resume(
        self, texts: list[ndarray], leads: list[int], waiting: Sequence[Waiting | None], first: int, own: int
    ) -> tuple[Tensor, list[int]]:
        """Read texts that go on after their first `leads` tokens into slots from `first` on, with room for `own` tokens
        after the lead. Returns (texts, V) logits after each, and how many tokens were computed for each.

        A lead is kept apart from what follows it, as the learner keeps prompts; equal leads are read once. What a row
        that `waiting` kept is not read again, if it has the same lead; of equal texts one after the other, only the
        first is read.
        """
        ...

    def release(self, slot: int, tokens: ndarray) -> Waiting:
        """Take a row with these tokens out of its slot, which must be closed next."""
        ...

    def recycle(self, row: Waiting) -> None:
        """Use the memory of a row that nobody continues for other rows."""
        ...


class TorchCache:
    """Starts of a group are read once and copied; rows and keys are padded so that other rows cannot change a row."""

    bursts = False
    chunk = 1
    resumes = False

    def __init__(self, config: Config, body: torch.dtype, device: torch.device):
        self.config, self.device = config, device
        self.decoder = Decoder(config, body=body, device=device).requires_grad_(False)
        for matrix in (p for block in self.decoder.layers for p in block.parameters() if p.ndim == 2):
            matrix.data = matrix.data.to(body)
        self._least_keys = _padded(-(-SMALL // (config.head_dim * (config.heads // config.kv_heads))))
        self._cache = torch.zeros(0)
        self._rooms = torch.zeros(0, dtype=torch.long)      # (slots, K) where each slot's keys begin in a layer's line
        self._views: dict[tuple[int, int], list[tuple[Tensor, Tensor, Tensor, Tensor]]] = {}

    def load(self, weights: Weights) -> None:
        with torch.no_grad():
            mine = dict(self.decoder.named_parameters())
            torch._foreach_copy_(list(mine.values()), [weights[k] for k in mine])

    def checksum(self, weights: Weights | None = None) -> str:
        mine = dict(self.decoder.named_parameters())
        return checksum(mine if weights is None else {k: w.to(mine[k].dtype) for k, w in weights.items()})

    def bytes(self, tokens: int) -> int:
        c = self.config
        return 2 * c.layers * c.kv_heads * c.head_dim * self.decoder.body.itemsize * self._keys(tokens)

    def tape(self, start: ndarray, rows: int, own: int) -> Tape | None:
        return None

    @torch.inference_mode()
    def read(
        self, starts: list[ndarray], counts: list[int], first: int, own: int, tapes: Sequence[Tape | None] = ()
    ) -> Tensor:
        self._fit(_padded(first + sum(counts)), max(map(len, starts)))
        hidden = self._read(starts, counts, first)
        filled = F.pad(hidden, (0, 0, 0, _padded(len(hidden)) - len(hidden)))
        return self.decoder.logits(filled)[: len(starts)]

    @torch.inference_mode()
    def read_again(self, starts: list[ndarray], own: list[ndarray]) -> None:
        contexts = [np.concatenate(x) for x in zip(starts, own, strict=True)]
        order = np.argsort([_padded(len(x)) for x in contexts], kind="stable")
        self._read([contexts[i] for i in order], [1] * len(order), 0)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        self._cache[:, :, : len(order)] = self._cache[:, :, self._to(back)]

    @torch.inference_mode()
    def tick(self, last: ndarray, length: ndarray) -> Tensor:
        live, rows = len(last), _padded(len(last))
        last, length = (np.concatenate((x, np.zeros(rows - live, dtype=np.int64))) for x in (last, length))
        keys = self._keys(int(length.max()) + 1)
        self._fit(rows, keys)
        where = self._to(length)
        hidden = self.decoder.run(self._to(last), self.decoder.turns[where], self._looking(where, rows, keys))
        return self.decoder.logits(hidden)[:live]

    @torch.inference_mode()
    def truncate(self, logits: Tensor, temperature: ndarray, top_p: ndarray, top_k: ndarray) -> Tensor:
        return truncate(logits / self._to(temperature)[:, None], self._to(top_p), self._to(top_k))

    @torch.inference_mode()
    def draw(self, logits: Tensor, temperature: ndarray, u: ndarray) -> tuple[ndarray, ndarray]:
        if (temperature != 1.0).any():
            logits = logits / self._to(temperature)[:, None]
        distribution = F.log_softmax(logits, -1)
        drawn = draw(distribution, self._to(u))
        logp = distribution.gather(-1, drawn.clamp(max=self.config.vocab - 1)[:, None])[:, 0]
        return drawn.cpu().numpy(), logp.cpu().numpy()

    def burst(
        self, last: ndarray, length: ndarray, left: ndarray, of: ndarray, ends: EndIds, temperature: ndarray,
        u: ndarray, same: ndarray,
    ) -> tuple[ndarray, ndarray, ndarray]:
        raise NotImplementedError("torch decodes tick by tick")

    @torch.inference_mode()
    def move(self, source: ndarray, target: ndarray) -> None:
        self._cache[:, :, self._to(target)] = self._cache[:, :, self._to(source)]

    def free(self, first: int) -> None:
        """The memory is kept for later rows."""

    def resume(self, *args: object) -> tuple[Tensor, list[int]]:
        raise NotImplementedError("torch reads a text as a whole")

    def release(self, slot: int, tokens: ndarray) -> Waiting:
        raise NotImplementedError("torch keeps no rows between turns")

    def recycle(self, row: Waiting) -> None:
        raise NotImplementedError("torch keeps no rows between turns")

    # inside ---------------------------------------------------------------------------------------------------

    def _keys(self, tokens: int) -> int:
        """Keys for this many tokens: whole blocks, and the rest padded to a tile, so that shapes repeat."""
        whole, rest = divmod(tokens, BLOCK)
        return whole * BLOCK + (min(max(_padded(rest), self._least_keys), BLOCK) if rest else 0)

    def _looking(self, where: Tensor, rows: int, keys: int) -> Callable[[int], Attend]:
        """Attention of one new token per row on the cache: (rows, H, D). Keys beyond a row's own are masked."""
        c, dim = self.config, self.config.head_dim
        views, grouped = self._views_of(rows, keys), c.heads // c.kv_heads
        spot = (self._rooms[:rows] + where[:, None]).view(-1)
        hidden = torch.arange(keys, device=self.device) > where[:, None]
        bias = torch.zeros(rows, keys, device=self.device, dtype=self.decoder.body).masked_fill_(hidden, -torch.inf)
        bias = bias[:, None, None].expand(rows, c.kv_heads, grouped, keys)
        plain = self.decoder.body != torch.bfloat16    # there is no fast kernel for one query in float32
        if plain:
            bias = bias.reshape(-1, grouped, keys)
        holds = where[:, None, None] >= torch.arange(0, keys, BLOCK, device=self.device)

        def at(layer: int) -> Attend:
            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                line_k, line_v, past_k, past_v = views[layer]
                line_k.index_copy_(0, spot, k.reshape(-1, dim))
                line_v.index_copy_(0, spot, v.reshape(-1, dim))
                if plain:
                    scores = torch.baddbmm(bias, q.reshape(-1, grouped, dim), past_k.transpose(1, 2), alpha=dim**-0.5)
                    return _weighted(scores.softmax(-1), past_v).view(rows, c.heads, dim)
                q, shape = q.reshape(rows, c.kv_heads, grouped, dim), (rows, c.kv_heads, keys, dim)
                return _attended(q, past_k.view(shape), past_v.view(shape), bias, holds).reshape(rows, c.heads, dim)

            return attend

        return at

    def _views_of(self, rows: int, keys: int) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Per layer, the cache of keys and of values: as one line of tokens, and of these rows, (rows K, keys, D)."""
        if (rows, keys) not in self._views:
            D = self.config.head_dim
            self._views[rows, keys] = [
                (k.view(-1, D), v.view(-1, D), k[:rows, :, :keys].flatten(0, 1), v[:rows, :, :keys].flatten(0, 1))
                for k, v in self._cache
            ]
        return self._views[rows, keys]

    def _read(self, contexts: list[ndarray], counts: list[int], first: int) -> Tensor:
        """Read contexts, sorted by padded length, into their counts of slots; returns the last hidden state of each."""
        hidden, begin = [], 0
        while begin < len(contexts):
            T = _padded(len(contexts[begin]))
            end = begin + 1
            while end < len(contexts) and _padded(len(contexts[end])) == T and (end - begin + 1) * T <= PREFILL:
                end += 1
            hidden.append(self._read_block(T, contexts[begin:end], counts[begin:end], first))
            first, begin = first + sum(counts[begin:end]), end
        return torch.cat(hidden)

    def _read_block(self, T: int, contexts: list[ndarray], counts: list[int], first: int) -> Tensor:
        tokens = np.zeros((len(contexts), T), dtype=np.int64)
        for row, context in zip(tokens, contexts, strict=True):
            row[: len(context)] = context
        source, last = self._to(np.repeat(np.arange(len(counts)), counts)), first + sum(counts)

        def at(layer: int) -> Attend:
            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                for cache, new in zip(self._cache[layer], (k, v), strict=True):
                    cache[first:last, :, :T] = new.transpose(1, 2).contiguous().index_select(0, source)
                return causal(q, k, v)

            return attend

        hidden = self.decoder.run(self._to(tokens), self.decoder.turns[:T], at)
        ends = self._to(np.array([len(c) - 1 for c in contexts]))
        return hidden[torch.arange(len(contexts), device=self.device), ends]

    def _fit(self, slots: int, keys: int) -> None:
        """Allocate slots and keys; existing ones stay."""
        c, old = self.config, self._cache
        has_slots, has_keys = (old.shape[2], old.shape[4]) if old.ndim == 6 else (0, 0)
        slots, keys = max(slots, has_slots), self._keys(keys)
        if slots == has_slots and keys <= has_keys:
            return
        room = max(keys, has_keys) if keys <= has_keys else min(max(keys, 2 * has_keys), self._keys(c.max_len))
        self._cache = torch.zeros(
            (c.layers, 2, slots, c.kv_heads, room, c.head_dim), device=self.device, dtype=self.decoder.body
        )
        if old.ndim == 6:
            self._cache[:, :, :has_slots, :, :has_keys] = old
        row, head = (torch.arange(n, device=self.device) for n in (slots, c.kv_heads))
        self._rooms = (row[:, None] * c.kv_heads + head) * room
        self._views = {}

    def _to(self, x: ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(x))
        return tensor if self.device.type == "cpu" else tensor.to(self.device)


class StartMemory:
    """The keys and values of a start, in separate memory or on a tape."""

    def __init__(self, start: ndarray, kept: Tensor | Tape):
        self.start, self.kept = start, kept
        self.memory = int(kept.where[0]) if isinstance(kept, Tape) else kept.data_ptr()
        self.tape = kept.pointer if isinstance(kept, Tape) else 0


NOWHERE = StartMemory(np.zeros(0, dtype=np.int64), torch.zeros(0))


class NativeCache:
    """A start's keys are kept once for all its rows; a slot points to them and to its own memory."""

    bursts = True
    chunk = 1
    resumes = True

    def __init__(self, config: Config, body: torch.dtype, threads: int, tape_bytes: int):
        self.config = config
        self.decoder = Decoder(config).requires_grad_(False)
        self.flat = native.flatten(self.decoder)
        self._mine = dict(self.decoder.named_parameters())
        self._loaded: tuple[native.Flat, int] | None = None      # the weights in use, and their version
        self.kernel = native.Kernel(self.decoder, body, threads)
        self._own_room = 0
        self.tape_bytes = tape_bytes
        self._taped: WeakKeyDictionary[Tape | native.WaveTapes, int] = WeakKeyDictionary()   # in use, and their memory
        self._tape_token = self.kernel.tape_bytes(1)
        self._memory: list[Tensor] = []                          # per slot, for its own tokens if it has no tape
        self._spare: list[Tensor] = []                           # memory for own tokens that no slot uses now
        self._homes: list[StartMemory] = []                             # per slot, of its start
        self._spans = np.zeros((0, native.SPAN), dtype=np.int64)

    def load(self, weights: Weights) -> None:
        if isinstance(weights, native.Flat) and weights.flat.shape == self.flat.shape:
            self.flat.copy_(weights.flat)
            self._loaded = weights, weights.version
        else:
            with torch.no_grad():
                torch._foreach_copy_(list(self._mine.values()), [weights[k] for k in self._mine])
            self._loaded = None
        self.kernel.load(self.flat)

    def holds(self, weights: native.Flat) -> bool:
        """Whether these are the weights in use."""
        if self._loaded is not None and self._loaded[0] is weights and self._loaded[1] == weights.version:
            return True
        return torch.equal(self.flat, weights.flat)

    def checksum(self, weights: Weights | None = None) -> str:
        return checksum(dict(self.decoder.named_parameters()) if weights is None else weights)

    def bytes(self, tokens: int) -> int:
        return self.kernel.memory(tokens) * self.kernel.dtype.itemsize

    def read(
        self, starts: list[ndarray], counts: list[int], first: int, own: int, tapes: Sequence[Tape | None] = ()
    ) -> Tensor:
        self._fit(first + sum(counts), own)
        homes: list[StartMemory] = []
        slot = first
        for start, count, tape in zip(starts, counts, tapes or (None,) * len(starts), strict=True):
            home = StartMemory(start, tape or torch.empty(self.kernel.memory(len(start)), dtype=self.kernel.dtype))
            here = self._spans[slot : slot + count]
            here[:, 4:7] = home.memory, len(start), self.kernel.room(len(start))
            here[:, 7:] = 0
            if tape is None:
                here[:, 2] = [x.data_ptr() for x in self._memory[slot : slot + count]]
                here[:, 3] = self._own_room
            else:
                here[:, 2], here[:, 3] = tape.where[1:], self.kernel.room(tape.own)
                here[:, 7], here[:, 8] = tape.pointer, len(start) + tape.own * np.arange(count)
            self._homes[slot : slot + count] = [home] * count
            homes.append(home)
            slot += count
        return self.kernel.logits(self._read_homes(homes))

    def tape(self, start: ndarray, rows: int, own: int) -> Tape | None:
        new = self.kernel.tape_bytes(len(start) + rows * own)
        if sum(self._taped.values()) + new > self.tape_bytes:
            return None
        tape = Tape(self.kernel, start, rows, own)
        self._taped[tape] = new
        return tape

    def wave(
        self, prompts: Sequence[Sequence[int]], attempts: Sequence[Sequence[int]], limits: list[int],
        places: Sequence[Place], temperature: float, ends: ndarray,
    ) -> tuple[ndarray, ndarray, ndarray, ndarray, native.WaveTapes, PaddedRows] | None:
        """Answers to prompts, each group on a tape: see `native.Kernel.wave`. None if the tapes do not fit."""
        size = sum(
            self._tape_token * (len(p) + len(a) * max(k - 1, 1))
            for p, a, k in zip(prompts, attempts, limits, strict=True)
        )
        if sum(self._taped.values()) + size > self.tape_bytes:
            return None
        out = self.kernel.wave(prompts, attempts, limits, places, temperature, ends)
        self._taped[out[4]] = size
        return out

    def read_again(self, starts: list[ndarray], own: list[ndarray]) -> None:
        homes = self._homes[: len(own)]
        self._read_homes(list({id(home): home for home in homes}.values()))
        own = [np.concatenate((x[len(h.start) :], more)) for x, h, more in zip(starts, homes, own, strict=True)]
        spans = self._spans[: len(own)].copy()
        spans[:, 0] = [len(x) for x in own]
        some = spans[:, 0] > 0
        if some.any():
            self.kernel.read(np.ascontiguousarray(spans[some]), np.concatenate(own))

    def tick(self, last: ndarray, length: ndarray) -> Tensor:
        spans = self._here(length)
        spans[:, 0] = 1
        return self.kernel.logits(self.kernel.read(spans, np.ascontiguousarray(last)))

    def truncate(self, logits: Tensor, temperature: ndarray, top_p: ndarray, top_k: ndarray) -> Tensor:
        return self.kernel.truncate(logits.contiguous(), *map(np.ascontiguousarray, (temperature, top_p, top_k)))

    def draw(self, logits: Tensor, temperature: ndarray, u: ndarray) -> tuple[ndarray, ndarray]:
        return self.kernel.draw(logits.contiguous(), np.ascontiguousarray(temperature), np.ascontiguousarray(u))

    def burst(
        self, last: ndarray, length: ndarray, left: ndarray, of: ndarray, ends: EndIds, temperature: ndarray,
        u: ndarray, same: ndarray,
    ) -> tuple[ndarray, ndarray, ndarray]:
        return self.kernel.decode(self._here(length), last, left, of, ends, temperature, u, same)

    def move(self, source: ndarray, target: ndarray) -> None:
        for a, b in zip(source.tolist(), target.tolist(), strict=True):
            self._homes[b] = self._homes[a]
            self._memory[a], self._memory[b] = self._memory[b], self._memory[a]
        self._spans[np.concatenate((target, source))] = self._spans[np.concatenate((source, target))]

    def free(self, first: int) -> None:
        self._homes[first:] = [NOWHERE] * (len(self._homes) - first)

    def resume(
        self, texts: list[ndarray], leads: list[int], waiting: Sequence[Waiting | None], first: int, own: int
    ) -> tuple[Tensor, list[int]]:
        count = len(texts)
        # a row with another lead has its tokens elsewhere: words that it wrote may have been given again as a hint
        waiting = [
            row if row is not None and len(row.home.start) == lead else None
            for row, lead in zip(waiting, leads, strict=True)
        ]
        self._fit(first + count, own if own <= self._own_room else max(own, 2 * self._own_room))
        homes, new, read = dict[bytes, StartMemory](), list[StartMemory](), [0] * count
        if None in waiting:
            homes = {row.home.start.tobytes(): row.home for row in waiting if row is not None}
        spans, tokens, of = list[tuple[int, ...]](), list[ndarray](), np.zeros(count, dtype=np.int64)
        rows, copies, read_into = list[tuple[int, ...]](), list[tuple[int, ...]](), 0
        for i, (text, lead, row) in enumerate(zip(texts, leads, waiting, strict=True)):
            slot, done = first + i, 0
            if row is None:
                name = text[:lead].tobytes()
                if name not in homes:
                    memory = torch.empty(self.kernel.memory(lead), dtype=self.kernel.dtype)
                    homes[name] = StartMemory(text[:lead], memory)
                    new.append(homes[name])
                    read[i] += lead
                home = homes[name]
            else:
                home, done = row.home, len(row.tokens) - lead
                self._spare.append(self._memory[slot])
                self._memory[slot] = row.own if row.room == self._own_room else self._grown(row.own, row.room)
            self._homes[slot] = home
            where = self._memory[slot].data_ptr(), self._own_room, home.memory, lead, self.kernel.room(lead), 0, 0
            rows.append((0, 0, *where))
            if i and row is None and text is texts[i - 1]:
                of[i] = of[i - 1]
                copies.append((read_into, where[0], len(text) - lead))
                continue
            read_into = where[0]
            of[i] = len(spans)
            spans.append((len(text) - lead - done, done, *where))
            tokens.append(text[lead + done :])
            read[i] += len(tokens[-1])
        self._spans[first : first + count] = rows
        if new:
            self._read_homes(new)
        hidden = self.kernel.read(np.array(spans), np.concatenate(tokens))
        if copies:
            self.kernel.copy(np.array(copies), self._own_room)
        return self.kernel.logits(hidden).index_select(0, torch.from_numpy(of)), read

    def release(self, slot: int, tokens: ndarray) -> Waiting:
        row = Waiting(tokens, self._homes[slot], self._memory[slot], self._own_room)
        self._memory[slot] = self._spare.pop() if self._spare else self._new_memory()
        self._spans[slot, 2] = self._memory[slot].data_ptr()
        return row

    def recycle(self, row: Waiting) -> None:
        if row.room == self._own_room:
            self._spare.append(row.own)

    # inside ---------------------------------------------------------------------------------------------------

    def _here(self, length: ndarray) -> ndarray:
        spans = self._spans[: len(length)].copy()
        spans[:, 1] = length - spans[:, 5]
        return spans

    def _read_homes(self, homes: Sequence[StartMemory]) -> Tensor:
        room = self.kernel.room
        spans = [(len(h.start), 0, h.memory, room(len(h.start)), 0, 0, 0, h.tape, 0) for h in homes]
        return self.kernel.read(np.array(spans, dtype=np.int64), np.concatenate([h.start for h in homes]))

    def _fit(self, slots: int, own: int) -> None:
        """Allocate slots and own tokens; existing ones stay."""
        room = self.kernel.room(own)
        if room > self._own_room:
            before, self._own_room = self._own_room, room
            self._spare.clear()
            self._memory = [self._grown(x, before) for x in self._memory]
            plain = self._spans[:, 7] == 0
            self._spans[plain, 2] = np.array([x.data_ptr() for x in self._memory], dtype=np.int64)[plain]
            self._spans[plain, 3] = room
        while len(self._memory) < slots:
            self._memory.append(self._new_memory())
            self._homes.append(NOWHERE)
        new = np.zeros((len(self._memory) - len(self._spans), native.SPAN), dtype=np.int64)
        self._spans = np.concatenate((self._spans, new))

    def _new_memory(self) -> Tensor:
        return torch.empty(self.kernel.memory(self._own_room), dtype=self.kernel.dtype)

    def _grown(self, memory: Tensor, old: int) -> Tensor:
        """The same keys and values of `old` tokens with more room: per layer and head, keys in blocks, then values."""
        c = self.config
        new = self._new_memory()
        shape = (c.layers * c.kv_heads, 2, -1)
        new.view(shape)[:, :, : old * c.head_dim] = memory.view(shape)
        return new


def _weighted(p: Tensor, v: Tensor) -> Tensor:
    """(N, G, keys) weights of (N, keys, D) values -> (N, G, D): by blocks, so that zeros at the end add nothing."""
    out = torch.bmm(p[..., :BLOCK], v[:, :BLOCK])
    for at in range(BLOCK, v.shape[1], BLOCK):
        out = torch.baddbmm(out, p[..., at : at + BLOCK], v[:, at : at + BLOCK])
    return out


def _attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, holds: Tensor) -> Tensor:
    """Attention of (N, K, G, D) on (N, K, keys, D) in bfloat16 with a bias of (N, K, G, keys), by blocks that it
    `holds`."""
    if k.shape[2] <= BLOCK or k.device.type != "cpu":
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)

    def block(at: int) -> tuple[Tensor, Tensor]:
        here = slice(at, at + BLOCK)
        out, log_sum = _FLASH(q, k[:, :, here], v[:, :, here], attn_mask=bias[..., here])
        return out.float(), log_sum.where(holds[..., at // BLOCK, None], -torch.inf)

    out, log_sum = block(0)
    for at in range(BLOCK, k.shape[2], BLOCK):
        (more, log_more), before = block(at), log_sum
        log_sum = torch.logaddexp(before, log_more)
        out = out * (before - log_sum).exp()[..., None] + more * (log_more - log_sum).exp()[..., None]
    return out.to(q.dtype)


def _padded(length: int) -> int:
    return -(-length // TILE) * TILE
