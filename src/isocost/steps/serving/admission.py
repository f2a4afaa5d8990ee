"""How much is under way at once: tokens, not requests, because tokens are what memory and time go to."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LONGEST = 60        # seconds that a client is asked to wait, at most: OpenAI's does not wait longer


class Full(Exception):
    """There is no room, and the queue is full. `after`: seconds after which to ask again."""

    def __init__(self, after: int):
        super().__init__(f"no room for {after} s")
        self.after = after


class Admission:
    """Room for `most` tokens, and a queue of `queue` requests that wait for it, in their order."""

    def __init__(self, most: int, queue: int, clock: Callable[[], float] = time.monotonic):
        self.most, self.queue, self.under_way = most, queue, 0
        self._clock, self._since, self._left = clock, clock(), 0    # when it was last idle; tokens that left since
        self._turned_away = 0       # tokens that were refused and have not come back
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def room(self, tokens: int) -> AsyncIterator[None]:
        """Room for so many tokens, `most` at most, while the context lasts. Raises Full."""
        await self._enter(tokens)
        try:
            yield
        finally:
            self._leave(tokens)

    async def _enter(self, tokens: int) -> None:
        if self.under_way == 0:
            self._since, self._left = self._clock(), 0
        full = len(self._waiting) >= self.queue and (self._waiting or self.under_way + tokens > self.most)
        if full:
            self._turned_away += tokens
            raise Full(self._after())
        self._turned_away = max(self._turned_away - tokens, 0)
        if not self._waiting and self.under_way + tokens <= self.most:
            self.under_way += tokens
            return
        turn = tokens, asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn[1]
        except asyncio.CancelledError:
            if turn[1].done() and not turn[1].cancelled():      # its turn came in the same moment
                self._leave(tokens)
            else:
                self._waiting.remove(turn)
                self._next()        # it may have been what others waited behind
            raise

    def _leave(self, tokens: int) -> None:
        self.under_way -= tokens
        self._left += tokens
        self._next()

    def _next(self) -> None:
        """Give room to those that wait, as far as there is any."""
        while self._waiting and self.under_way + self._waiting[0][0] <= self.most:
            tokens, turn = self._waiting.popleft()
            self.under_way += tokens
            turn.set_result(None)

    def _after(self) -> int:
        """Seconds until half of what is under way, and all that was turned away, has left, at the pace since it was
        last idle: those that are refused at once do not all come back at once."""
        half = self.under_way / 2       # of what is under way so much is done, on average
        passed = self._clock() - self._since
        return min(max(math.ceil((half + self._turned_away) * passed / (self._left + half)), 1), LONGEST)
