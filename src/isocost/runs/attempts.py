"""Attempts of a run: of several processes that were started for one run, only the latest writes to its folder.

    attempts.jsonl   one line per attempt, written before it starts: its number, and why the one before it ended

The lock of `isocost.disk.lock` keeps a second process out, on file systems whose locks reach every node. A cluster may
take a node for dead that still runs, and start its run again. So an attempt carries its number as a fencing token: it
reads the file before it writes, and stops if a later number is there. The two operations are not atomic. What a
superseded process still appends between them goes to a file that nothing reads: a later attempt first replaces every
stream by a copy (`own`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from isocost.errors import UserError
from isocost.runs.files import Stream, no_link, tail

FILE = "attempts.jsonl"
LAST = 4096     # bytes of the file's end that hold its last line
WHY = 200       # characters of a reason that are kept


class Superseded(UserError):
    """A later attempt of the run has been started: this process must not write to the run's folder any more."""


def latest(run: Path) -> int:
    """The number of the last attempt of the run in this folder, from 1; 0 if none was counted."""
    lines = tail(run / FILE, LAST)
    return int(lines[-1]["attempt"]) if lines else 0


def begin(run: Path, after: str = "") -> int:
    """Count a new attempt, which supersedes all earlier ones; returns its number. `after`: why the last one ended."""
    run.mkdir(parents=True, exist_ok=True)
    number = latest(run) + 1
    with closing(Stream.mended(run / FILE)) as file:
        file.write({"attempt": number, "after": after[:WHY]})
        file.sync()
    return number


@dataclass(frozen=True)
class Fence:
    """The right of one attempt to write to its run's folder."""

    run: Path
    attempt: int

    def check(self) -> None:
        """Raises Superseded if a later attempt has been started, or if this one was never counted here."""
        if (last := latest(self.run)) != self.attempt:
            raise Superseded(f"{self.run}: attempt {self.attempt} of this run was replaced by attempt {last}: it stops "
                             "without writing more")


def fence_of(run: Path, attempt: int | None) -> Fence | None:
    """The fence of an attempt with this number. Without a number: of a new attempt, if the run has counted any."""
    if attempt is None:
        if not (run / FILE).exists():
            return None
        attempt = begin(run, "started without a launcher")
    fence = Fence(run, attempt)
    fence.check()
    return fence


def own(streams: Iterable[Path]) -> None:
    """Replace each of these files by a copy of itself: what another process appends to an open one is then lost."""
    for path in streams:
        no_link(path)
        if path.exists():
            copy = path.with_name(f".{path.name}.own")
            copy.unlink(missing_ok=True)
            shutil.copyfile(path, copy, follow_symlinks=False)
            handle = os.open(copy, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(copy, path)
