"""One writer per folder, by a lock that the operating system releases when the process ends, even by a crash."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from isocost.disk import jsonfile
from isocost.errors import UserError

log = logging.getLogger("isocost")

PATIENCE = 0.5  # seconds to wait for a lock


class Held(UserError):
    """Another process holds the lock of a folder."""


@contextmanager
def locked(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Lock a folder, made if it is missing, while this process writes there; waits `patience` seconds for the lock.

    The operating system releases the lock when the process ends. The file `lock` names the process, and is removed with
    the lock; so are folders that were made for it and are empty. Raises UserError, naming that process, if another one
    holds the lock (`Held`). Where the file system has no locks, this is logged as a warning.
    """
    made = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "lock"
    try:
        lock = _lock(path, patience)
        try:
            yield
        finally:
            if lock is not None:
                with suppress(OSError):
                    path.unlink()
                os.close(lock)
    finally:
        with suppress(OSError):     # not empty: something was written
            for p in made:
                p.rmdir()


def _lock(path: Path, patience: float) -> int | None:
    """A descriptor that holds the lock; None if the folder cannot be locked."""
    until = time.monotonic() + patience
    while (lock := _lock_file(path)) is not None:
        try:
            if _take(lock, path):
                return lock
        except OSError as e:
            os.close(lock)
            log.warning("%s cannot be locked (%s); let no other isocost write to it", path.parent, e.strerror)
            return None
        os.close(lock)
        if time.monotonic() > until:
            raise Held(_held(path))
        time.sleep(0.02)            # a process that only tests the lock holds it for a moment too
    return None


def _lock_file(path: Path) -> int | None:
    """The open file; None if the folder is not writable: every later write there fails with its own error."""
    path.parent.mkdir(parents=True, exist_ok=True)      # the previous holder may have removed the folder too
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o644)
    except OSError as e:
        if e.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise UserError(f"{path} cannot be used as a lock ({e.strerror}): remove it") from None
    with suppress(OSError):         # another user's: it can be locked but not written
        return os.open(path, os.O_RDONLY | flags)
    return None


def _take(lock: int, path: Path) -> bool:
    """Whether this process got the lock; then the file names it. Raises OSError if the file system has no locks."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock), os.stat(path)):
            return False
    except (BlockingIOError, FileNotFoundError):        # held; or just removed, and another file may take its place
        return False
    with suppress(OSError):
        os.ftruncate(lock, 0)
        holder = {"pid": os.getpid(), "host": platform.node(), "command": _command()}
        os.write(lock, (jsonfile.line(holder) + "\n").encode())
    return True


def _command() -> str:
    """This command line, at most 200 characters of it."""
    return shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])[:200]


def _held(path: Path) -> str:
    """The message for a locked folder, with the process that its lock file names, if any."""
    holder: Any = None
    with suppress(OSError, ValueError):
        holder = jsonfile.parsed(path.read_bytes()[:4096])
    if not isinstance(holder, dict) or not isinstance(holder.get("pid"), int):
        return f"{path.parent} is being written by another process: wait for it to end, or choose another folder"
    words = "".join(c if c.isprintable() else "?" for c in str(holder.get("command"))[:200])
    host = str(holder.get("host"))
    where = "" if host == platform.node() else f" on {''.join(c for c in host if c.isprintable())[:80]}"
    return (f"{path.parent} is being written by another process, {holder['pid']}{where} ({words}): wait for it to end, "
            "or choose another folder")
