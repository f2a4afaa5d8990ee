"""Run coroutines: several at once, and one from code that is not a coroutine."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """What each returns, in order. If one raises, or this is cancelled, the others are cancelled and waited for first.

    `asyncio.gather` lets the others continue: they would still sample, and be charged, after a run was abandoned.
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
        return asyncio.run(work)
    cancel: Future[Callable[[], object]] = Future()

    async def cancellable() -> T:
        task = asyncio.current_task()
        assert task is not None     # a coroutine that runs is in a task
        loop = asyncio.get_running_loop()
        cancel.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await work

    with ThreadPoolExecutor(1) as thread:
        result = thread.submit(contextvars.copy_context().run, asyncio.run, cancellable())
        try:
            return result.result()
        except BaseException:
            if not result.done():
                with suppress(RuntimeError):    # the loop may have been closed since
                    cancel.result()()
            raise
