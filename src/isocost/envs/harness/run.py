"""How a harness is run: a function of a file, a command, or a coroutine of another library.

Coroutines of all harnesses run in one thread with an event loop of its own, so that one that blocks stops neither the
engine nor the server. If that loop does not answer any more, it is left to itself, and later harnesses get a new one.
A plain function runs in a thread of its own, a command in a process group of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import shlex
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

from isocost.envs.harness.driven import Seat
from isocost.envs.threads import ThreadEach, in_thread
from isocost.errors import told
from isocost.world import EnvironmentFault

log = logging.getLogger("isocost")
ANSWER = 5.0            # seconds without a sign of life after which a harness is taken to block the thread of all
OUTPUT = 2**20          # bytes of a command's output, at most
SAID = 2000             # characters of a failed command's errors that are logged


class HarnessLoop:
    """The thread in which harnesses' coroutines run."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pulse = _Pulse()
        self._lock = threading.Lock()
        self._warned = False

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(ThreadEach())
                threading.Thread(target=_forever, args=(self._loop,), daemon=True, name="isocost-harnesses").start()
                self._pulse = _Pulse()
                asyncio.run_coroutine_threadsafe(self._pulse.beat(), self._loop)
            return self._loop

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[list[float]]:
        """Within it, the longest time in seconds that a harness kept the others waiting; known at the end."""
        longest = [0.0]

        async def watch() -> None:
            while True:
                then = time.perf_counter()
                await asyncio.sleep(0.01)
                longest[0] = max(longest[0], time.perf_counter() - then - 0.01)

        if self._loop is None:
            yield longest
            return
        future = asyncio.run_coroutine_threadsafe(watch(), self._loop)
        try:
            yield longest
            await asyncio.sleep(0.02)
        finally:
            future.cancel()

    async def run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The result of a coroutine. If this is cancelled, it is cancelled there."""
        while True:
            loop = self.loop()
            started = _Started(work, self._pulse)
            future = asyncio.run_coroutine_threadsafe(started.run(), loop)
            try:
                if await started.soon():
                    return await asyncio.wrap_future(future)
            except asyncio.CancelledError:
                future.cancel()
                raise
            future.cancel()
            with self._lock:
                if self._loop is loop:
                    self._loop = None
            if not self._warned:
                log.warning("a harness blocks the thread of all harnesses; later ones run in another. Use `await`, or "
                            "a plain function, which has a thread of its own")
            self._warned = True


def _forever(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop that harnesses share, also after one of them has stopped it."""
    while not loop.is_closed():
        with contextlib.suppress(Exception):
            loop.run_forever()


class _Pulse:
    """Signs of life of a loop of harnesses: it beats while the loop turns, and whenever a harness starts."""

    def __init__(self) -> None:
        self.beats = 0

    async def beat(self) -> None:
        while True:
            self.beats += 1
            await asyncio.sleep(ANSWER / 50)


class _Started:
    """A coroutine that is started in the loop of harnesses, or never if that loop gives no sign of life."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]], pulse: _Pulse):
        self.work, self.pulse, self.started, self.late, self._lock = work, pulse, False, False, threading.Lock()
        self._home, self._signal = asyncio.get_running_loop(), asyncio.Event()

    async def run(self) -> Any:
        with self._lock:
            self.started = not self.late
        self.pulse.beats += 1
        with contextlib.suppress(RuntimeError):     # the loop that waited for it is closed
            self._home.call_soon_threadsafe(self._signal.set)
        try:
            return await self.work() if self.started else None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                raise
            raise RuntimeError(told(error)) from error      # SystemExit would end the thread of all harnesses

    async def soon(self) -> bool:
        """Whether it starts before its loop, while it turns, is silent for ANSWER seconds; if not, it never does."""
        silent, beats = 0.0, self.pulse.beats
        while not self.started and silent < ANSWER:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._signal.wait(), ANSWER / 20)
            silent, beats = (silent + ANSWER / 20 if beats == self.pulse.beats else 0.0), self.pulse.beats
        with self._lock:
            self.late = not self.started
        return self.started


HARNESSES = HarnessLoop()


async def of_function(drive: Callable[..., Any], seat: Seat) -> Any:
    """What a user's `drive(task, base_url, model)` returns."""
    given = dict(seat.task), seat.base_url, seat.model
    if inspect.iscoroutinefunction(drive):
        return await HARNESSES.run(lambda: drive(*given))
    return await in_thread(drive, *given)


async def of_command(command: str, seat: Seat) -> float:
    """The reward that a command, given the task, prints last: a number, or JSON's `reward`. Raises EnvironmentFault."""
    task = json.dumps(dict(seat.task), ensure_ascii=False)
    given = {"OPENAI_BASE_URL": seat.base_url, "OPENAI_API_KEY": seat.key, "OPENAI_MODEL": seat.model}
    try:
        process = await asyncio.create_subprocess_exec(
            *shlex.split(command), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, start_new_session=True, env={**os.environ, **given, "ISOCOST_TASK": task},
        )
    except (OSError, ValueError) as error:
        raise EnvironmentFault("the command does not start") from error
    try:
        out, said, _ = await asyncio.gather(_tail(process.stdout), _tail(process.stderr), _feed(process, task.encode()))
        code = await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()
    if code:
        log.warning("the command of a harness ended with status %d: %s", code, said.decode(errors="replace")[-SAID:])
        raise EnvironmentFault(f"the command ended with status {code}")
    return _printed(out.decode(errors="replace"))


def _printed(text: str) -> float:
    """The reward of the last line. Raises EnvironmentFault."""
    lines = [x for x in text.splitlines() if x.strip()]
    try:
        found = json.loads(lines[-1])
        return float(found["reward"] if isinstance(found, Mapping) else found)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise EnvironmentFault("the command printed no reward") from error


async def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    assert process.stdin is not None
    with contextlib.suppress(ConnectionError):      # it need not read
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.close()


async def _tail(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    kept = b""
    while part := await stream.read(2**16):
        kept = (kept + part)[-OUTPUT:]
    return kept
