"""Samples tokens: all waiting rollouts are decoded together, one token per row and tick.

On a CPU a rollout's bytes do not depend on other rollouts in flight. Each row's products are summed in the same order
in any batch: the native kernel does so by construction; for torch see `cache`, `isocost.processor` and `invariance`,
which measures it. Random numbers are addressed, not drawn in sequence. Memory is bounded by `cache_bytes`.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Sequence
from operator import add, mul

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost import chance
from isocost.errors import UserError
from isocost.fast.columns import WaveColumns, WrittenRows
from isocost.local.cache import NativeCache
from isocost.local.caches import open_cache
from isocost.local.decoder import Backend, Config
from isocost.local.native import EndIds, Kernel, Tape, WaveTapes
from isocost.local.sampling import check
from isocost.local.sessions import Sessions, Waiting
from isocost.local.slots import WINDOW, OpenCall, SlotRequest, Slots
from isocost.meter import TRAIN, Meter, payer
from isocost.types import Cost, Place, Role, Said, Sampling, Segment, Stop
from isocost.world import OnTokens, Start, Text, Weights

TAPE_BYTES = 2**29    # memory of all tapes together, at most
LINES = 64       # of a table of ids that end rows, after which those that are not in use are dropped
STREAM = 4       # ticks between two times that tokens are passed on
REACT = 4        # turns of the event loop in which callers whose tokens returned may cancel others, or request more
_OWN, _PROMPT = int(Role.OWN), int(Role.PROMPT)
_CUT, _CANCELLED = Said.nothing(Stop.LENGTH), Said.nothing(Stop.CANCELLED)


class LocalEngine:
    """`isocost.world.Engine` on one device. Start it from within an event loop; it decodes while requests wait."""

    def __init__(
        self, config: Config, text: Text, meter: Meter, backend: Backend, *, max_slots: int = 512,
        cache_bytes: int = 2**30, burst: int = WINDOW, dialogues: bool = False,
    ):
        """With `dialogues`, all rows are kept between calls (`isocost.local.sessions`), else those of a search only."""
        self.config, self.text, self.meter, self.device = config, text, meter, backend.device
        self.version, self.max_slots, self.cache_bytes = 0, max_slots, cache_bytes
        self.burst = min(burst, WINDOW)      # ticks without a check for new requests, at most
        self.cache = open_cache(config, backend, TAPE_BYTES, cache_bytes)
        self.keeps = True                    # tapes, for a learner with the same weights
        self._tapes: dict[Place, Tape] = {}  # of groups sampled entirely with the current weights, for the learner
        self._last: WaveTapes | None = None  # those of the last wave, number `_waves`
        self._waves = 0
        self._names = {name for name, _ in self.cache.decoder.named_parameters()}
        # Line 0 says what ends a turn; the others what ends the rows of callers that named more ids, by these. The last
        # id is not a token: see `_require_finite`.
        self._is_end = np.zeros((1, config.vocab + 1), dtype=bool)
        self._is_end[0, list(text.ends)] = True
        self._lines: dict[tuple[int, ...], int] = {}
        self.dialogues = dialogues
        self.sessions = Sessions(dropped=self.cache.recycle) if self.cache.resumes else None
        self._waiting: deque[SlotRequest] = deque()
        self._starting: list[tuple[SlotRequest, int]] = []      # rows that do not wait any more, while they get slots
        self._numbers = self.cache.kernel.uniforms if isinstance(self.cache, NativeCache) else chance.numbers
        self._slots, self._label, self._calls = Slots(0, 0, self._numbers), 0, 0
        self._kept: dict[tuple[SlotRequest, int], list[ndarray]] = {}
        self._driver: asyncio.Task[None] | None = None
        self._news = False                   # a request's tokens returned in the last tick
        self._halted: set[tuple[int, int, int]] = set()     # waves, by seed, number and purpose

    # what callers use -----------------------------------------------------------------------------------------

    async def generate(
        self,
        start: Segment,
        attempts: Sequence[int],
        *,
        place: Place,
        turn: int,
        max_tokens: int,
        stop: Sequence[str] = (),
        ends: Sequence[int] = (),
        on_tokens: OnTokens | None = None,
    ) -> list[Said]:
        """Continue a start once per attempt, by at most `max_tokens` each; see `isocost.world.Engine`.

        Charges the start's tokens per attempt (those read before as `reread`, too), and the tokens written. A row whose
        start or text fills the model's context stops with LENGTH. Raises UserError when the prompt alone leaves no room
        for an answer.
        """
        one = [Start(start, attempts, max_tokens)]
        (said,) = await self.generate_many(one, place=place, turn=turn, stop=stop, ends=ends, on_tokens=on_tokens)
        return said

    async def generate_many(
        self, starts: Sequence[Start], *, place: Place, turn: int, stop: Sequence[str] = (), ends: Sequence[int] = (),
        on_tokens: OnTokens | None = None,
    ) -> list[list[Said]]:
        """`generate` of each start; see `isocost.world.generate_many`."""
        self._calls, line = self._calls + 1, self._line(ends) if ends else 0
        call = OpenCall(asyncio.get_running_loop().create_future(), self._calls)
        every = [self._request(x, call, place, turn, line) for x in starts]
        halted, who = place.wave_key in self._halted, payer()
        for request in every:
            request.stop, request.on_tokens = tuple(stop), on_tokens
            if request.limit < 1:
                request.said, request.started = [_CUT] * len(request.attempts), len(request.attempts)
            elif halted:
                request.said = [_CANCELLED] * len(request.attempts)
            elif request.attempts:
                self._waiting.append(request)
                call.open += 1
        if call.open and (self._driver is None or self._driver.done()):
            self._driver = asyncio.get_running_loop().create_task(self._drive())
        known = [r.known if r.version == self.version else 0 for r in every]
        try:
            if call.open:
                await call.future
        finally:
            cost = physical = Cost()
            for request, again in zip(every, known, strict=True):
                if None in request.said:
                    self._drop(request)
                if (many := request.started) and request.limit > 0:
                    tokens, decode, seconds = len(request.tokens) * many, request.decoded, request.seconds
                    cost += Cost(prefill=tokens, decode=decode, seconds=seconds, reread=again * many)
                    physical += Cost(prefill=request.read, decode=decode, seconds=seconds)
            if started := sum(r.started for r in every):
                self.meter.charge(cost, physical, to=who, started=started)
        return [[s for s in r.said if s is not None] for r in every]

    def wave(
        self, prompts: Sequence[Sequence[int]], attempts: Sequence[Sequence[int]], *, places: Sequence[Place],
        sampling: Sampling, max_tokens: int,
    ) -> WrittenRows | None:
        """Short answers of a whole wave in one call of the kernel: see `isocost.fast.wave.WaveEngine`.

        None for other caches, for sampling that truncates, for answers longer than `burst`, if they do not fit into
        memory, while other requests are under way, where nobody learns, and from attempt `chance.ATTEMPTS` on.
        """
        check(sampling)
        if not isinstance(self.cache, NativeCache) or sampling.truncates or payer().account != TRAIN:
            return None
        read, each = [len(p) for p in prompts], [len(a) for a in attempts]
        limits = [min(max_tokens, self.config.max_len - k) for k in read]
        if self._slots.live or self._waiting or self._halted or min(limits) < 1 or not min(read):
            return None         # `generate` reports prompts that cannot be answered
        rows = sum(each)
        room = self._room(max(map(add, read, limits)), 0)
        if max(limits) > self.burst or not min(each) or rows > room or max(a[-1] for a in attempts) >= chance.ATTEMPTS:
            return None
        began = time.perf_counter()
        written = self.cache.wave(prompts, attempts, limits, places, sampling.temperature, self._is_end[0])
        if written is None:
            return None
        tokens, logp, count, ended, tapes, laid = written
        if self._last is not None:
            self._tapes |= self._last.each()
        self._last, self._waves = tapes, self._waves + 1
        seconds, decode = time.perf_counter() - began, int(np.add.reduce(count))
        self.meter.charge(
            Cost(prefill=sum(map(mul, read, each)), decode=decode, seconds=seconds),
            Cost(prefill=sum(read), decode=decode, seconds=seconds), started=rows,
        )
        if not laid.tokens.size:
            raise self._not_finite()
        return WrittenRows(tokens, logp, count, ended, self.version, self._waves, laid)

    @property
    def kernels(self) -> list[Kernel]:
        """The native kernels that compute for it."""
        return [self.cache.kernel] if isinstance(self.cache, NativeCache) else []

    @property
    def tapes(self) -> dict[Place, Tape]:
        """The tapes of groups that were sampled entirely with the current weights."""
        if self._last is not None:
            self._tapes, self._last = self._tapes | self._last.each(), None
        return self._tapes

    def tapes_of(self, wave: WaveColumns) -> WaveTapes | None:
        """Those of all groups of this wave together, if they were sampled with the current weights."""
        return self._last if wave.written.number == self._waves else None

    def halt(self, place: Place) -> None:
        """Return the unfinished rows and waiting requests of this wave as they are, and its later ones at once."""
        self._halted.add(place.wave_key)
        asked = {id(r): r for r in [*self._slots.requests(), *self._waiting]}.values()
        for request in [r for r in asked if r.place.wave_key == place.wave_key]:
            request.tapes = False            # an incomplete text is read again
            if request in self._waiting:
                self._waiting.remove(request)
            rows = self._slots.of(request)
            if not len(rows):
                request.call.complete()
            request.said = [s or _CANCELLED for s in request.said]
            request.ended = len(request.attempts) - len(rows)
            self._finish(rows, np.zeros(len(rows), dtype=bool), cut=Stop.CANCELLED)

    async def load(self, weights: Weights) -> None:
        """Copy these weights; `version` grows by one. Keys and values of the old ones are computed again."""
        self.restore(weights, self.version + 1)

    def restore(self, weights: Weights, version: int) -> None:
        """Load these weights as those of `version`."""
        if weights.keys() != self._names:
            raise ValueError(f"weights do not fit: {sorted(weights.keys() ^ self._names)}")
        self.cache.load(weights)
        self.version = version
        self._tapes, self._last = {}, None
        if self.sessions is not None:
            self.sessions.clear()
        for request in self._slots.requests():
            request.tapes = False            # started under other weights
        if self._slots.live:
            self._read_again()

    def checksum(self, weights: Weights | None = None) -> str:
        """A hash of the weights in use; or of others, converted as `load` would."""
        return self.cache.checksum(weights)

    # in and out -----------------------------------------------------------------------------------------------

    def _request(self, asked: Start, call: OpenCall, place: Place, turn: int, line: int) -> SlotRequest:
        start, attempts, max_tokens = asked
        check(start.sampling)
        room = self.config.max_len - len(start)
        if not len(start):
            raise UserError("an empty prompt: the policy needs at least one token to continue")
        (own,) = (start.role == _OWN).nonzero()
        if room < 1 and turn == 0 and not (start.role != _PROMPT).any():
            raise UserError(f"the prompt has {len(start)} tokens; the model's context is {self.config.max_len}")
        known = int(own[-1]) + 1 if len(own) else 0
        tail = start.tokens[own[start.turn[own] == turn]].tolist() if known and start.turn[known - 1] == turn else []
        keeps = self.sessions is not None and (self.dialogues or line > 0)
        return SlotRequest(
            start.tokens, start.sampling, attempts, place, turn,
            min(max_tokens, room), (), line, None, tail, call, [None] * len(attempts), keeps,
            # the learner reads those again
            self.keeps and payer().account == TRAIN and turn == 0 and not start.sampling.truncates and not keeps,
            int(own[0]) if known else len(start), known, int(start.version[known - 1]) if known else -1,
        )

    def _line(self, ends: Sequence[int]) -> int:
        """The line of the table for rows that end with these ids, too."""
        if len(self._lines) >= LINES and not self._slots.live and not self._waiting:
            self._lines, self._is_end = {}, self._is_end[:1]
        if (name := tuple(ends)) not in self._lines:
            line = self._is_end[:1].copy()
            line[0, list(name)] = True
            self._lines[name] = len(self._is_end)
            self._is_end = np.concatenate((self._is_end, line))
        return self._lines[name]

    async def _drive(self) -> None:
        """Decode until no request waits. Other tasks run between ticks, so new requests join the next one."""
        try:
            while True:
                for _ in range(REACT if self._news else 1):
                    await asyncio.sleep(0)
                self._news = False
                if self._waiting:
                    self._admit()
                if not self._slots.live:
                    if self._waiting:
                        continue
                    return
                self._advance()
        except Exception as error:      # any error goes to the callers that wait
            self._bill(range(self._slots.live))
            self._kept.clear()
            rows = [*self._slots.owner, *self._starting]
            for request in {id(r): r for r in [*(r for r, _ in rows), *self._waiting]}.values():
                if not request.call.future.done():
                    request.call.future.set_exception(error)
            self._waiting.clear()
            self._starting = []
            self._slots = Slots(0, 0, self._numbers)
            self.cache.free(0)

    def _admit(self) -> None:
        """Give slots to as many waiting attempts as fit; attempts of one start, and equal starts, are read once."""
        s, new = self._slots, list[tuple[SlotRequest, int]]()
        longest = int((s.length + s.limit - s.wrote)[: s.live].max(initial=0))
        while self._waiting:
            request = self._waiting[0]
            longest = max(longest, len(request.tokens) + request.limit)
            room = self._room(longest, s.live + len(new))
            chosen = range(request.started, min(len(request.attempts), request.started + room))
            new += [(request, i) for i in chosen]
            request.started += len(chosen)
            if request.started < len(request.attempts):
                break
            self._waiting.popleft()
        if new:
            self._starting = new
            self._begin(new)
            self._starting = []

    def _room(self, longest: int, busy: int) -> int:
        """Slots left for rows of up to `longest` tokens; at least one if nothing else is in flight."""
        room = self.cache_bytes // self.cache.bytes(longest)
        return max(min(self.max_slots, room) - busy, 1 if busy == 0 else 0)

    def _begin(self, new: list[tuple[SlotRequest, int]]) -> None:
        """Read the new rows' starts and write the first token of each: those that go on, apart from fresh prompts."""
        goes_on = [self.cache.resumes and r.lead < len(r.tokens) for r, _ in new]
        if not all(goes_on):
            self._begin_fresh([x for x, on in zip(new, goes_on, strict=True) if not on])
        if any(goes_on):
            self._resume([x for x, on in zip(new, goes_on, strict=True) if on])

    def _resume(self, new: list[tuple[SlotRequest, int]]) -> None:
        """Read what is new of texts that the policy has started, and write the next token of each."""
        began = time.perf_counter()
        firsts = [i == 0 or new[i - 1][0] is not r for i, (r, _) in enumerate(new)]
        kept = [self._kept_row(r) if first else None for (r, _), first in zip(new, firsts, strict=True)]
        first = self._open(new, np.cumsum(firsts))
        own = max(len(r.tokens) - r.lead + r.limit for r, _ in new)
        logits, read = self.cache.resume([r.tokens for r, _ in new], [r.lead for r, _ in new], kept, first, own)
        share = (time.perf_counter() - began) / len(new)
        for (request, _), tokens in zip(new, read, strict=True):
            request.read += tokens
            request.seconds += share
        self._write(logits, first)

    def _kept_row(self, request: SlotRequest) -> Waiting | None:
        """The row that waits with the text of a request, up to the policy's last token, which is not read."""
        if self.sessions is None:
            return None
        text, more = request.tokens[: request.known - 1], request.started < len(request.attempts)
        return self.sessions.take(request.place, text, copied=more)

    def _begin_fresh(self, new: list[tuple[SlotRequest, int]]) -> None:
        began = time.perf_counter()
        starts: dict[bytes, list[tuple[SlotRequest, int]]] = {}
        for request, attempt in sorted(new, key=lambda row: len(row[0].tokens)):
            whose = id(request).to_bytes(8, "little") if request.tapes else b""       # a tape holds one request
            starts.setdefault(whose + request.tokens.tobytes(), []).append((request, attempt))
        firsts, counts = [rows[0][0] for rows in starts.values()], [len(rows) for rows in starts.values()]
        which = np.repeat(np.arange(len(counts)), counts)
        first = self._open([row for rows in starts.values() for row in rows], which)
        longest = int(self._slots.limit[: self._slots.live].max())
        for request, count in zip(firsts, counts, strict=True):
            if request.tapes and request.started == count == len(request.attempts):
                read = max(request.limit - 1, 1)         # the last token is never read
                request.tape = self.cache.tape(request.tokens, count, read)
        logits = self.cache.read([r.tokens for r in firsts], counts, first, longest, [r.tape for r in firsts])
        for request in firsts:
            request.read += len(request.tokens)
        share = (time.perf_counter() - began) / len(new)
        for request, _ in new:
            request.seconds += share
        self._write(logits.index_select(0, torch.from_numpy(which).to(logits.device)), first)

    def _open(self, new: list[tuple[SlotRequest, int]], same: ndarray) -> int:
        """Put rows into the next slots; returns the first. `same` is equal for rows of one text."""
        first, count = self._slots.live, len(new)
        width = max(r.limit for r, _ in new)
        if first + count > self._slots.size or width > self._slots.width:
            self._slots = self._slots.grown(max(first + count, self._slots.size), max(width, self._slots.width))
        self._slots.same[self._slots.open(new)] = self._labels(same)
        return first

    def _labels(self, same: ndarray) -> ndarray:
        """The same labels of rows, as numbers that no row had before."""
        self._label, before = self._label + int(same.max()) + 1, self._label
        return same + before

    def _finish(self, done: ndarray, stopped: ndarray, cut: Stop = Stop.LENGTH) -> None:
        """Return rows, close the gaps, and complete requests that have all attempts."""
        s = self._slots
        tokens, logp, version = s.tokens[done], s.logp[done], s.version[done]
        stops = [Stop.DONE if x else cut for x in stopped.tolist()]
        if s.by[done].any():
            last = tokens[np.arange(len(done)), s.wrote[done] - 1]
            for row in np.flatnonzero(self._is_end[s.by[done], last] & ~self._is_end[0, last]).tolist():
                stops[row] = Stop.STEP
        waited = s.seconds[done].tolist()
        each = zip(done.tolist(), s.wrote[done].tolist(), stops, waited, strict=True)
        for row, (slot, k, stop, seconds) in enumerate(each):
            request, attempt = s.owner[slot]
            kept = tuple(self._kept.pop((request, attempt), ()))
            if self.sessions is not None and request.keeps and (self.dialogues or stop is Stop.STEP):
                there = np.concatenate((request.tokens, tokens[row, :k]))[: s.length[slot]]
                self.sessions.put(request.place, self.cache.release(slot, there))
            request.said[attempt] = Said(tokens[row, :k], logp[row, :k], version[row, :k], stop, kept)
            request.ended += 1
            request.decoded += k
            request.seconds += seconds
            if request.ended == len(request.attempts) and not request.call.future.done():
                if request.tapes and request.tape is not None:
                    request.tape.close([s.tokens for s in request.said if s is not None])
                    self._tapes[request.place] = request.tape
                request.call.complete()
                self._news |= request.call.future.done()
        self._close(done)

    def _close(self, done: ndarray) -> None:
        source, target = self._slots.close(done)
        if len(target):
            self.cache.move(source, target)
        self.cache.free(self._slots.live)

    def _drop(self, request: SlotRequest) -> None:
        """Remove a cancelled request's rows; their tokens are added to its bill."""
        if request in self._waiting:
            self._waiting.remove(request)
        rows = self._slots.of(request)
        if len(rows):
            self._bill(rows.tolist())
            for i in rows.tolist():
                self._kept.pop(self._slots.owner[i], None)
            self._close(rows)

    def _bill(self, rows: Iterable[int]) -> None:
        """Charge rows that do not return: their tokens and their prompts."""
        for i in rows:
            request, _ = self._slots.owner[i]
            request.decoded += int(self._slots.wrote[i])
            request.seconds += float(self._slots.seconds[i])

    def _require_finite(self, tokens: ndarray) -> None:
        """Raises FloatingPointError if a row's newest id is not a token, because its logits were not finite."""
        if tokens.max() >= self.config.vocab:
            raise self._not_finite()

    def _not_finite(self) -> FloatingPointError:
        return FloatingPointError(f"the policy's logits are not finite at version {self.version}")

    # tokens ---------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """One tick; or, if the cache can, several in one call, as long as no request could act in between."""
        s = self._slots
        live = s.live
        plain = not (s.has_stops[:live].any() or (s.top_p[:live] < 1.0).any() or (s.top_k[:live] > 0).any())
        if self.cache.bursts and plain:
            most = STREAM if s.streams[:live].any() else self.burst
            self._burst(min(self.cache.chunk, most) if self._waiting else most)
        else:
            self._tick()

    def _tick(self) -> None:
        """Read every row's last token, write its next."""
        began, s = time.perf_counter(), self._slots
        live = s.live
        if s.wrote[:live].max() >= s.width:
            raise AssertionError("a row outgrew its slot")
        logits = self.cache.tick(s.last[:live], s.length[:live])
        s.length[:live] += 1
        s.same[:live] = self._labels(np.arange(live))
        if len(stale := np.flatnonzero(s.wrote[:live] + s.offset[:live] >= WINDOW)):
            s.draw(stale)
        s.seconds[:live] += (time.perf_counter() - began) / live
        self._write(logits, 0)

    def _burst(self, most: int) -> None:
        """Up to `most` ticks in one call. It ends early when a request has all its rows."""
        began, s = time.perf_counter(), self._slots
        live = s.live
        rows, wrote = np.arange(live), s.wrote[:live].copy()
        left = s.limit[:live] - wrote
        ticks = min(most, int(left.max()))
        stale = wrote + s.offset[:live] + np.minimum(left, ticks) > s.u.shape[1]
        if stale.any():
            s.draw(np.flatnonzero(stale))
        here = np.minimum((wrote + s.offset[:live])[:, None] + np.arange(ticks), s.u.shape[1] - 1)
        _, of = np.unique(s.call[:live], return_inverse=True)
        ends = EndIds(self._is_end, s.by[:live])
        ids, logp, new = self.cache.burst(
            s.last[:live], s.length[:live], left, of, ends, s.temperature[:live], s.u[rows[:, None], here],
            s.same[:live],
        )
        s.same[:live] = self._labels(s.same[:live])
        row, tick = np.nonzero(np.arange(ticks) < new[:, None])
        at = row, wrote[row] + tick
        s.tokens[at], s.logp[at], s.version[at] = ids[row, tick], logp[row, tick], self.version
        s.last[:live] = last = ids[rows, new - 1]
        s.wrote[:live] += new - (last >= self.config.vocab)
        s.length[:live] += new
        s.seconds[:live] += (time.perf_counter() - began) * new / new.sum()
        self._require_finite(last)
        s.pass_on(0, live, wrote)
        stopped = ends.of(last)
        done = np.flatnonzero(stopped | (new >= left))
        if len(done):
            self._finish(done, stopped[done])

    def _write(self, logits: Tensor, first: int) -> None:
        """Sample a token for each row from `first` on, and return the rows that are done."""
        began, s = time.perf_counter(), self._slots
        last = first + len(logits)
        rows = np.arange(first, last)
        temperature, top_p, top_k = s.temperature[first:last], s.top_p[first:last], s.top_k[first:last]
        truncates = (top_p < 1.0) | (top_k > 0)
        kept: Tensor | None = None
        if truncates.any():
            kept = self.cache.truncate(logits, temperature, top_p, top_k)
            logits, temperature = kept.clone(), np.ones_like(temperature)
        wrote = s.wrote[first:last].copy()
        token, logp = self.cache.draw(logits, temperature, s.u[rows, wrote + s.offset[first:last]])
        if kept is not None:
            self._keep(np.flatnonzero(truncates), first, kept)
        s.last[first:last] = token
        s.tokens[rows, wrote], s.logp[rows, wrote], s.version[rows, wrote] = token, logp, self.version
        s.wrote[first:last] += token < self.config.vocab
        stopped = EndIds(self._is_end, s.by[first:last]).of(token)
        self._heed_strings(stopped, first)
        done = np.flatnonzero(stopped | (s.wrote[first:last] >= s.limit[first:last]))
        s.seconds[first:last] += (time.perf_counter() - began) / len(rows)
        self._require_finite(token)
        s.pass_on(first, last, wrote)
        if len(done):
            self._finish(first + done, stopped[done])

    def _keep(self, rows: ndarray, first: int, logits: Tensor) -> None:
        """Record the ids that each of these rows was sampled from."""
        some = logits[torch.from_numpy(rows).to(logits.device)]
        row, ids = torch.nonzero(some > -torch.inf, as_tuple=True)
        cuts = np.cumsum(np.bincount(row.cpu().numpy(), minlength=len(rows)))[:-1]
        for i, kept in zip(rows.tolist(), np.split(ids.cpu().numpy(), cuts), strict=True):
            self._kept.setdefault(self._slots.owner[first + i], []).append(kept)

    def _heed_strings(self, stopped: ndarray, first: int) -> None:
        """Whether a stop string ends in what was written; it may begin in what the start has of the turn."""
        s = self._slots
        for i in np.flatnonzero(s.has_stops[first : first + len(stopped)] & ~stopped).tolist():
            request, slot = s.owner[first + i][0], first + i
            reach = max(len(x.encode()) for x in request.stop) + 4
            wrote = s.tokens[slot, : s.wrote[slot]][-reach:].tolist()
            end = (request.tail + wrote)[-reach:]
            text, old = self.text.decode(end), len(self.text.decode(end[: -len(wrote)]))
            stopped[i] = any(text.find(x, max(old - len(x) + 1, 0)) >= 0 for x in request.stop)

    def _read_again(self) -> None:
        """With new weights, compute the keys and values of all tokens of live rows again."""
        began, s = time.perf_counter(), self._slots
        own = [s.tokens[i, : s.length[i] - len(r.tokens)] for i, (r, _) in enumerate(s.owner)]
        for (request, _), some in zip(s.owner, own, strict=True):
            request.read += len(request.tokens) + len(some)
        self.cache.read_again([r.tokens for r, _ in s.owner], own)
        s.seconds[: s.live] += (time.perf_counter() - began) / s.live
