"""Launches as jobs of Slurm, by `sbatch`, `squeue` and `scancel` (tested with Slurm 22.05).

A job's name is its launch's key and a hash of its folder, so a driver that was killed between submission and the note
of the job's number finds it again. Slurm forgets a job soon after its end, and does not start one again whose process
was killed; so a job that `squeue` does not list is gone, and what it did is read from its folder. Slurm may also queue
a job a second time: after a node failure, a preemption or `scontrol requeue`. It holds such a job for two minutes, and
the log would have the lines of two processes. So the job is cancelled, a second start of its script ends at once, and
the run's next attempt is a job of its own. What a job needs of the cluster (partition, GPUs, time) is given in the
environment as sbatch itself reads it: SBATCH_PARTITION, SBATCH_GPUS, SBATCH_TIMELIMIT.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from isocost.errors import UserError
from isocost.runs.launch.launcher import OUTPUT, STARTED, Launch, State, job_name, keep_ticket, ticket_of, write_script

QUEUED = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
AWAY = re.compile("Unable to contact slurm controller|Socket timed out|Transport endpoint|Connection (refused|reset)")
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)      # seconds between tries while the controller does not answer
WAITS = (*QUEUED, "CONFIGURING", "SUSPENDED")


class Slurm:
    """The launcher `slurm`."""

    name = "slurm"

    def submit(self, launch: Launch) -> None:
        """Submit the job, unless one of its key was before. Raises UserError if sbatch is not there or rejects it."""
        if ticket_of(launch.folder) or (launch.folder / STARTED).exists():
            return
        name = job_name(launch)
        if there := _run("squeue", "--noheader", "--me", f"--name={name}", "--format=%i").split():
            keep_ticket(launch.folder, launcher=self.name, key=launch.key, job=there[0])
            return
        script = write_script(launch)
        job = _run(
            "sbatch", "--parsable", "--open-mode=append", f"--job-name={name}",
            f"--output={launch.folder / OUTPUT}", f"--chdir={launch.cwd}", str(script),
        ).strip().partition(";")[0]
        keep_ticket(launch.folder, launcher=self.name, key=launch.key, job=job)

    def look(self, folders: Sequence[Path]) -> Mapping[Path, State]:
        """By squeue's state of each job; a job that it does not list is gone, and so is one that is queued again."""
        listed = dict(
            line.split(maxsplit=1) for line in _run("squeue", "--noheader", "--me", "--format=%i %T").splitlines() if
            line.strip()
        )
        states = {}
        for folder in folders:
            job = str(ticket_of(folder).get("job"))
            if listed.get(job, "").strip() in QUEUED and (folder / STARTED).exists():
                _run("scancel", job)
                del listed[job]
            states[folder] = _state(listed.get(job))
        return states

    def stop(self, folder: Path, *, now: bool = False) -> None:
        """scancel, which sends SIGTERM and, after the cluster's KillWait, SIGKILL; with `now`, SIGKILL."""
        if job := ticket_of(folder).get("job"):
            _run("scancel", *(["--signal=KILL", "--full"] if now else []), str(job))

    def rest(self, seconds: float) -> None:
        """Sleep: to look more often would ask squeue more often."""
        time.sleep(seconds)


def _state(listed: str | None) -> State:
    if listed is None or listed.strip() in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
                                            "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"):
        return State.GONE
    return State.WAITING if listed.strip() in WAITS else State.RUNNING


def _run(*words: str) -> str:
    """What a command of Slurm printed, tried again for a minute. Raises UserError if it is not there or fails."""
    for pause in (*PAUSES, 0.0):
        try:
            done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ), check=False)
        except FileNotFoundError:
            raise UserError(f"--launch slurm: there is no {words[0]} on this machine; start isocost where jobs are "
                            "submitted") from None
        if not done.returncode or not AWAY.search(done.stderr) or words[0] == "sbatch":
            break
        time.sleep(pause)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise UserError(f"{shlex.join(words[:1])} failed: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout
