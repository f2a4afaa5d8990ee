"""Run coroutines: several at once, one within a time limit, and one from code that is not a coroutine."""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Awaitable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")
POLL = 0.5      # seconds: a signal that comes just before a thread waits is handled only when it wakes


async def together(*work: Awaitable[T]) -> list[T]:
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


def being_cancelled(error: BaseException) -> bool:
    """Whether the task that runs is cancelled by this error: code that it calls may raise one of its own."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


class within:
    """As `asyncio.timeout`, but time in which the event loop could not run does not count: raises TimeoutError.

    An engine or a learner holds the loop for as long as one call of it takes, and what waits could not go on meanwhile.
    The limit is counted in eighths, each of which begins when the loop has found the last one to be over. None: none.
    """

    EIGHTHS = 8

    def __init__(self, seconds: float | None):
        self._each, self._left = None if seconds is None else seconds / self.EIGHTHS, self.EIGHTHS
        self._limit = asyncio.timeout(None)
        self._next: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._wait()

    async def __aexit__(self, *error: Any) -> None:
        if self._next is not None:
            self._next.cancel()
        await self._limit.__aexit__(*error)

    def _wait(self) -> None:
        if self._each is not None:
            self._next = asyncio.get_running_loop().call_later(self._each, self._over)

    def _over(self) -> None:
        self._left -= 1
        if self._left:
            self._wait()
        else:
            self._limit.reschedule(asyncio.get_running_loop().time())


async def at_most(seconds: float | None, work: Awaitable[T]) -> T:
    """What this gives, `within` so many seconds. Raises TimeoutError.

    Most environments answer without waiting for anything: a coroutine that ends at once needs no timer, which would
    take longer than its answer.
    """
    if not asyncio.iscoroutine(work):
        async with within(seconds):
            return await work
    try:
        try:
            waits_for = _sent(work, None)
        except StopIteration as done:
            return done.value
        async with within(seconds):
            return await _go_on(work, waits_for)
    except Mischief:
        with suppress(asyncio.CancelledError):      # the request to cancel this task is still to come
            await asyncio.sleep(0)
        raise


@types.coroutine
def _go_on(work: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """`await work`, of a coroutine that has started and waits for this."""
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = _sent(work, value)
        except StopIteration as done:
            return done.value


class Mischief(RuntimeError):
    """Code that was awaited did what would end the task that awaits it, or the event loop."""


def _sent(work: Coroutine[Any, Any, Any], value: Any) -> Any:
    """What a coroutine waits for next. Raises what it raises, StopIteration at its end, and Mischief.

    Nothing else runs meanwhile, so a task that is being cancelled afterwards, and was not before, did that itself.
    """
    task = asyncio.current_task()
    assert task is not None
    before, loop = task.cancelling(), task.get_loop()
    try:
        return work.send(value)
    except GeneratorExit:
        raise Mischief("GeneratorExit") from None
    finally:
        if task.cancelling() > before or getattr(loop, "_stopping", False):
            stopped = getattr(loop, "_stopping", False)
            if stopped:
                loop._stopping = False  # type: ignore[attr-defined]
            while task.cancelling() > before:
                task.uncancel()
            work.close()
            raise Mischief("it stopped the event loop" if stopped else "it cancelled its own task")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run to its end.

    `asyncio.run` raises where this thread already runs an event loop, as a notebook's cells do. There the coroutine
    runs in a thread of its own, with this thread's context variables; Ctrl-C cancels it.
    """
    running = True
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        running = False
    if not running:     # not in the handler: an error of the work would have the missing loop as its context
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
