"""The rows that an engine decodes: requests for them, and the slots in which they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.local.native import Tape
from isocost.types import Place, Said, Sampling
from isocost.world import OnTokens

WINDOW = 32      # positions whose random numbers are made at a time


@dataclass(eq=False)
class OpenCall:
    """Requests that one caller waits for together; the future is set when the last is complete."""

    future: asyncio.Future[None]
    number: int
    open: int = 0

    def complete(self) -> None:
        """One of them is."""
        self.open -= 1
        if self.open == 0 and not self.future.done():
            self.future.set_result(None)


@dataclass(eq=False)
class SlotRequest:
    """One start of a call: its attempts are rows in slots, or wait for one."""

    tokens: ndarray             # (T,) the start
    sampling: Sampling
    attempts: Sequence[int]
    place: Place
    turn: int
    limit: int                  # tokens to write, at most
    stop: tuple[str, ...]
    by: int                     # which line of the engine's table says what ends its rows; 0: what ends a turn
    on_tokens: OnTokens | None
    tail: list[int]             # the tokens of this turn in the start
    call: OpenCall
    said: list[Said | None]
    keeps: bool                 # a row that ends may go on in a later call
    tapes: bool                 # the learner will use its activations
    lead: int                   # tokens before the policy's first one in the start; all if there are none
    known: int                  # tokens up to the policy's last one in the start; 0 if there are none
    version: int                # of the weights that wrote that one; -1 if there are none
    tape: Tape | None = None
    started: int = 0            # attempts that got a slot
    ended: int = 0
    decoded: int = 0
    read: int = 0               # tokens of prefill that were computed
    seconds: float = 0.0


@dataclass(eq=False)
class Slots:
    """Rows being written, one per attempt; the first `live` slots, without gaps."""

    size: int
    width: int                                              # tokens of a row, at most
    numbers: Callable[[ndarray, int], ndarray] = chance.numbers
    live: int = 0
    owner: list[tuple[SlotRequest, int]] = field(default_factory=list)   # request, and which of its attempts

    def __post_init__(self) -> None:
        n = self.size
        self.length = np.zeros(n, dtype=np.int64)           # tokens whose keys are in the cache
        self.wrote = np.zeros(n, dtype=np.int64)            # tokens written in this call
        self.limit = np.zeros(n, dtype=np.int64)
        self.tail = np.zeros(n, dtype=np.int64)             # tokens of the turn before this call
        self.address = np.zeros((n, 6), dtype=np.int64)     # `chance.addresses`
        self.offset = np.zeros(n, dtype=np.int64)           # the turn's position of token 0, minus the window's start
        self.last = np.zeros(n, dtype=np.int64)
        self.same = np.zeros(n, dtype=np.int64)             # equal for rows whose keys are of the same text
        self.seconds = np.zeros(n, dtype=np.float64)        # of each tick, divided among its rows
        self.temperature = np.ones(n, dtype=np.float32)
        self.top_p = np.ones(n, dtype=np.float32)
        self.top_k = np.zeros(n, dtype=np.int64)
        self.heeds = np.zeros(n, dtype=bool)                # has stop strings
        self.call = np.zeros(n, dtype=np.int64)             # number of its call
        self.by = np.zeros(n, dtype=np.int64)               # see `SlotRequest.by`
        self.streams = np.zeros(n, dtype=bool)              # its tokens are passed on as they come
        self.u = np.zeros((n, WINDOW + 4), dtype=np.float64)
        self.tokens = np.zeros((n, self.width), dtype=np.int64)
        self.logp = np.zeros((n, self.width), dtype=np.float32)
        self.version = np.zeros((n, self.width), dtype=np.int64)

    def arrays(self) -> dict[str, ndarray]:
        return {k: v for k, v in vars(self).items() if isinstance(v, ndarray)}

    def grown(self, size: int, width: int) -> Slots:
        """The same rows with room for more."""
        out = Slots(size, width, self.numbers, self.live, self.owner)
        for name, new in out.arrays().items():
            old = getattr(self, name)
            new[tuple(slice(k) for k in old.shape)] = old
        return out

    def open(self, new: list[tuple[SlotRequest, int]]) -> ndarray:
        """Put rows, for which there is room, into the next slots; returns these."""
        rows, requests = np.arange(self.live, self.live + len(new)), [r for r, _ in new]
        self.live, self.owner = self.live + len(new), self.owner[: self.live] + new
        self.length[rows] = [len(r.tokens) for r in requests]
        self.limit[rows] = [r.limit for r in requests]
        self.wrote[rows] = 0
        self.seconds[rows] = 0.0
        self.temperature[rows] = [r.sampling.temperature for r in requests]
        self.top_p[rows] = [r.sampling.top_p for r in requests]
        self.top_k[rows] = [r.sampling.top_k for r in requests]
        self.tail[rows] = [len(r.tail) for r in requests]
        self.address[rows] = chance.addresses(
            [r.place for r in requests], [r.attempts[k] for r, k in new], [r.turn for r in requests])
        self.heeds[rows] = [bool(r.stop) for r in requests]
        self.call[rows] = [r.call.number for r in requests]
        self.by[rows] = [r.by for r in requests]
        self.streams[rows] = [r.on_tokens is not None for r in requests]
        self.draw(rows)
        return rows

    def pass_on(self, first: int, last: int, wrote: ndarray) -> None:
        """Give what slots first to last wrote to those who asked for it; `wrote` says how much they had before."""
        for i in (first + np.flatnonzero(self.streams[first:last])).tolist():
            request, attempt = self.owner[i]
            if request.on_tokens is not None:
                request.on_tokens(request.attempts[attempt], self.tokens[i, wrote[i - first] : self.wrote[i]].tolist())

    def of(self, request: SlotRequest) -> ndarray:
        """The slots of a request's rows."""
        return np.array([i for i, (r, _) in enumerate(self.owner) if r is request], dtype=np.int64)

    def requests(self) -> list[SlotRequest]:
        """Those that have rows, each once."""
        return list({id(r): r for r, _ in self.owner}.values())

    def close(self, done: ndarray) -> tuple[ndarray, ndarray]:
        """Remove these rows. Returns from where to where the last rows moved, so that there are no gaps."""
        left = self.live - len(done)
        gone = np.zeros(self.live, dtype=bool)
        gone[done] = True
        target, source = np.flatnonzero(gone[:left]), left + np.flatnonzero(~gone[left:])
        if len(target):
            self._move(source, target)
        self.live = left
        del self.owner[left:]
        return source, target

    def draw(self, rows: ndarray) -> None:
        """Random numbers for the next window of these rows."""
        position = self.wrote[rows] + self.tail[rows]
        block = position // 4
        count = min(WINDOW, int((self.limit[rows] - self.wrote[rows]).max()) + 3) // 4 + 1
        at = self.address[rows]
        at[:, 0] += block
        self.u[rows, : 4 * count] = self.numbers(at, count)
        self.offset[rows] = position - 4 * block - self.wrote[rows]

    def _move(self, source: ndarray, target: ndarray) -> None:
        for array in self.arrays().values():
            array[target] = array[source]
        moved = [self.owner[a] for a in source.tolist()]
        for b, row in zip(target.tolist(), moved, strict=True):
            self.owner[b] = row
