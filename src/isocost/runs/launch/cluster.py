"""Many runs on a cluster whose nodes share a file system: a run whose node died is started again from its folder.

The folder says whether a run is over, not the scheduler. A scheduler is an implementation of `Cluster`. Tasks and
results are text, so no object of one process is unpickled in another.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from isocost.disk.jsonfile import parsed
from isocost.disk.shape import Keys, flaw
from isocost.errors import Interrupted, RewardFailed, UserError
from isocost.runs import attempts
from isocost.runs.files import REWARD_FAILED, ended, read_json
from isocost.runs.job import Job
from isocost.runs.launch import node
from isocost.runs.launch.local import stops
from isocost.screen.words import visible

log = logging.getLogger("isocost")

POLL = 0.25         # seconds between two looks at the cluster
SAVE_SECONDS = 60.0     # between checkpoints, where the job names neither steps nor seconds
FRUITLESS = 10      # attempts in a row that end without a new checkpoint, after which a run is given up
SHOWN = 40          # characters of a wrong result that are quoted
# What a node returns besides what it logged, by kind.
RESULTS = {
    node.ENDED: Keys({"reason": str}, {"detail": str | None}), node.AGAIN: Keys({"text": str}),
    node.USER: Keys({"text": str}), node.BUG: Keys({"text": str, "node": str}),
    node.SYSTEM: Keys({"text": str, "errno": int | None, "file": str | None}),
}
VISIBLE = 60.0      # seconds until a file that another node wrote must be visible here; NFS caches directories


@dataclass(frozen=True)
class Died:
    """A task that returned nothing: its process or node ended, or it was cancelled before it started."""

    why: str


class Cluster(Protocol):
    """Processes on other machines that run tasks (`isocost.runs.launch.node.attempt`)."""

    def submit(self, task: str, threads: int) -> Any:
        """Queue a task that needs this many processors; returns its ticket."""

    def wait(self, tickets: Sequence[Any], seconds: float) -> Mapping[Any, str | Died]:
        """What the tasks that are over returned; waits at most `seconds` for the first."""

    def cancel(self, ticket: Any) -> None:
        """Remove a queued task; send SIGINT to a running one, whose run then saves and stops."""


@dataclass
class _Run:
    """A run in progress: its job, and what its attempts have come to."""

    job: Job
    folder: Path
    after: str = ""         # why the last attempt ended
    saved: int = -1         # step of the newest checkpoint when the last attempt started
    fruitless: int = 0      # attempts in a row without a newer one

    def task(self) -> str:
        """The task of its next attempt. Raises UserError after too many that made no progress."""
        now = max((int(p.name[5:]) for p in self.folder.glob("checkpoints/step-*")), default=-1)
        self.fruitless = self.fruitless + 1 if self.after and now <= self.saved else 0
        self.saved = now
        if self.fruitless >= FRUITLESS:
            raise UserError(f"run {self.job.name}: {FRUITLESS} attempts in a row ended without a new checkpoint, the "
                            f"last because: {self.after}. Its nodes fail before it can save, or lack memory for it")
        return node.task_of(self.job, self.folder, attempts.begin(self.folder, self.after))


@dataclass
class _Loop:
    """The runs that wait for a process, those that are in flight, and the errors so far."""

    cluster: Cluster
    waiting: deque[_Run]
    side: int | None
    flying: dict[Any, _Run] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)
    heard: set[str] = field(default_factory=set)
    stopping: bool = False

    def submit(self) -> None:
        while self.waiting and not self.stopping and (self.side is None or len(self.flying) < self.side):
            run = self.waiting.popleft()
            try:
                self.flying[self.cluster.submit(run.task(), run.job.setting.machine.threads)] = run
            except UserError as e:
                self.errors.append(e)

    def stop(self) -> None:
        if not self.stopping:
            self.stopping = True
            self.waiting.clear()
            for ticket in self.flying:
                self.cluster.cancel(ticket)

    def collect(self) -> None:
        for ticket, outcome in self.cluster.wait(list(self.flying), POLL).items():
            run = self.flying.pop(ticket)
            run.after = self._after(run, outcome)
            if run.after and not self.stopping:
                self.waiting.appendleft(run)

    def _after(self, run: _Run, outcome: str | Died) -> str:
        """Why the run must be started again; empty if it is over, or an error was noted."""
        if isinstance(outcome, Died):
            return "" if ended(run.folder) else outcome.why
        said, why = _read(outcome)
        if why:
            self.errors.append(UserError(f"run {run.job.name}: a node of the cluster returned no result of a run: "
                                         f"{why}; install the same isocost on every node"))
            return ""
        for text in said["said"]:
            if text not in self.heard:
                self.heard.add(text)
                log.warning("%s", text)
        name, kind = run.job.name, said["kind"]
        if kind == node.ENDED and said["reason"] == REWARD_FAILED:
            self.errors.append(RewardFailed(f"run {name}: {said['detail']}"))
            self.stop()     # a failed reward fails in the other runs too
        elif kind == node.ENDED:
            return self._seen(run, said["reason"])
        elif kind == node.AGAIN:
            return str(said["text"])
        elif kind == node.SYSTEM and said["errno"] is not None:
            self.errors.append(OSError(said["errno"], said["text"], said["file"]))
        elif kind == node.BUG:
            self.errors.append(RuntimeError(f"run {name} failed on the node {said['node']}:\n{said['text']}"))
        else:
            self.errors.append(UserError(f"run {name}: {said['text']}"))
        return ""

    def _seen(self, run: _Run, reason: str) -> str:
        """Empty once the run's folder says that it is over; `interrupted` is a reason to start it again."""
        until = time.monotonic() + VISIBLE
        while reason != "interrupted" and not ended(run.folder):
            if time.monotonic() > until:
                return f"its node reported the end ({reason}), and {run.folder} does not show it here"
            time.sleep(POLL)
        return "" if reason != "interrupted" else "its process was asked to stop (SIGTERM)"


