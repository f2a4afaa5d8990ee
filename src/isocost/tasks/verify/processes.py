"""Verifier processes beside the run: started when first needed, replaced when they hang or die."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from isocost.errors import RewardFailed, UserError
from isocost.tasks.verify import supervisor, verifiers
from isocost.tasks.verify.worker import LENGTH
from isocost.types import Problem

STARTUP = 120.0        # seconds for a worker to import its verifier
LONGEST = 16 * 2**10   # bytes of an answer; an exception's text is cut far below
LEAST_MEMORY = 4       # GiB of data that a user's reward may have on any machine
RESTARTS = ("timeout", "died", "malformed")    # outcomes after which the process is replaced
CAUSES = {"SIGKILL": " (out of memory?)", "SIGXCPU": " (it used more CPU time than it may)"}
LARGEST = 1e12         # of a reward: squares of larger ones, summed over a batch, overflow float32
# ("score", value), ("scores", values of one call), or the kind of failure and its details
Outcome = tuple[str, float | str | list[float] | None]


class WorkerPool:
    """Workers, each driven by a thread of its own, until `stopped` returns why no more requests are sent."""

    def __init__(self, verifier: str, workers: int, timeout: float, stopped: Callable[[], str]):
        self._workers, self._stopped = workers, stopped
        kind = verifiers.find(verifier)
        mark = kind.mark
        source = mark.digest() if isinstance(mark, verifiers.PythonReward) else ""
        self._opening = {"verifier": verifier, "source": source, "limit": timeout, "memory": reward_memory()}
        self._starter = _Starter(kind.library)
        self._used = False           # a worker has marked something
        self._threads: ThreadPoolExecutor | None = None
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def submit(
        self, text: str, problem: Problem, tokens: Sequence[int], on_outcome: Callable[[Outcome, str, bool], None]
    ) -> Future[tuple[Outcome, float]]:
        """A future of the outcome and the seconds a worker was busy with it; ("stopped", why) once `stopped` gives one.

        `on_outcome(outcome, problem's id, whether a process was replaced)` is called first, in another thread. The
        future raises UserError if a user's file cannot be used, RewardFailed if it no longer can.
        """
        return self._send(_request(text, problem, tokens), problem.id, on_outcome)

    def together(
        self, pairs: Sequence[tuple[str, Problem]], on_outcome: Callable[[Outcome, str, bool], None]
    ) -> Future[tuple[Outcome, float]]:
        """The same for several texts in one call of a user's function: the outcome is ("scores", a value each)."""
        body = f"[{', '.join(_request(text, problem, ()) for text, problem in pairs)}]"
        return self._send(body, pairs[0][1].id, on_outcome)

    def _send(
        self, body: str, problem: str, on_outcome: Callable[[Outcome, str, bool], None]
    ) -> Future[tuple[Outcome, float]]:
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._workers, "verifier")
                for _ in range(self._workers):
                    self._idle.put(_Worker(self._starter, self._opening))
        return self._threads.submit(self._run, body.encode(), problem, on_outcome)

    def _run(
        self, body: bytes, problem: str, on_outcome: Callable[[Outcome, str, bool], None]
    ) -> tuple[Outcome, float]:
        if why := self._stopped():
            return ("stopped", why), 0.0
        worker = self._idle.get()
        began = time.perf_counter()
        try:
            outcome, replaced = worker.ask(body)
        finally:
            self._idle.put(worker)
        if outcome[0] == "refused":
            raise (RewardFailed if self._used else UserError)(str(outcome[1]))
        self._used, outcome = True, finite(outcome)
        on_outcome(outcome, problem, replaced)
        return outcome, time.perf_counter() - began

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)
            while not self._idle.empty():
                self._idle.get().end()
            self._starter.close()


def _request(text: str, problem: Problem, tokens: Sequence[int]) -> str:
    return f"[{json.dumps(text)}, {json.dumps(list(tokens))}, {verifiers.row(problem)}]"


