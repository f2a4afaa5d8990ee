"""Calls that block, each in a daemon thread of its own.

The default executor of asyncio has a few threads: a few hung environments would stop all others. A daemon thread that
never returns costs its memory, and does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from isocost.errors import told

T = TypeVar("T")


class ThreadEach(ThreadPoolExecutor):
    """An event loop's executor with a daemon thread for each call, since calls may wait for each other."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        threading.Thread(target=run, daemon=True, name="isocost-environment").start()
        return future


async def in_thread(function: Callable[..., T], *args: Any, **named: Any) -> T:
    """The result of a call. If the awaiting task is cancelled, the call goes on and its result is dropped."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        elif isinstance(error, Exception):
            future.set_exception(error)
        else:                            # SystemExit would end the loop's thread; StopIteration cannot be raised in one
            future.set_exception(RuntimeError(told(error)))

    def run() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function, *args, **named)
        except StopIteration as e:
            error = RuntimeError(told(e))
        except BaseException as e:
            error = e
        with contextlib.suppress(RuntimeError):      # the loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, daemon=True, name="isocost-environment").start()
    return await future
