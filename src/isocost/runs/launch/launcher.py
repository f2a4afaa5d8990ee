"""Launching commands that are not isocost's own: what is launched, and what a launcher promises.

A launch is plain data. A launcher knows whether a process is waiting, running or gone, and never whether its work is
done: that is read from the run's folder. A ticket is the launcher's name for a launch, kept in its folder.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from isocost.disk.jsonfile import write_json
from isocost.runs.files import read_json

OUTPUT, STARTED, TICKET, SCRIPT = "output.txt", "started", "ticket.json", "job.sh"


class State(StrEnum):
    """Where a launch is. There is no "succeeded": only the run's folder knows."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"


@dataclass(frozen=True)
class Launch:
    """One process to start. `key` names it, study/run/attempt: submitted twice, it is one process.

    `env` are variables in addition to those of this process. Output of `argv` goes to output.txt in `folder`, where the
    launcher keeps its own files too; `cwd` is the directory that the command runs in.
    """

    key: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    cwd: Path

    def data(self) -> dict[str, Any]:
        return {"key": self.key, "argv": list(self.argv), "env": dict(self.env), "cwd": str(self.cwd)}

    @staticmethod
    def of(data: Mapping[str, Any], folder: Path) -> Launch:
        return Launch(data["key"], tuple(data["argv"]), dict(data["env"]), folder, Path(data["cwd"]))


class Launcher(Protocol):
    """Starts launches and tells where they are."""

    name: str

    def submit(self, launch: Launch) -> None:
        """Start it and keep its ticket in its folder; nothing if a launch of its key was started before."""

    def look(self, folders: Sequence[Path]) -> Mapping[Path, State]:
        """The state of each launch, by its folder."""

    def stop(self, folder: Path, *, now: bool = False) -> None:
        """Ask a launch to end; with `now`, end it."""

    def rest(self, seconds: float) -> None:
        """Sleep; less than these seconds if a launch is known to end before."""


def job_name(launch: Launch) -> str:
    """A launch's name on a cluster, where another study may have the same name: its key and a hash of its folder."""
    return f"{launch.key}-{hashlib.sha256(os.fsencode(launch.folder)).hexdigest()[:8]}"


def write_script(launch: Launch, *, output: bool = False) -> Path:
    """Write the script that a job on a cluster runs once; with `output` it sends what is printed to output.txt."""
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in launch.env.items())
    started, script = shlex.quote(str(launch.folder / STARTED)), launch.folder / SCRIPT
    out, cwd = (shlex.quote(str(p)) for p in (launch.folder / OUTPUT, launch.cwd))
    sent = f"exec >> {out} 2>&1\ncd {cwd}\n" if output else ""
    begin = f"[ ! -e {started} ] || exit 0\ntouch {started}\n"
    text = f"#!/bin/sh\n{exports}{begin}{sent}exec {shlex.join(launch.argv)}\n"
    script.write_bytes(os.fsencode(text))       # names of folders need not be UTF-8
    return script


def keep_ticket(folder: Path, **ticket: Any) -> None:
    """Write a launcher's ticket."""
    write_json(folder / TICKET, {"schema": 1, **ticket})


def ticket_of(folder: Path) -> dict[str, Any]:
    """A launch's ticket; empty where it has none."""
    return read_json(folder / TICKET) if (folder / TICKET).exists() else {}
