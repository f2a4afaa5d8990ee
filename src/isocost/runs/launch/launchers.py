"""The launchers of commands that are not isocost's own, by the names that `--launch` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isocost.errors import UserError
from isocost.runs.launch.launcher import Launcher
from isocost.runs.launch.processes import Processes
from isocost.runs.launch.ray_jobs import RayJobs
from isocost.runs.launch.site import PROCESSES, RAY, SITES, SLURM
from isocost.runs.launch.slurm import Slurm


def launcher_of(name: str, address: str | None = None, gpus: float = 0.0) -> Launcher:
    """The launcher of this name; `address` and `gpus` are of a Ray cluster. Raises UserError if there is none."""
    if name == RAY:
        return RayJobs(address, gpus)
    if name == SLURM:
        return Slurm()
    if name == PROCESSES:
        return Processes()
    raise UserError(f"unknown launcher {name!r}; expected one of {', '.join(SITES)}")


def launcher_in(asked: Mapping[str, Any]) -> Launcher:
    """The launcher that a study's settings name."""
    return launcher_of(str(asked.get("launch", PROCESSES)), asked.get("address"), float(asked.get("gpus") or 0.0))
