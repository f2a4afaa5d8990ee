"""Many runs on few cores: several worker processes in parallel, each with the thread count of its runs.

A run's bytes depend only on its job and its threads, so the number of workers changes only the wall-clock time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from isocost.errors import Interrupted, Resumable, RewardFailed, UserError
from isocost.gather import finished
from isocost.runs.files import REWARD_FAILED, ended, read_json
from isocost.runs.job import Job
from isocost.screen.terminal import log_is_shown, show_log

STOPS = (signal.SIGINT, signal.SIGTERM)

_stop_requested = threading.Event()   # of a worker process


def run_all(
    jobs: Sequence[Job], folder: Path, *, workers: int, watch: Callable[[], None] = lambda: None
) -> list[dict[str, Any]]:
    """Run every job in `folder/name`, resuming where one stopped; returns each end.json, in order.

    `watch` is called a few times a second. Raises Interrupted after a signal, and RewardFailed after a run that ended
    for that reason, once every worker has saved; UserError if a folder holds a different run; Resumable if a worker
    process was killed.
    """
    waiting = [j for j in jobs if not ended(folder / j.name)]
    if waiting:
        _run(waiting, folder, min(workers, len(waiting)), watch)
    return [read_json(folder / j.name / "end.json") for j in jobs]


def _run(jobs: Sequence[Job], folder: Path, workers: int, watch: Callable[[], None]) -> None:
    with stops() as stopped:
        _run_until(stopped, jobs, folder, workers, watch)
    if stopped:
        raise Interrupted(stopped[0])


@contextmanager
def stops() -> Iterator[list[int]]:
    """The signals that request a stop and arrive in this block, which have no other effect; in the main thread only."""
    stopped: list[int] = []
    here = STOPS if threading.current_thread() is threading.main_thread() else ()
    before = {s: signal.signal(s, lambda signum, frame: stopped.append(signum)) for s in here}
    try:
        yield stopped
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def _run_until(
    stopped: Sequence[int], jobs: Sequence[Job], folder: Path, workers: int, watch: Callable[[], None]
) -> None:
    threads = max(j.setting.machine.threads for j in jobs)
    pool = ProcessPoolExecutor(
        workers, mp_context=_context(), initializer=_set_up, initargs=(threads, dict(os.environ), log_is_shown())
    )
    try:
        with _signals_blocked():  # a worker inherits the signal mask: signals are blocked until it has its handlers
            futures = [pool.submit(_one, job, folder / job.name) for job in jobs]
        signalled = False
        while left := [f for f in futures if not f.done()]:
            wait(left, timeout=0.25, return_when=FIRST_COMPLETED)
            watch()
            failed = any(f.done() and not f.cancelled() and isinstance(f.exception(), RewardFailed) for f in futures)
            if (stopped or failed) and not signalled:     # a failed reward fails in the other runs too
                signalled = True
                for f in futures:
                    f.cancel()
                for process in pool._processes.values():  # the pool has no public way to pass a signal on
                    if process.pid:
                        with suppress(ProcessLookupError):      # it has died
                            os.kill(process.pid, signal.SIGTERM)
        _raise_first(futures)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _context() -> BaseContext:
    """How workers start: on Linux forked from one process, which imports torch once for all studies of this one."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "isocost.runs.run"])
    return context


@contextmanager
def _signals_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _raise_first(futures: Sequence[Future[None]]) -> None:
    errors = [error for f in futures if not f.cancelled() and (error := f.exception()) is not None]
    for error in errors:
        if not isinstance(error, BrokenProcessPool):
            raise error
    if errors:      # all runs end with a worker that ends without a word
        raise Resumable("a worker process was killed, probably because memory ran out: what was paid for is kept. Run "
                        "the same command again to continue; fewer --workers need less memory") from errors[0]


def _set_up(threads: int, environment: Mapping[str, str], logs: bool) -> None:
    """Set up a worker: this environment, no spinning threads, Ctrl-C left to the parent, exit with it."""
    if logs:
        show_log()
    os.environ.clear()
    os.environ.update({**environment, "OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"})
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    """A killed parent sends no message, but its end of a pipe is closed."""
    parent.join()
    os._exit(1)


def _stop(signum: int, frame: Any) -> None:
    """The signal handler between two runs: the next does not start. During a run, the run's own handler is set."""
    _stop_requested.set()


def _one(job: Job, out: Path) -> None:
    """One run. The pool queues a worker's next run before it can cancel it, so the worker checks for a stop itself."""
    if _stop_requested.is_set():
        return
    from isocost.runs.run import run  # here: the process that starts workers needs no torch

    try:
        end = finished(run(job, out))
        if end["reason"] == "interrupted":
            _stop_requested.set()
        if end["reason"] == REWARD_FAILED:
            raise RewardFailed(end["detail"])
    except UserError as e:
        raise (RewardFailed if isinstance(e, RewardFailed) else UserError)(f"run {job.name}: {e}") from None
