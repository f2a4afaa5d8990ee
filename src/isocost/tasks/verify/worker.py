"""The verifier process: one verifier, one request at a time.

A request is its length in 8 bytes, JSON, and then 32 random characters. The answer is one line of JSON, `[those
characters, kind, value or reason]`. While a verifier runs, its request's characters are still in the pipe, unread:
neither the memory of a forked child nor a byte on an inherited descriptor can answer in its place.

Isolation: both pipes are closed on exec and in every child that Python forks; descriptors 0, 1 and 2, which a
reward reads and prints to, are the null device. A fork in which a reward returns ends there. The memory, CPU time and
core files of this process are limited, and `isocost.tasks.verify.supervisor` ends it with all that it started.

Not isolated: code in this process can find both pipes, read requests and write any answer. The reward is the user's
own code and decides the scores in any case. A reward that executes model output must do so in its own process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import resource
import sys
import time
from pathlib import Path
from traceback import walk_tb
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.tasks.verify import verifiers
from isocost.types import Message, Problem

LENGTH, NONCE = 8, 32  # bytes
SHOWN = 500            # characters of an exception
MEMORY = 4 * 2**30     # bytes of address space for a built-in verifier: nested powers must not use all memory
Answer = tuple[str, float | str | list[float] | None]
_HIGH = 960            # descriptors from here on: few programs close or write to numbers that they did not open


def main() -> None:
    """Answer the requests that arrive at descriptor 0 on descriptor 1 until there are no more.

    The first is `{"verifier", "source" (hash of a user's file), "limit" (seconds of a request), "memory" (bytes)}`, and
    is answered with "ready" or "refused". Others are `[text, tokens, problem]`, answered by `marked`, or several of
    these in a list, answered by `marked_together`.
    """
    np.random.seed()         # forked from one process, all workers would have the same random numbers
    requests, answers = (_private(number) for number in (0, 1))
    own_pid = os.getpid()
    mark: verifiers.Verifier = verifiers.exact
    seconds = allowed = 0.0       # of CPU time: for one request, and this process's limit so far
    outcome: Answer
    while (body := _body(requests)) is not None:
        request = json.loads(body)
        if isinstance(request, dict):
            mark, outcome = _opened(request)
            seconds = float(request["limit"]) * (os.cpu_count() or 1)
        else:
            allowed = _allow_cpu(seconds, allowed)
            if isinstance(request[0], list):
                outcome = marked_together(mark, [_case(*each) for each in request])
            else:
                text, problem, tokens = _case(*request)
                outcome = marked(mark, text, tokens, problem)
        if os.getpid() != own_pid:
            os._exit(0)          # a process that the reward forked, and that returned like its parent
        if (nonce := _exactly(requests, NONCE)) is None:
            return
        line = memoryview(json.dumps([nonce.decode(), *outcome]).encode() + b"\n")
        while line:
            line = line[os.write(answers, line) :]


def marked(mark: verifiers.Verifier, text: str, tokens: list[int], problem: Problem) -> Answer:
    """One answer: ("score", value), ("none", None), or ("exception", what was raised and where)."""
    try:
        value = mark(text, problem, tokens)
        return ("none", None) if value is None else ("score", float(value))
    except BaseException as e:   # KeyboardInterrupt and GeneratorExit too: the verifier raised it
        return "exception", _in_words(e, mark)


def marked_together(mark: verifiers.Verifier, cases: list[tuple[str, Problem, list[int]]]) -> Answer:
    """Several answers in one call of a user's function: ("scores", values), or ("exception", ...)."""
    if not isinstance(mark, verifiers.PythonReward):
        return "exception", "it marks one text at a time"
    try:
        values = mark.together(cases)
        return "scores", [float("nan") if v is None else v for v in values]
    except BaseException as e:
        return "exception", _in_words(e, mark)


def _case(text: str, tokens: list[int], problem: list[Any]) -> tuple[str, Problem, list[int]]:
    id, prompt, answer, meta = problem
    return text, Problem(id, tuple(Message(*m) for m in prompt), answer, meta=meta), tokens


def _opened(request: dict[str, Any]) -> tuple[verifiers.Verifier, Answer]:
    """The verifier, and the answer to the first request."""
    try:
        mark = verifiers.find(request["verifier"]).mark
        _limit(resource.RLIMIT_CORE, 0)
        if isinstance(mark, verifiers.PythonReward):
            _limit(resource.RLIMIT_DATA, int(request["memory"]))
            sys.path[:0] = [str(Path(mark.path).resolve().parent)]     # as Python does for a script
            sys.path.append(os.getcwd())
            mark.load(request["source"])
        else:
            _limit(resource.RLIMIT_AS, MEMORY)
    except UserError as e:
        return verifiers.exact, ("refused", str(e))
    return mark, ("ready", 0.0)


def _private(number: int) -> int:
    """A new descriptor of the file open at `number`; `number` is then the null device."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    high = _HIGH if soft == resource.RLIM_INFINITY or soft > _HIGH + 16 else 3
    private = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, high)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, number)
    os.close(nothing)
    os.register_at_fork(after_in_child=lambda: _close(private))
    return private


def _close(number: int) -> None:
    with contextlib.suppress(OSError):
        os.close(number)


def _body(requests: int) -> bytes | None:
    length = _exactly(requests, LENGTH)
    return None if length is None else _exactly(requests, int.from_bytes(length, "big"))


def _exactly(requests: int, count: int) -> bytes | None:
    """Exactly `count` bytes; None once the other end is closed."""
    parts = []
    while count:
        part = os.read(requests, min(count, 2**20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _in_words(e: BaseException, mark: verifiers.Verifier) -> str:
    """Type and message of an exception, and the line of a user's file that it came from."""
    try:
        said = f"{type(e).__name__}: {e}"[:SHOWN]
    except BaseException:
        said = f"{type(e).__name__}, whose message cannot be shown"
    if not isinstance(mark, verifiers.PythonReward):
        return said
    own = [line for frame, line in walk_tb(e.__traceback__) if frame.f_code.co_filename == mark.path]
    return f"{said} ({Path(mark.path).name}, line {own[-1]})" if own else said


def _limit(which: int, amount: int) -> None:
    """Lower a limit of this process and its children; a lower one stays."""
    _, most = resource.getrlimit(which)
    amount = amount if most == resource.RLIM_INFINITY else min(amount, most)
    resource.setrlimit(which, (amount, amount))


def _allow_cpu(request: float, allowed: float) -> float:
    """Limit this process and its children to `request` more CPU seconds, for two requests; returns the limit."""
    used = time.process_time()
    if allowed - used >= request:
        return allowed
    amount = math.ceil(used + 2 * request)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    with contextlib.suppress(ValueError):      # a reward may have lowered the limit
        resource.setrlimit(resource.RLIMIT_CPU, (amount if most == resource.RLIM_INFINITY else min(amount, most), most))
    return float(amount)
