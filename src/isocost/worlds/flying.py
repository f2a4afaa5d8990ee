"""Requests that an engine has sent to a server and that are not answered yet."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from isocost.gather import together
from isocost.types import Place, Said
from isocost.world import OnTokens

T = TypeVar("T")


async def each(
    attempts: Sequence[int], asked: Sequence[Coroutine[Any, Any, Said]], on_tokens: OnTokens | None
) -> list[Said]:
    """All attempts at the same time. The tokens of each are passed on when it ends: a server sends them whole."""
    async def one(attempt: int, request: Coroutine[Any, Any, Said]) -> Said:
        said = await request
        if on_tokens is not None:
            on_tokens(attempt, said.tokens.tolist())
        return said

    return await together(*map(one, attempts, asked))


class Flying:
    """Requests under way, by wave, so that those of one wave can be cancelled: `Engine.halt`."""

    def __init__(self) -> None:
        self._halted: set[tuple[int, int, int]] = set()
        self._tasks: dict[asyncio.Task[Any], tuple[int, int, int]] = {}

    def halted(self, place: Place) -> bool:
        """Whether the wave of a place was halted."""
        return place.wave_key in self._halted

    def halt(self, place: Place) -> None:
        """Cancel the requests of a wave, now and for good."""
        self._halted.add(place.wave_key)
        for task, wave in list(self._tasks.items()):
            if wave == place.wave_key:
                task.cancel()

    async def answer(self, place: Place, request: Coroutine[Any, Any, T]) -> T | None:
        """The answer to a request for a place; None if its wave is halted meanwhile."""
        task = asyncio.ensure_future(request)
        self._tasks[task] = place.wave_key
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            if not self.halted(place):
                raise
            return None
        finally:
            del self._tasks[task]
