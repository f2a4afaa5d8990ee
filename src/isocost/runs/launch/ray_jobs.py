"""Launches as jobs of a Ray cluster, by Ray's job submission (the API of Ray 2.60's `ray.job_submission`).

A job's submission id is its launch's name, and Ray rejects a second job of one id. A job that Ray does not list is
gone, as is one that ended, and what it did is read from its folder, which every node must see at the same path. The
command runs on any node that has room for it; a trainer that uses Ray itself takes its GPUs from the same cluster.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.runs.launch.launcher import STARTED, Launch, State, job_name, keep_ticket, ticket_of, write_script

STATES = {"PENDING": State.WAITING, "RUNNING": State.RUNNING}


class RayJobs:
    """The launcher `ray`. `address` is that of the cluster's dashboard, as in http://HEAD:8265; without one Ray finds
    the cluster of this machine. `gpus` are those of a job's own process."""

    name = "ray"

    def __init__(self, address: str | None = None, gpus: float = 0.0) -> None:
        self.address, self.gpus = address, gpus
        self._client: Any = None

    @property
    def client(self) -> Any:
        """Ray's client, connected. Raises UserError if Ray is not installed, or no cluster answers."""
        if self._client is None:
            try:
                from ray.job_submission import JobSubmissionClient
            except ImportError as e:
                raise UserError("--launch ray needs Ray's job submission: pip install 'ray[default]'") from e
            self._client = self._asked(lambda: JobSubmissionClient(self.address))
        return self._client

    def submit(self, launch: Launch) -> None:
        """Submit the job, unless one of its name was before. Raises UserError if no cluster answers or takes it."""
        if ticket_of(launch.folder) or (launch.folder / STARTED).exists():
            return
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", job_name(launch))
        if name not in self._jobs():
            entry = f"sh {shlex.quote(str(write_script(launch, output=True)))}"
            self._asked(lambda: self.client.submit_job(
                entrypoint=entry, submission_id=name, entrypoint_num_cpus=1, entrypoint_num_gpus=self.gpus or None,
            ))
        keep_ticket(launch.folder, launcher=self.name, key=launch.key, job=name)

    def look(self, folders: Sequence[Path]) -> Mapping[Path, State]:
        """By Ray's state of each job; a job that it does not list, or that ended, is gone."""
        jobs = self._jobs() if folders else {}
        return {folder: STATES.get(jobs.get(str(ticket_of(folder).get("job")), ""), State.GONE) for folder in folders}

    def stop(self, folder: Path, *, now: bool = False) -> None:
        """Ask Ray to stop the job: it sends SIGTERM, and SIGKILL three seconds later."""
        if job := ticket_of(folder).get("job"):
            self._asked(lambda: self.client.stop_job(job))

    def rest(self, seconds: float) -> None:
        """Sleep: to look more often would ask the cluster more often."""
        time.sleep(seconds)

    def _jobs(self) -> dict[str, str]:
        """Submission id -> state, of every job that the cluster knows."""
        found = self._asked(lambda: self.client.list_jobs())
        return {str(x.submission_id): str(getattr(x.status, "value", x.status)) for x in found if x.submission_id}

    def _asked(self, call: Any) -> Any:
        """What a call to the cluster returned. Raises UserError for whatever went wrong there."""
        try:
            return call()
        except UserError:
            raise
        except Exception as e:      # of many kinds, by version and cause
            line = (str(e).strip() or type(e).__name__).splitlines()[0][:300]
            # Its dashboard takes jobs from all who reach it, so it stays on its own machine.
            raise UserError(f"--launch ray: the Ray cluster at {self.address or 'this machine'} does not run jobs: "
                            f"{line}; start one with `ray start --head`, on a machine with ray[default]; from another "
                            "machine, `ssh -L 8265:127.0.0.1:8265 HEAD` and --address http://127.0.0.1:8265") from e