def _read(outcome: str) -> tuple[dict[str, Any], str]:
    """What a node returned, and what is wrong with it; empty if nothing is."""
    try:
        said = parsed(outcome)
    except ValueError as e:
        return {}, f"it {e}"
    why = flaw(said, Keys({"kind": str, "said": list[str]})) or (
        flaw(said, RESULTS[said["kind"]]) if said["kind"] in RESULTS else f"kind is {said['kind'][:SHOWN]!r}")
    return said if not why else {}, visible(why, lines=False)


def run_all(
    jobs: Sequence[Job], folder: Path, cluster: Cluster, *, workers: int | None,
    watch: Callable[[], None] = lambda: None,
) -> list[dict[str, Any]]:
    """Run every job in `folder/name` on a cluster, resuming where one stopped; returns each end.json, in order.

    At most `workers` tasks are in flight; None queues all of them, and the cluster runs as many as it has room for.
    The longest runs start first. `watch` is called a few times a second. Raises what
    `isocost.runs.launch.local.run_all` raises, in the same cases; UserError also for a run that no
    attempt advances, and RuntimeError with the traceback of a bug on a node.
    """
    left = longest_first([j for j in jobs if not ended(folder / j.name)])
    loop = _Loop(cluster, deque(_Run(_saving(j), folder / j.name) for j in left), workers)
    with stops() as stopped:
        try:
            while loop.flying or loop.waiting:
                loop.submit()
                loop.collect()
                watch()
                if stopped:
                    loop.stop()
        finally:
            loop.stop()     # after an error; what is in flight saves and stops
    if loop.errors:
        raise next((e for e in loop.errors if isinstance(e, RewardFailed)), loop.errors[0])
    if stopped:
        raise Interrupted(stopped[0])
    return [read_json(folder / j.name / "end.json") for j in jobs]


def longest_first(jobs: Sequence[Job]) -> list[Job]:
    """Jobs of the largest budget first, then of the smallest batch: the longest first (Graham 1969)."""
    return sorted(jobs, key=lambda j: (-j.budget.get("rollouts", max(j.budget.values())),
                                       j.arm.get("n", 1) * j.arm.get("B", 1)))


def _saving(job: Job) -> Job:
    """The job with checkpoints by time, which change none of its results, if it has none of its own."""
    return job if job.save_every or job.save_seconds else replace(job, save_seconds=SAVE_SECONDS)
