"""Concurrent tasks that are all cancelled when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """The results in order. If one raises, or this is cancelled, the others are cancelled and awaited first.

    `asyncio.gather` lets the others continue: they would still sample, and be charged, after the run failed.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