def finite(outcome: Outcome) -> Outcome:
    """A score of None is "none", NaN or infinite is "not finite", beyond `LARGEST` is "too large"; others unchanged."""
    kind, value = outcome
    if kind != "score":
        return outcome
    if value is None:
        return "none", "the verifier returned None"
    assert not isinstance(value, list)
    value = float(value)
    if not math.isfinite(value):
        return "not finite", f"the verifier returned {value}"
    if abs(value) > LARGEST:
        return "too large", f"the verifier returned {value:g}; a reward is at most {LARGEST:g} in size"
    return "score", value


def printable(text: str) -> str:
    """A reason as one line without control characters: an exception may quote a completion."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def reward_memory() -> int:
    """Bytes of data for a user's reward: ISOCOST_REWARD_MEMORY in GiB, or half of the machine's. Raises UserError."""
    asked = os.environ.get("ISOCOST_REWARD_MEMORY")
    if asked is None:
        return max(LEAST_MEMORY * 2**30, _machine_memory() // 2)
    try:
        amount = float(asked)
    except ValueError:
        amount = float("nan")
    if not 0 < amount < 2**20:
        raise UserError(f"ISOCOST_REWARD_MEMORY is {asked!r}; expected a number of GiB above 0, such as 16")
    return int(amount * 2**30)


def _machine_memory() -> int:
    """Bytes of memory of this machine, or of the container if that has less."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with contextlib.suppress(OSError, ValueError):       # "max" means no limit
        return min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return whole


