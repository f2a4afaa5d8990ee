"""Marks finished rollouts. A verifier that fails gives no score, never a zero, and is counted by how it failed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from isocost.errors import UserError
from isocost.meter import Meter
from isocost.problems import verify
from isocost.types import Cost, Problem, Rollout, Score

STARTUP = 120.0                      # seconds for a worker to import its verifier
LARGEST = 1e12                       # of a reward: squares of larger ones, summed over a batch, overflow float32
_RIGHT, _WRONG = Score(1.0), Score(0.0)   # one object for the scores that nearly every rollout gets
Outcome = tuple[str, float | str | None]  # ("score", value), or the kind of failure and what is known of it


class Grader:
    """Implements `world.Grade` with a verifier's name.

    Pure fast verifiers are called in place. Slow and untrusted ones (math, reasoning-gym, a user's file) run in
    `workers` processes (0: one per core, at most 4), each call within `timeout` seconds; a worker that overruns or
    dies is replaced. Scores come back in launch order. `failures` counts kinds, `examples` keeps the first of each.
    """

    def __init__(self, verifier: str, *, workers: int = 0, timeout: float = 5.0, meter: Meter | None = None):
        if timeout <= 0:
            raise UserError(f"a verifier's time limit is more than 0 seconds, not {timeout:g}")
        self.verifier, self.timeout, self.meter = verifier, timeout, meter or Meter()
        self.failures: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._kind = verify.find(verifier)
        self._pool = _Pool(verifier, workers or min(os.cpu_count() or 1, 4), timeout) if self._kind.slow else None

    async def __call__(self, rollouts: Sequence[Rollout]) -> list[Score | None]:
        """A score each, None where the verifier failed or ran out of time. Charges one verifier call each.

        Raises UserError when a user's file does not import.
        """
        if self._pool is None:
            began, mark = time.perf_counter(), self._kind.mark
            outcomes = [_safely(mark, r.final, r.problem) for r in rollouts]
            self.meter.charge(Cost(verify=len(rollouts), seconds=time.perf_counter() - began))
        else:
            pool = self._pool
            self.meter.charge(Cost(verify=len(rollouts)))
            waiting = [pool.submit(r.final, r.problem, _tokens(r)) for r in rollouts]
            timed: list[tuple[Outcome, float]] = []
            try:
                for w in waiting:
                    timed.append(await asyncio.wrap_future(w))
            finally:     # whoever cancels pays for what is marked by then
                self.meter.charge(Cost(seconds=sum((seconds for _, seconds in timed), 0.0)))
            outcomes = [o for o, _ in timed]
        return [self._score(o) for o in outcomes]

    def mark(self, pairs: Sequence[tuple[str, Problem]]) -> list[float | str]:
        """What each (text, problem) earns, or in words why it has no score.

        Charged like any marking; no failure is counted.
        """
        if self._pool is None:
            began = time.perf_counter()
            outcomes = [_safely(self._kind.mark, text, p) for text, p in pairs]
            seconds = time.perf_counter() - began
        else:
            waiting = [self._pool.submit(text, p, ()) for text, p in pairs]
            timed = [w.result() for w in waiting]
            outcomes, seconds = [o for o, _ in timed], sum((s for _, s in timed), 0.0)
        self.meter.charge(Cost(verify=len(pairs), seconds=seconds))
        return [value if kind == "score" and isinstance(value, float) else _in_words(kind, value)
                for kind, value in outcomes]

    def close(self) -> None:
        """End the workers. The grader starts new ones if it is asked again."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score(self, outcome: Outcome) -> Score | None:
        kind, value = outcome
        if kind != "score" or not isinstance(value, float):
            self.failures[kind] += 1
            self.examples.setdefault(kind, str(value))
            return None
        return _RIGHT if value == 1.0 else _WRONG if value == 0.0 else Score(value)


def _safely(mark: verify.Verifier, text: str, problem: Problem) -> Outcome:
    try:
        value = mark(text, problem)
    except (Exception, SystemExit) as e:
        return "exception", f"{type(e).__name__}: {e}"[:500]
    return ("score", value) if value == 1.0 or value == 0.0 else _finite(("score", value))


def _finite(outcome: Outcome) -> Outcome:
    """None is "none", NaN and infinities are "not finite", beyond `LARGEST` is "too large"; the rest stays."""
    kind, value = outcome
    if kind != "score":
        return outcome
    if value is None:
        return "none", "the verifier returned None"
    value = float(value)
    if not math.isfinite(value):
        return "not finite", f"the verifier returned {value}"
    if abs(value) > LARGEST:
        return "too large", f"the verifier returned {value:g}; a reward is at most {LARGEST:g} in size"
    return "score", value


def _in_words(kind: str, value: float | str | None) -> str:
    return str(value) if kind == "exception" else f"{kind}: {value}"


def _tokens(rollout: Rollout) -> list[int]:
    return [int(t) for t in rollout.segments[-1].reply()] if rollout.segments else []


class _Pool:
    """Worker processes, each driven by one thread, so that a busy event loop does not eat into a time limit."""

    def __init__(self, verifier: str, workers: int, timeout: float):
        self._verifier, self._workers, self._timeout = verifier, workers, timeout
        self._threads: ThreadPoolExecutor | None = None
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def submit(self, text: str, problem: Problem, tokens: Sequence[int]) -> Future[tuple[Outcome, float]]:
        """A future of the outcome and the seconds a worker was busy with it."""
        line = f"[{json.dumps(text)}, {json.dumps(list(tokens))}, {verify.row(problem)}]\n"
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self._workers, "verifier")
                for _ in range(self._workers):
                    self._idle.put(_Worker(self._verifier, self._timeout))
        return self._threads.submit(self._run, line)

    def _run(self, line: str) -> tuple[Outcome, float]:
        worker = self._idle.get()
        began = time.perf_counter()
        try:
            outcome = _finite(worker.ask(line))
        finally:
            self._idle.put(worker)
        if outcome[0] == "refused":
            raise UserError(str(outcome[1]))
        return outcome, time.perf_counter() - began

    def close(self) -> None:
        with self._lock:
            threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)
            while not self._idle.empty():
                self._idle.get().end()


