"""Launches as processes of this machine, in process groups of their own: they outlive the driver.

Each holds a lock on a file in its folder from before it starts until it ends, by the file descriptor that it inherits.
So whether it runs is known without its number, which another process may have by then, and after a restart of the
driver.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from isocost.errors import UserError
from isocost.runs.launch.launcher import OUTPUT, STARTED, Launch, State, keep_ticket, ticket_of

HELD = "running.lock"
GLANCE = 0.01       # seconds between two looks at the processes that this one started
ENDING = 1.0        # seconds that a process may take to end once its files are closed


class Processes:
    """The launcher `local`."""

    name = "local"

    def __init__(self) -> None:
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def submit(self, launch: Launch) -> None:
        """Start the process, unless one was in its folder before. Raises UserError if the command cannot be started."""
        lock = os.open(launch.folder / HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if not _free(lock) or (launch.folder / STARTED).exists():
                return
            (launch.folder / STARTED).touch()
            with (launch.folder / OUTPUT).open("ab") as out:
                try:
                    child = subprocess.Popen(
                        launch.argv, env={**os.environ, **launch.env}, cwd=launch.cwd, stdin=subprocess.DEVNULL,
                        stdout=out, stderr=subprocess.STDOUT, start_new_session=True, pass_fds=(lock,),
                    )
                except OSError as e:
                    what = launch.cwd if not launch.cwd.is_dir() else launch.argv[0]
                    raise UserError(f"the trainer's command cannot be started: {what}: {e.strerror}") from None
            keep_ticket(launch.folder, launcher=self.name, key=launch.key, pid=child.pid)
            self._children[launch.folder] = child
        finally:
            os.close(lock)

    def look(self, folders: Sequence[Path]) -> Mapping[Path, State]:
        """Running while the process, or one that it started, holds its lock."""
        states = {folder: State.RUNNING if _held(folder) else State.GONE for folder in folders}
        for folder, child in self._children.items():
            if child.poll() is None and states.get(folder) is State.GONE:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(ENDING)      # its lock is free a moment before it has ended
        return states

    def stop(self, folder: Path, *, now: bool = False) -> None:
        """SIGTERM to the process group; with `now`, SIGKILL."""
        if _held(folder) and (pid := ticket_of(folder).get("pid")):
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL if now else signal.SIGTERM)

    def rest(self, seconds: float) -> None:
        """Sleep until a process that this one started ends, and no longer than these seconds."""
        until, alive = time.monotonic() + seconds, [c for c in self._children.values() if c.poll() is None]
        while (left := until - time.monotonic()) > 0 and all(child.poll() is None for child in alive):
            time.sleep(min(left, GLANCE))


def _held(folder: Path) -> bool:
    """Whether a process of this launch lives."""
    try:
        lock = os.open(folder / HELD, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _free(lock)
    finally:
        os.close(lock)


def _free(lock: int) -> bool:
    """Take the lock; whether nobody had it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