class _Starter:
    """The process that forks workers: started when the first is needed, and again if it ended."""

    def __init__(self, library: str):
        self._library = library       # that every worker imports
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def start(self, *given: int) -> None:
        """Start a worker with these descriptors."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._close()
                self._open()
            assert self._socket is not None
            with contextlib.suppress(BrokenPipeError):      # it ended just now: the worker's pipes are closed too
                socket.send_fds(self._socket, [b"."], given)

    def close(self) -> None:
        with self._lock:
            self._close()

    def _open(self) -> None:
        own_end, theirs = socket.socketpair()
        # -P: the current folder holds data, and a json.py there must not be imported in place of Python's
        command = [sys.executable, "-P", supervisor.__file__, str(theirs.fileno()), *filter(None, [self._library])]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with theirs:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
                start_new_session=True, pass_fds=(theirs.fileno(),),
            )
        self._socket = own_end

    def _close(self) -> None:
        if self._socket is not None and self._process is not None:
            self._socket.close()
            self._process.kill()        # its workers have ended
            self._process.wait()
        self._socket = self._process = None


class _Worker:
    """One process of `isocost.tasks.verify.worker`, started at the first request and again after it ended."""

    def __init__(self, starter: _Starter, opening: dict[str, Any]):
        self._starter, self._opening = starter, opening
        self._ends: tuple[int, int, int, int] | None = None    # of the four pipes that `supervisor` names

    def ask(self, body: bytes) -> tuple[Outcome, bool]:
        """The outcome of one request, and whether the process was replaced before it or has to be after it."""
        replaced = False
        if self._ends is not None and not self._quiet():
            self.end()          # it ended or wrote something since its last answer: this request is not the cause
            replaced = True
        if self._ends is None and (started := self._start())[0] != "ready":
            self.end()
            return started, True
        outcome = self._exchange(body, float(self._opening["limit"]))
        if outcome[0] in RESTARTS:
            self.end()
        return outcome, replaced or outcome[0] in RESTARTS

    def end(self) -> None:
        """Kill the process and everything it has started, wait for that, and close its pipes."""
        ends, self._ends = self._ends, None
        if ends is not None:
            life, requests, answers, report = ends
            os.close(life)
            _status(report, 10.0)
            for end in (requests, answers, report):
                os.close(end)

    def _start(self) -> Outcome:
        pipes = [os.pipe() for _ in range(4)]          # each (to read, to write)
        own = [pipes[0][1], pipes[1][1], pipes[2][0], pipes[3][0]]
        theirs = [pipes[0][0], pipes[1][0], pipes[2][1], pipes[3][1]]
        self._ends = (own[0], own[1], own[2], own[3])
        os.set_blocking(own[1], False)
        try:
            self._starter.start(*theirs)
        finally:
            for end in theirs:
                os.close(end)
        kind, value = self._exchange(json.dumps(self._opening).encode(), STARTUP)
        if kind in ("ready", "refused"):
            return kind, value
        return "refused", f"{self._opening['verifier']} cannot be loaded: {value}"

    def _quiet(self) -> bool:
        """Whether the process has written nothing, and not ended, since its last answer."""
        assert self._ends is not None
        seen = select.poll()
        seen.register(self._ends[2], select.POLLIN)
        return not seen.poll(0)

    def _exchange(self, body: bytes, limit: float) -> Outcome:
        """Send one request and read its answer, both within `limit` seconds of the monotonic clock."""
        assert self._ends is not None
        _, asks, says, report = self._ends
        nonce = secrets.token_hex(16)
        left = memoryview(len(body).to_bytes(LENGTH, "big") + body + nonce.encode())
        answer, deadline = b"", time.monotonic() + limit
        seen = select.poll()
        seen.register(says, select.POLLIN)
        while b"\n" not in answer:
            if left:
                try:
                    left = left[os.write(asks, left[:65536]) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    return "died", _ending(_status(report, 2.0))
                if left:
                    seen.register(asks, select.POLLOUT)
                else:
                    with contextlib.suppress(KeyError):
                        seen.unregister(asks)
            ready = dict(seen.poll(max(0.0, deadline - time.monotonic()) * 1000))
            if not ready:
                return "timeout", f"no answer within {limit:g} s"
            if says in ready:
                more = os.read(says, 65536)
                if not more:
                    return "died", _ending(_status(report, 2.0))
                answer += more
                if len(answer) > LONGEST:
                    return "malformed", f"the process answered with more than {LONGEST} bytes"
        return _read(answer, nonce)


def _read(answer: bytes, nonce: str) -> Outcome:
    """One answer: a line `[nonce, kind, value]` and no more. Anything else is "malformed", with the reason."""
    line, _, more = answer.partition(b"\n")
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        return "malformed", f"the process wrote something that is not an answer: {line[:40]!r}"
    if not isinstance(message, list) or len(message) != 3 or message[0] != nonce or more:
        return "malformed", f"the process wrote something that is not the answer to this request: {line[:40]!r}"
    kind, value = message[1:]
    if kind in ("score", "ready") and isinstance(value, float):
        return kind, value
    if kind == "scores" and isinstance(value, list) and all(isinstance(x, int | float) for x in value):
        return kind, value
    if kind == "none" and value is None:
        return kind, "the verifier returned None"
    if kind in ("exception", "refused") and isinstance(value, str):
        return kind, printable(value)
    return "malformed", f"the process gave an answer of an unknown kind: {line[:80]!r}"


def _status(report: int, limit: float) -> int | None:
    """The status that the supervisor reports for an ended worker; None without a report within `limit` seconds."""
    seen = select.poll()
    seen.register(report, select.POLLIN)
    with contextlib.suppress(ValueError):       # it was killed
        return int(os.read(report, 32)) if seen.poll(limit * 1000) else None
    return None


def _ending(status: int | None) -> str:
    """How a worker whose pipe is closed has ended, by its status."""
    if status is None:
        return "its process closed the pipe of its answers"
    if status == supervisor.TOO_MANY:
        return f"it had more than {supervisor.LEFT} processes running, and was ended with them"
    if status < 0:
        name = signal.Signals(-status).name
        return f"its process was killed by {name}{CAUSES.get(name, '')}"
    return f"its process ended with exit status {status}"
