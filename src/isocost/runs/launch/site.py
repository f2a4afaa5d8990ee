"""Where runs are executed: in processes of this machine, or on a cluster. Results do not depend on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.runs.job import Job
from isocost.runs.launch import local

PROCESSES, RAY, SLURM = "local", "ray", "slurm"
SITES = (PROCESSES, RAY, SLURM)


@dataclass(frozen=True)
class Site:
    """Where runs are executed.

    `to` is one of `SITES`, or None for the study's own or this machine. `address` and `gpus` are of a Ray cluster
    (`on_ray.run_all`). Slurm executes runs of a user's trainer only.

    Raises UserError for another site, and for options of a cluster without one.
    """

    to: str | None = None
    address: str | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.to not in (None, *SITES):
            raise UserError(f"--launch {self.to!r}: expected one of {', '.join(SITES)}")
        if self.to != RAY and (self.address or self.gpus):
            option = "--address" if self.address else "--gpus-per-run"
            raise UserError(f"{option} is of a cluster: add --launch ray, or leave it out")

    def data(self) -> dict[str, Any]:
        """As the settings of a study of a user's trainer have it."""
        return {"launch": self.to or PROCESSES,
                **({"address": self.address, "gpus": self.gpus} if self.address or self.gpus else {})}

    @property
    def fills(self) -> bool:
        """Whether the site itself decides how many runs go side by side, unless a number is given."""
        return self.to == RAY

    def run_all(
        self, jobs: Sequence[Job], folder: Path, *, workers: int | None, watch: Callable[[], None] = lambda: None
    ) -> list[dict[str, Any]]:
        """Run every job in `folder/name` there, at most `workers` side by side, as `local.run_all`; none on Slurm."""
        if self.to == SLURM:
            raise UserError("--launch slurm is for runs of a trainer of yours; for isocost's own: local or ray")
        if self.to == RAY:
            from isocost.runs.launch import on_ray

            address = self.address or on_ray.AUTO
            return on_ray.run_all(jobs, folder, workers=workers, watch=watch, address=address, gpus=self.gpus)
        return local.run_all(jobs, folder, workers=workers or 1, watch=watch)


HERE = Site()
