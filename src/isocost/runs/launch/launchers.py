"""The launchers, by the names that `--launch` takes."""

from __future__ import annotations

from collections.abc import Callable

from isocost.errors import UserError
from isocost.runs.launch.launcher import Launcher
from isocost.runs.launch.processes import Processes
from isocost.runs.launch.slurm import Slurm

LAUNCHERS: dict[str, Callable[[], Launcher]] = {"local": Processes, "slurm": Slurm}


def launcher_of(name: str) -> Launcher:
    """The launcher of this name. Raises UserError if there is none."""
    if name not in LAUNCHERS:
        raise UserError(f"unknown launcher {name!r}; expected one of {', '.join(LAUNCHERS)}")
    return LAUNCHERS[name]()
