"""Many runs on few cores: several worker processes in parallel, each with the thread count of its runs.

A run's bytes depend only on its job and its threads, so the number of workers changes only the wall-clock time.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from isocost.errors import Interrupted, Resumable, RewardFailed, UserError
from isocost.gather import finished
from isocost.runs.files import GO_ON, REWARD_FAILED, read_json
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.terminal import log_is_shown, show_log

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


def ended(path: Path) -> bool:
    """Whether the run in this folder is finished, not absent, in progress, interrupted or stopped by a reward."""
    return (path / "end.json").exists() and read_json(path / "end.json")["reason"] not in GO_ON


def _run(jobs: Sequence[Job], folder: Path, workers: int, watch: Callable[[], None]) -> None:
    with stops() as stopped:
        _run_until(stopped, jobs, folder, workers, watch)
    if stopped:
        raise Interrupted(stopped[0])


@contextmanager
def stops() -> Iterator[list[int]]:
    """The signals that request a stop and arrive in this block, in order; they have no other effect here.

    Only the main thread may set handlers: in another one, such as a server's, signals keep their effect.
    """
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
    threads = max(j.setting.threads for j in jobs)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_set_up, initargs=(threads, os.getpid(), log_is_shown())
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


def _set_up(threads: int, parent: int, logs: bool) -> None:
    """Set up a worker before torch is imported: no spinning threads, Ctrl-C left to the parent, exit with it."""
    if logs:
        show_log()
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["OMP_WAIT_POLICY"] = "passive"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)  # poll: a killed parent sends no message
        os._exit(1)

    threading.Thread(target=watch_parent, daemon=True).start()


def _stop(signum: int, frame: Any) -> None:
    """The signal handler between two runs: the next does not start. During a run, the run's own handler is set."""
    _stop_requested.set()


def _one(job: Job, out: Path) -> None:
    """One run. The pool queues a worker's next run before it can cancel it, so the worker checks for a stop itself."""
    if _stop_requested.is_set():
        return
    try:
        end = finished(run(job, out))
        if end["reason"] == "interrupted":
            _stop_requested.set()
        if end["reason"] == REWARD_FAILED:
            raise RewardFailed(end["detail"])
    except UserError as e:
        raise (RewardFailed if isinstance(e, RewardFailed) else UserError)(f"run {job.name}: {e}") from None
