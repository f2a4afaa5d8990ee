"""Writes tokens: whoever waits is decoded together, one token per row and tick.

A rollout's bytes depend on nothing else in flight. Rows stand in slots padded to a multiple of `TILE`, for smaller
matrix products take another kernel with other roundings; keys are padded to a multiple of `TILE` and starts are read
with starts of their own padded length; random numbers are addressed, not drawn. Memory is bounded by `cache_bytes`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy import ndarray
from torch import Tensor

from isocost import chance
from isocost.errors import UserError
from isocost.local.decoder import Attend, Config, Decoder, causal
from isocost.local.sampling import check, draw, truncate
from isocost.local.weights import checksum
from isocost.meter import Meter, payer
from isocost.types import Cost, Place, Role, Said, Sampling, Segment, Stop
from isocost.world import Text, Weights

TILE = 16        # rows and keys come in multiples of it: measured, products of 4 rows and more keep their rows' bits
SMALL = 512      # multiplications of one attention product; below 400 torch takes another kernel
WINDOW = 32      # positions whose random numbers are made at a time
PREFILL = 8192   # tokens of starts read at a time


@dataclass(eq=False)
class Request:
    """One call of `generate`: its attempts are rows in slots, or still wait for one."""

    tokens: ndarray             # (T,) the start
    sampling: Sampling
    attempts: Sequence[int]
    place: Place
    turn: int
    limit: int                  # tokens it may write
    stop: tuple[str, ...]
    tail: list[int]             # what the policy had already written of this turn
    future: asyncio.Future[None]
    said: list[Said | None]
    begun: int = 0              # attempts that got a slot
    ended: int = 0
    decoded: int = 0
    read: int = 0               # tokens of prefill that the machine did
    seconds: float = 0.0


@dataclass(eq=False)
class Slots:
    """Rows being written, one per attempt; the first `live` of them, without holes."""

    size: int
    width: int                                              # tokens a row may write
    live: int = 0
    owner: list[tuple[Request, int]] = field(default_factory=list)   # request, and which of its attempts

    def __post_init__(self) -> None:
        n = self.size
        self.length = np.zeros(n, dtype=np.int64)           # tokens whose keys are in the cache
        self.wrote = np.zeros(n, dtype=np.int64)            # tokens written in this call
        self.limit = np.zeros(n, dtype=np.int64)
        self.offset = np.zeros(n, dtype=np.int64)           # the turn's position of token 0, less the window's start
        self.last = np.zeros(n, dtype=np.int64)
        self.since = np.zeros(n, dtype=np.float64)          # the engine's shared clock when the row began
        self.temperature = np.ones(n, dtype=np.float32)
        self.top_p = np.ones(n, dtype=np.float32)
        self.top_k = np.zeros(n, dtype=np.int64)
        self.heeds = np.zeros(n, dtype=bool)                # has stop strings
        self.u = np.zeros((n, WINDOW + 4), dtype=np.float64)
        self.tokens = np.zeros((n, self.width), dtype=np.int64)
        self.logp = np.zeros((n, self.width), dtype=np.float32)
        self.version = np.zeros((n, self.width), dtype=np.int64)

    def arrays(self) -> dict[str, ndarray]:
        return {k: v for k, v in vars(self).items() if isinstance(v, ndarray)}

    def grown(self, size: int, width: int) -> Slots:
        """The same rows with room for more."""
        out = Slots(size, width, self.live, self.owner)
        for name, new in out.arrays().items():
            old = getattr(self, name)
            new[tuple(slice(k) for k in old.shape)] = old
        return out

    def move(self, source: ndarray, target: ndarray) -> None:
        for array in self.arrays().values():
            array[target] = array[source]
        moved = [self.owner[a] for a in source.tolist()]
        for b, row in zip(target.tolist(), moved, strict=True):
            self.owner[b] = row


class LocalEngine:
    """`isocost.world.Engine` on one device. Start it from within an event loop; it decodes while somebody waits."""

    def __init__(
        self, config: Config, text: Text, meter: Meter, *, device: torch.device, body: torch.dtype = torch.float32,
        max_slots: int = 512, cache_bytes: int = 2**30,
    ):
        self.config, self.text, self.meter, self.device = config, text, meter, device
        self.version, self.max_slots, self.cache_bytes = 0, max_slots, cache_bytes
        self.decoder = Decoder(config, body=body, device=device).requires_grad_(False)
        for matrix in (p for block in self.decoder.layers for p in block.parameters() if p.ndim == 2):
            matrix.data = matrix.data.to(body)
        small = -(-SMALL // (config.head_dim * (config.heads // config.kv_heads)))
        self._least_keys = _padded(small)
        self._is_end = np.zeros(config.vocab, dtype=bool)
        self._is_end[list(text.ends)] = True
        self._waiting: deque[Request] = deque()
        self._slots = Slots(0, 0)
        self._cache = torch.zeros(0)
        self._rooms = torch.zeros(0, dtype=torch.long)      # (slots, K) where each slot's keys begin in a layer's line
        self._views: dict[tuple[int, int], list[tuple[Tensor, Tensor, Tensor, Tensor]]] = {}
        self._kept: dict[tuple[Request, int], list[ndarray]] = {}
        self._clock = 0.0            # seconds, each tick's shared out over its rows
        self._driver: asyncio.Task[None] | None = None

    # what others call -----------------------------------------------------------------------------------------

    async def generate(
        self,
        start: Segment,
        attempts: Sequence[int],
        *,
        place: Place,
        turn: int,
        max_tokens: int,
        stop: Sequence[str] = (),
    ) -> list[Said]:
        """Continue a start once per attempt, by at most `max_tokens` each; see `isocost.world.Engine`.

        Charges 1 rollout per attempt unless the start holds OWN tokens or a turn has gone before, the start's tokens
        per attempt (again at each turn: earlier turns' keys are not kept), and the tokens written. A row that fills
        the model's context stops with LENGTH. Raises UserError when the prompt leaves no room for an answer.
        """
        request = self._request(start, attempts, place, turn, max_tokens, tuple(stop))
        if not attempts or request.limit < 1:
            return [_nothing() for _ in attempts]
        who, first = payer(), turn == 0 and not bool(start.own.any())
        self._waiting.append(request)
        if self._driver is None or self._driver.done():
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        try:
            await request.future
        finally:
            if request.ended < len(attempts):
                self._drop(request)
            cost = Cost(
                rollouts=request.begun if first else 0, prefill=len(request.tokens) * request.begun,
                decode=request.decoded, seconds=request.seconds,
            )
            physical = Cost(cost.rollouts, request.read, request.decoded, seconds=request.seconds)
            if request.begun:
                self.meter.charge(cost, physical, to=who)
        return [s for s in request.said if s is not None]

    async def load(self, weights: Weights) -> None:
        """Copy these weights; `version` grows by one. What was read under the old ones is read again."""
        self.restore(weights, self.version + 1)

    def restore(self, weights: Weights, version: int) -> None:
        """Take these weights as those of `version`."""
        with torch.no_grad():
            mine = dict(self.decoder.named_parameters())
            if mine.keys() != weights.keys():
                raise ValueError(f"weights do not fit: {sorted(mine.keys() ^ weights.keys())}")
            torch._foreach_copy_(list(mine.values()), [weights[k] for k in mine])
        self.version = version
        if self._slots.live:
            self._read_again()

    def checksum(self, weights: Weights | None = None) -> str:
        """A hash of the weights it writes with; or of others, as it would hold them."""
        mine = dict(self.decoder.named_parameters())
        return checksum(mine if weights is None else {k: w.to(mine[k].dtype) for k, w in weights.items()})

    # in and out -----------------------------------------------------------------------------------------------

    def _request(
        self, start: Segment, attempts: Sequence[int], place: Place, turn: int, max_tokens: int, stop: tuple[str, ...]
    ) -> Request:
        check(start.sampling)
        room = self.config.max_len - len(start)
        if not len(start):
            raise UserError("an empty prompt: the policy needs at least one token to continue")
        if room < 1 and turn == 0 and not start.own.any():
            raise UserError(f"the prompt has {len(start)} tokens; the model's context is {self.config.max_len}")
        ours = (start.role == Role.OWN) & (start.turn == turn)
        home: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return Request(
            start.tokens, start.sampling, attempts, place, turn, min(max_tokens, room), stop,
            start.tokens[ours].tolist(), home, [None] * len(attempts),
        )

    async def _drive(self) -> None:
        """Decode until nobody waits. Others run between ticks, so whoever is ready joins the next one."""
        try:
            while True:
                await asyncio.sleep(0)
                if self._waiting:
                    self._admit()
                if not self._slots.live:
                    if self._waiting:
                        continue
                    return
                self._tick()
        except Exception as error:
            for request in {id(r): r for r in [*(r for r, _ in self._slots.owner), *self._waiting]}.values():
                if not request.future.done():
                    request.future.set_exception(error)
            self._waiting.clear()
            self._slots = Slots(0, 0)

    def _admit(self) -> None:
        """Give slots to as many waiting attempts as fit; attempts of one start, and equal starts, are read once."""
        s, new = self._slots, list[tuple[Request, int]]()
        longest = int((s.length + s.limit - s.wrote)[: s.live].max(initial=0))
        while self._waiting:
            request = self._waiting[0]
            longest = max(longest, len(request.tokens) + request.limit)
            room = self._room(longest, s.live + len(new))
            chosen = range(request.begun, min(len(request.attempts), request.begun + room))
            new += [(request, i) for i in chosen]
            request.begun += len(chosen)
            if request.begun < len(request.attempts):
                break
            self._waiting.popleft()
        if new:
            self._begin(new)

    def _room(self, longest: int, busy: int) -> int:
        """Slots left for rows of up to `longest` tokens; one is always found when nothing else is in flight."""
        c = self.config
        each = 2 * c.layers * c.kv_heads * c.head_dim * self.decoder.body.itemsize * self._keys(longest)
        return max(min(self.max_slots, self.cache_bytes // each) - busy, 1 if busy == 0 else 0)

    @torch.inference_mode()
    def _begin(self, new: list[tuple[Request, int]]) -> None:
        """Read the new rows' starts and write the first token of each."""
        began = time.perf_counter()
        starts: dict[bytes, list[tuple[Request, int]]] = {}
        for request, attempt in sorted(new, key=lambda row: _padded(len(row[0].tokens))):
            starts.setdefault(request.tokens.tobytes(), []).append((request, attempt))
        firsts, counts = [rows[0][0] for rows in starts.values()], [len(rows) for rows in starts.values()]
        first = self._open([row for rows in starts.values() for row in rows])
        hidden = self._read([r.tokens for r in firsts], counts, first)
        for request in firsts:
            request.read += len(request.tokens)
        which = self._to(np.repeat(np.arange(len(counts)), counts))
        logits = self.decoder.logits(_filled(hidden)).index_select(0, which)
        share = (time.perf_counter() - began) / len(new)
        for request, _ in new:
            request.seconds += share
        self._write(logits, first)

    def _open(self, new: list[tuple[Request, int]]) -> int:
        """Put rows into the next slots; returns the first."""
        first, count = self._slots.live, len(new)
        self._fit(_padded(first + count), max(r.limit for r, _ in new), max(len(r.tokens) for r, _ in new))
        s, rows = self._slots, np.arange(first, first + count)
        s.live, s.owner = first + count, s.owner[:first] + new
        requests = [r for r, _ in new]
        s.length[rows] = [len(r.tokens) for r in requests]
        s.limit[rows] = [r.limit for r in requests]
        s.wrote[rows] = 0
        s.since[rows] = self._clock
        s.temperature[rows] = [r.sampling.temperature for r in requests]
        s.top_p[rows] = [r.sampling.top_p for r in requests]
        s.top_k[rows] = [r.sampling.top_k for r in requests]
        s.heeds[rows] = [bool(r.stop) for r in requests]
        self._draws(rows)
        return first

    def _finish(self, done: ndarray, stopped: ndarray) -> None:
        """Send rows home, close the holes they leave, and wake whoever has all attempts back."""
        s = self._slots
        tokens, logp, version = s.tokens[done], s.logp[done], s.version[done]
        waited = (self._clock - s.since[done]).tolist()
        each = zip(done.tolist(), s.wrote[done].tolist(), stopped.tolist(), waited, strict=True)
        for row, (slot, k, stop, seconds) in enumerate(each):
            request, attempt = s.owner[slot]
            kept = tuple(self._kept.pop((request, attempt), ()))
            request.said[attempt] = Said(
                tokens[row, :k], logp[row, :k], version[row, :k], Stop.DONE if stop else Stop.LENGTH, kept
            )
            request.ended += 1
            request.decoded += k
            request.seconds += seconds
            if request.ended == len(request.attempts) and not request.future.done():
                request.future.set_result(None)
        self._close(done)

    def _close(self, done: ndarray) -> None:
        s, left = self._slots, self._slots.live - len(done)
        if left:
            gone = np.zeros(s.live, dtype=bool)
            gone[done] = True
            holes, movers = np.flatnonzero(gone[:left]), left + np.flatnonzero(~gone[left:])
            if len(holes):
                with torch.inference_mode():
                    source, target = (torch.from_numpy(x).to(self.device) for x in (movers, holes))
                    self._cache[:, :, target] = self._cache[:, :, source]
                s.move(movers, holes)
        s.live = left
        del s.owner[left:]

    def _drop(self, request: Request) -> None:
        """Take a cancelled request's rows off; what they had written is added to its bill."""
        if request in self._waiting:
            self._waiting.remove(request)
        rows = np.array([i for i, (r, _) in enumerate(self._slots.owner) if r is request], dtype=np.int64)
        if len(rows):
            request.decoded += int(self._slots.wrote[rows].sum())
            request.seconds += float((self._clock - self._slots.since[rows]).sum())
            for i in rows.tolist():
                self._kept.pop(self._slots.owner[i], None)
            self._close(rows)

    # one token ------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def _tick(self) -> None:
        """Read every row's last token, write its next."""
        began, s = time.perf_counter(), self._slots
        live, rows = s.live, _padded(s.live)
        if s.wrote[:live].max() >= s.width or rows > s.size:
            raise AssertionError("a row outgrew its slot")
        length = s.length[:rows]
        length[live:] = 0
        keys = self._keys(int(length.max()) + 1)
        self._fit(s.size, s.width, keys)
        tokens, where = self._to(s.last[:rows]), self._to(length)
        hidden = self.decoder.run(tokens, self.decoder.turns[where], self._looking(where, rows, keys))
        s.length[:live] += 1
        logits = self.decoder.logits(hidden)[:live]
        if len(stale := np.flatnonzero(s.wrote[:live] + s.offset[:live] >= WINDOW)):
            self._draws(stale)
        self._clock += (time.perf_counter() - began) / live
        self._write(logits, 0)

    def _write(self, logits: Tensor, first: int) -> None:
        """Draw a token for each row from `first` on, and send home those that are done."""
        began, s = time.perf_counter(), self._slots
        last = first + len(logits)
        rows = np.arange(first, last)
        temperature, top_p, top_k = s.temperature[first:last], s.top_p[first:last], s.top_k[first:last]
        if (temperature != 1.0).any():
            logits = logits / self._to(temperature)[:, None]
        truncates = (top_p < 1.0) | (top_k > 0)
        if truncates.any():
            logits = truncate(logits, self._to(top_p), self._to(top_k))
        wrote = s.wrote[first:last]
        distribution = F.log_softmax(logits, -1)
        drawn = draw(distribution, self._to(s.u[rows, wrote + s.offset[first:last]]))
        token = drawn.cpu().numpy()
        if token.max() >= self.config.vocab:
            raise FloatingPointError(f"the policy's logits are not finite at version {self.version}")
        logp = distribution.gather(-1, drawn[:, None])[:, 0].cpu().numpy()
        if truncates.any():
            self._keep(np.flatnonzero(truncates), first, logits)
        s.last[first:last] = token
        s.tokens[rows, wrote], s.logp[rows, wrote], s.version[rows, wrote] = token, logp, self.version
        s.wrote[first:last] += 1
        stopped = self._is_end[token]
        self._heed_strings(stopped, first)
        done = np.flatnonzero(stopped | (s.wrote[first:last] >= s.limit[first:last]))
        self._clock += (time.perf_counter() - began) / s.live
        if len(done):
            self._finish(first + done, stopped[done])

    def _keep(self, rows: ndarray, first: int, logits: Tensor) -> None:
        """Record the ids each of these rows was drawn from."""
        row, ids = torch.nonzero(logits[self._to(rows)] > -torch.inf, as_tuple=True)
        cuts = np.cumsum(np.bincount(row.cpu().numpy(), minlength=len(rows)))[:-1]
        for i, kept in zip(rows.tolist(), np.split(ids.cpu().numpy(), cuts), strict=True):
            self._kept.setdefault(self._slots.owner[first + i], []).append(kept)

    def _heed_strings(self, stopped: ndarray, first: int) -> None:
        """A stop string counts once the text of the turn holds it; only the turn's end is looked at."""
        s = self._slots
        for i in np.flatnonzero(s.heeds[first : first + len(stopped)] & ~stopped).tolist():
            request, slot = s.owner[first + i][0], first + i
            reach = max(len(x.encode()) for x in request.stop) + 4
            wrote = s.tokens[slot, : s.wrote[slot]][-reach:].tolist()
            text = self.text.decode((request.tail + wrote)[-reach:])
            stopped[i] = any(x in text for x in request.stop)

    def _draws(self, rows: ndarray) -> None:
        """Random numbers for the next window of these rows, made together for all that share a key."""
        s = self._slots
        owners = [s.owner[i] for i in rows.tolist()]
        position = s.wrote[rows] + [len(r.tail) for r, _ in owners]
        block = position // 4
        count = min(WINDOW, int((s.limit[rows] - s.wrote[rows]).max()) + 3) // 4 + 1
        keys = [chance.key(r.place) for r, _ in owners]
        for key in dict.fromkeys(keys):
            some = np.array([i for i, k in enumerate(keys) if k == key])
            chosen = [owners[i] for i in some]
            wave, slot, attempt, turn = np.array(
                [(r.place.wave, r.place.slot, r.attempts[k], r.turn) for r, k in chosen], dtype=np.int64
            ).T
            s.u[rows[some], : 4 * count] = chance.blocks(key, wave, slot, attempt, turn, block[some], count)
        s.offset[rows] = position - 4 * block - s.wrote[rows]

    # keys and values ------------------------------------------------------------------------------------------

    def _keys(self, tokens: int) -> int:
        return max(_padded(tokens), self._least_keys)

    def _looking(self, where: Tensor, rows: int, keys: int) -> Callable[[int], Attend]:
        """Attention of one new token per row on the cache: (rows, H, D). Keys beyond a row's own are masked."""
        c, dim = self.config, self.config.head_dim
        views, grouped = self._views_of(rows, keys), c.heads // c.kv_heads
        spot = (self._rooms[:rows] + where[:, None]).view(-1)
        hidden = torch.arange(keys, device=self.device) > where[:, None]
        bias = torch.zeros(rows, keys, device=self.device, dtype=self.decoder.body).masked_fill_(hidden, -torch.inf)
        bias = bias[:, None, None].expand(rows, c.kv_heads, grouped, keys)
        plain = self.decoder.body != torch.bfloat16    # there is no quick kernel for one query in float32
        if plain:
            bias = bias.reshape(-1, grouped, keys)

        def at(layer: int) -> Attend:
            def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
                line_k, line_v, past_k, past_v = views[layer]
                line_k.index_copy_(0, spot, k.reshape(-1, dim))
                line_v.index_copy_(0, spot, v.reshape(-1, dim))
                if plain:
                    scores = torch.baddbmm(bias, q.reshape(-1, grouped, dim), past_k.transpose(1, 2), alpha=dim**-0.5)
                    return torch.bmm(scores.softmax(-1), past_v).view(rows, c.heads, dim)
                q, shape = q.reshape(rows, c.kv_heads, grouped, dim), (rows, c.kv_heads, keys, dim)
                seen = F.scaled_dot_product_attention(q, past_k.view(shape), past_v.view(shape), attn_mask=bias)
                return seen.reshape(rows, c.heads, dim)

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
        """Read contexts into the cache, each into its count of slots, one after the other from slot `first` on.

        Returns the last hidden state of each, (contexts, hidden). Contexts come sorted by padded length, and are read
        beside those of the same padded length only, so the shapes they meet do not depend on others.
        """
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

    @torch.inference_mode()
    def _read_again(self) -> None:
        """New weights: read everything that live rows have read or written so far."""
        s = self._slots
        order = np.argsort(-(-s.length[: s.live] // TILE), kind="stable")
        s.move(order, np.arange(s.live))
        contexts = []
        for i, (request, _) in enumerate(s.owner):
            contexts.append(np.concatenate((request.tokens, s.tokens[i, : s.wrote[i]]))[: s.length[i]])
            request.read += len(contexts[-1])
        self._read(contexts, [1] * s.live, 0)

    def _fit(self, size: int, width: int, keys: int) -> None:
        """Room for so many slots, tokens written and keys; what is there stays."""
        s, c, old = self._slots, self.config, self._cache
        if size > s.size or width > s.width:
            self._slots = s.grown(max(size, s.size), max(width, s.width))
        has_slots, has_keys = (old.shape[2], old.shape[4]) if old.ndim == 6 else (0, 0)
        size, keys = max(self._slots.size, has_slots), self._keys(keys)
        if size > has_slots or keys > has_keys:
            room = max(keys, has_keys) if keys <= has_keys else min(max(keys, 2 * has_keys), self._keys(c.max_len))
            shape = (c.layers, 2, size, c.kv_heads, room, c.head_dim)
            with torch.inference_mode():
                self._cache = torch.zeros(shape, device=self.device, dtype=self.decoder.body)
                if old.ndim == 6:
                    self._cache[:, :, :has_slots, :, :has_keys] = old
            row, head = (torch.arange(n, device=self.device) for n in (size, c.kv_heads))
            self._rooms = (row[:, None] * c.kv_heads + head) * room
            self._views = {}

    def _to(self, x: ndarray) -> Tensor:
        tensor = torch.from_numpy(np.ascontiguousarray(x))
        return tensor if self.device.type == "cpu" else tensor.to(self.device)


def _padded(n: int) -> int:
    return -(-n // TILE) * TILE


def _filled(hidden: Tensor) -> Tensor:
    """Rows up to a multiple of the tile, the last ones zero."""
    return F.pad(hidden, (0, 0, 0, _padded(len(hidden)) - len(hidden)))


def _nothing() -> Said:
    return Said(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.int64), Stop.LENGTH)
