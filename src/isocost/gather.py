"""Run coroutines: several at once, and one from code that is not a coroutine."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
POLL = 0.5      # seconds: a signal that comes just before a thread waits is handled only when it wakes


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


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run to its end.

    `asyncio.run` raises where this thread already runs an event loop, as a notebook's cells do. There the coroutine
    runs in a thread of its own, with this thread's context variables; Ctrl-C cancels it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _run(work)
    task: asyncio.Task[Any] | None = None
    interrupted = False

    async def cancellable() -> T:
        nonlocal task
        task = asyncio.current_task()
        if interrupted:     # before this began
            work.close()
            raise asyncio.CancelledError
        return await work

    with ThreadPoolExecutor(1) as thread:
        try:
            result = thread.submit(contextvars.copy_context().run, _run, cancellable())
            while not wait([result], timeout=POLL).done:
                pass
            return result.result()
        except BaseException:
            interrupted = True
            if task is not None:
                with suppress(RuntimeError):    # its loop is closed: the coroutine itself raised
                    task.get_loop().call_soon_threadsafe(task.cancel)
            raise


def _run(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, whose task does not hold the result: Python 3.11 writes the task as text, result included, when it
    takes its signal handler back, which for a thousand rollouts takes longer than the work.
    """
    result: list[T] = []

    async def keep() -> None:
        result.append(await work)

    asyncio.run(keep())
    return result[0]
