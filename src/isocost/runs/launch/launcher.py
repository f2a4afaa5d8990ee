"""Launching commands that are not isocost's own: what is launched, and what a launcher promises.

A launch is plain data. A launcher knows whether a process is waiting, running or gone, and never whether its work is
done: that is read from the run's folder. A ticket is the launcher's name for a launch, kept in its folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from isocost.jsonfile import write_json
from isocost.runs.files import read_json

OUTPUT, STARTED, TICKET = "output.txt", "started", "ticket.json"


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
        """Plain data for JSON."""
        return {"key": self.key, "argv": list(self.argv), "env": dict(self.env), "cwd": str(self.cwd)}

    @staticmethod
    def of(data: Mapping[str, Any], folder: Path) -> Launch:
        """The launch that `data()` wrote."""
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


def keep_ticket(folder: Path, **ticket: Any) -> None:
    """Write a launcher's ticket."""
    write_json(folder / TICKET, {"schema": 1, **ticket})


def ticket_of(folder: Path) -> dict[str, Any]:
    """A launch's ticket; empty where it has none."""
    return read_json(folder / TICKET) if (folder / TICKET).exists() else {}
