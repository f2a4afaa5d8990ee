"""Starts the verifier processes, and ends each together with every process that it started.

    the run -- this process -- a supervisor -- a worker (`verify.worker`) -- processes that a reward starts

This process imports what every worker needs once (on Linux; elsewhere a fork after that is not safe) and forks a
supervisor for each worker, so that a lost worker is replaced in milliseconds. A supervisor adopts orphans
(Linux: PR_SET_CHILD_SUBREAPER), so a process that a reward detached with `setsid` or a double fork ends with its worker
too. Elsewhere the worker's process group ends.

Run as a script by `verify.processes`, with the number of a socket: one message with four descriptors for each worker.
`life`: the supervisor ends everything when its other end is closed. `requests` and `answers` are the worker's.
`report`: once everything has ended, its exit status, or minus the number of the signal that ended it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

LEFT = 64 + 4 * (os.cpu_count() or 1)     # processes that a reward may have running at a time
TOO_MANY = 1000                           # a status: it had more
TICK = 1.0                                # seconds between counts
_PDEATHSIG, _SUBREAPER = 1, 36            # of Linux' prctl


def main(control: int, imports: list[str]) -> None:
    """Start a worker for every message on the socket `control` until it is closed."""
    run = socket.socket(fileno=control)
    run.set_inheritable(False)
    if sys.platform == "linux":
        for name in ("isocost.tasks.verify.worker", *imports):
            with contextlib.suppress(ImportError):      # a missing library raises when it is used
                importlib.import_module(name)
    while True:
        message, given, _, _ = socket.recv_fds(run, 1, 4)
        if not message:
            return
        if os.fork() == 0:
            run.close()
            with contextlib.suppress(BaseException):
                _supervise(*given)
            os._exit(0)
        for one in given:
            os.close(one)
        _reaped()


def _supervise(life: int, requests: int, answers: int, report: int) -> None:
    """Fork the worker, wait until it ends or `life` is closed at its other end, end the rest, and report its status."""
    os.setsid()
    _prctl(_SUBREAPER, 1)
    own = os.getpid()
    worker = os.fork()
    if worker == 0:
        os.setsid()
        _prctl(_PDEATHSIG, signal.SIGKILL)
        for one in (life, report):
            os.close(one)
        for number, one in enumerate((requests, answers)):
            os.dup2(one, number)
            os.close(one)
        try:
            if os.getppid() == own:       # or it ended before the lines above
                _work()
        finally:                          # without running what a reward registered for its process's exit
            os._exit(0 if sys.exc_info()[0] is None else 1)
    os.close(requests)                    # only the worker holds them, so the run's ends close with it
    os.close(answers)
    status = _watch(worker, life)
    _end(worker)
    with contextlib.suppress(OSError):
        os.write(report, b"%d" % status)


def _work() -> None:
    with contextlib.suppress(OSError):    # if memory runs out, the system should kill this process and not the run
        Path("/proc/self/oom_score_adj").write_text("1000")
    from isocost.tasks.verify.worker import main as work

    work()


def _watch(worker: int, life: int) -> int:
    """The worker's status, `TOO_MANY`, or 0 if the run requested its end."""
    wake, woken = os.pipe()
    for end in (wake, woken):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        for pid, status in _reaped():
            if pid == worker:
                return os.waitstatus_to_exitcode(status)
        if len(_descendants(os.getpid())) > LEFT:
            return TOO_MANY
        ready, _, _ = select.select([life, wake], [], [], TICK)
        if life in ready:
            return 0
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)


def _reaped() -> list[tuple[int, int]]:
    """Reap the children that have ended: (process id, wait status) of each."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (one := os.waitpid(-1, os.WNOHANG))[0]:
            found.append(one)
    return found


def _end(worker: int) -> None:
    """Kill the worker's group, then its other processes until none is left, or 5 s have passed."""
    with contextlib.suppress(OSError):
        os.killpg(worker, signal.SIGKILL)
    until = time.monotonic() + 5.0
    while (left := _descendants(os.getpid())) and time.monotonic() < until:
        for number in (signal.SIGSTOP, signal.SIGKILL):     # stopped first, so that none starts another meanwhile
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        time.sleep(0.002)       # poll: a killed process takes a moment to end
        _reaped()


def _descendants(pid: int) -> list[int]:
    """Ids of the descendants of a process; empty if the system has no /proc."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        for thread in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                waiting += map(int, thread.read_text().split())
        found.append(one)
    return found[1:]


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