class _Worker:
    """One process of `isocost.problems.worker`, started when first asked and again after it was lost."""

    def __init__(self, verifier: str, limit: float):
        self._verifier, self._limit = verifier, limit   # seconds per request
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def ask(self, line: str) -> Outcome:
        """The outcome of one request: the worker's, or "timeout", or "died"."""
        if self._process is None:
            started = self._start()
            if started[0] != "ready":
                self.end()
                return started
        outcome = self._send(line.encode())
        if outcome[0] in ("timeout", "died"):
            self.end()
        return outcome

    def end(self) -> None:
        """Kill the process and everything it has started, and close its pipes."""
        process, self._process, self._buffer = self._process, None, b""
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it may have gone by itself
            os.killpg(process.pid, 9)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what was still unsent is of no use now
                    pipe.close()

    def _start(self) -> Outcome:
        command = [sys.executable, "-m", "isocost.problems.worker", self._verifier, str(self._limit + 1.0)]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env,
            start_new_session=True,
        )
        return self._answer(time.monotonic() + STARTUP)

    def _send(self, line: bytes) -> Outcome:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            return "died", "the verifier's process ended"
        return self._answer(time.monotonic() + self._limit, self._limit)

    def _answer(self, deadline: float, limit: float = STARTUP) -> Outcome:
        """Read one line, however it arrives, until the deadline of the monotonic clock."""
        assert self._process is not None and self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return "timeout", f"no answer within {limit:g} s"
            more = os.read(pipe, 65536)
            if not more:
                return "died", "the verifier's process ended"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        try:
            kind, value = json.loads(line)
        except ValueError:
            return "died", "the verifier's process wrote something else than an answer"
        return kind, value
