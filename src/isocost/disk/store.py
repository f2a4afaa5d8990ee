"""A cache on disk for files that take seconds to make: the compiled kernel, and the script of a report.

A cached file has a SHA-256 digest at its end, over what was made and over what it was made from. A file is used if it
and its folder belong to this user, nobody else can write to them, neither is a symbolic link, and the digest matches.
Any other file is made again. What is returned are the bytes that were checked.

The digest detects damage: truncation, an empty file, something else under this name. Against other users of the
machine, owner and mode protect. Nothing protects against code that already runs as this user.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger("isocost")

WAIT = 180.0             # seconds to wait for another process that makes the same; then make it too
OTHERS = stat.S_IWGRP | stat.S_IWOTH
UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT)    # a home that is unusable
_DIGEST = hashlib.sha256().digest_size


def kept(name: str, source: bytes, build: Callable[[], bytes], *, anew: bool = False) -> bytes:
    """The content of the file `name`: from the cache if a sound copy is there, else from `build()`, and then cached.

    `source` is everything that its content depends on. With `anew` it is made in any case. Without a folder that is
    private to this user nothing is stored, and every process makes its own. Raises what `build` raises.
    """
    for folder in _private_folders():
        if not anew and (code := _read(folder, name, source, warn=True)) is not None:
            return code
        if os.access(".", os.W_OK, dir_fd=folder):
            return _built(folder, name, source, build, anew)
    return build()


def _built(folder: int, name: str, source: bytes, build: Callable[[], bytes], anew: bool) -> bytes:
    """What `build()` returns, stored; or a sound copy that another process stored in the meantime."""
    with _alone(folder):
        if not anew and (code := _read(folder, name, source)) is not None:
            return code
        code = build()
        try:
            _write(folder, name, code + _digest(source, code))
        except OSError as e:
            log.warning(f"{name} cannot be stored ({e.strerror}), so every process makes it again")
        return code


def _digest(source: bytes, code: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(source).digest() + code).digest()


# files --------------------------------------------------------------------------------------------------------------


def _read(folder: int, name: str, source: bytes, *, warn: bool = False) -> bytes | None:
    """A sound copy, or None. `warn` logs why a copy that is there is not used."""
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as e:
        why = "it is a symbolic link" if e.errno == errno.ELOOP else str(e.strerror)
    else:
        with open(file, "rb") as opened:
            about = os.fstat(file)
            why = "it is not a file" if not stat.S_ISREG(about.st_mode) else _not_private(about)
            if not why:
                whole = opened.read()
                code, digest = whole[:-_DIGEST], whole[-_DIGEST:]
                if digest == _digest(source, code):
                    return code
                why = "it is damaged, or another version stored it"
    if warn:
        log.warning(f"the stored {name} is not used: {why}")
    return None


def _write(folder: int, name: str, data: bytes) -> None:
    """Write atomically: to a temporary name, synced to disk, then renamed."""
    for stale in os.listdir(folder):             # of processes that were killed
        if stale.startswith(f".{name}."):
            with suppress(FileNotFoundError):
                os.unlink(stale, dir_fd=folder)
    temporary = f".{name}.{os.getpid()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        raise


# folders ------------------------------------------------------------------------------------------------------------


def _private_folders() -> Iterator[int]:
    """Descriptors of the folders that are private to this user, each made if it is missing."""
    for path in _folders():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as e:
            if path.is_symlink():
                log.warning(f"{path} is not used as a cache: it is a symbolic link")
            elif e.errno not in UNWRITABLE:
                log.warning(f"{path} is not used as a cache: {e.strerror}")
            continue
        try:
            about = os.fstat(folder)
            if about.st_uid == os.geteuid() and about.st_mode & OTHERS:     # its files are checked one by one too
                os.fchmod(folder, 0o700)
                about = os.fstat(folder)
            if why := _not_private(about):
                log.warning(f"{path} is not used as a cache: {why}")
            else:
                yield folder
        finally:
            os.close(folder)


def _folders() -> Iterator[Path]:
    """The user's cache, as the XDG specification says; then one in the folder for temporary files."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):                      # the specification: a relative path is invalid and must be ignored
        yield Path(base) / "isocost"
    else:
        with suppress(RuntimeError):             # a user without a home
            yield Path.home() / ".cache" / "isocost"
    yield Path(tempfile.gettempdir()) / f"isocost-{os.geteuid()}"


def _not_private(about: os.stat_result) -> str:
    """"" if it belongs to this user and only this user can write to it, else the reason."""
    if about.st_uid != os.geteuid():
        return f"it belongs to another user (uid {about.st_uid})"
    if about.st_mode & OTHERS:
        return f"other users can write to it (mode {stat.S_IMODE(about.st_mode):o})"
    return ""


@contextmanager
def _alone(folder: int) -> Iterator[None]:
    """Hold the folder's lock while one process makes a file; without it after `WAIT` seconds, or if there is none."""
    until = time.monotonic() + WAIT
    held = False
    while not held and time.monotonic() < until:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = True
        except BlockingIOError:
            time.sleep(0.1)     # poll: flock has no timeout
        except OSError:
            break
    try:
        yield
    finally:
        if held:
            fcntl.flock(folder, fcntl.LOCK_UN)
