"""Progress of running jobs: reward so far, share of the budget, time left. It reads the records only."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from isocost.disk.jsonfile import TAIL
from isocost.runs.files import ended, tail
from isocost.runs.job import Job
from isocost.runs.speed import together, told
from isocost.screen.words import counted, duration
from isocost.units import ROLLOUTS, STOPS, of_run

EVERY = 15.0  # seconds between lines where there is no terminal


@dataclass(frozen=True)
class Standing:
    """How far a run is, by its record."""

    share: float = 0.0  # of its budget, below 1 until it has ended
    reward: float | None = None  # held out, latest
    clock: Mapping[str, Any] = field(default_factory=dict)  # the last line of timing.jsonl
    waits: bool = False  # for a worker: an earlier command stopped it, and no worker has continued it

    @property
    def going(self) -> bool:
        """Whether a worker runs it: it has written something, has not ended and does not wait."""
        return 0 < self.share < 1 and not self.waits


class Watch:
    """A live table over running jobs; without a terminal, a line every 15 s."""

    def __init__(self, title: str, jobs: Sequence[Job], folder: Path, console: Console):
        self.title, self.jobs, self.folder, self.console = title, jobs, folder, console
        self.live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self.over: dict[str, Standing] = {}  # runs that have ended: their records do not change
        # The clocks when this command started: a run that has written nothing since then waits for a worker.
        self.left = {job.name: _clock(folder / job.name) for job in jobs}
        self.began, self.done_before = time.perf_counter(), self._done(self._look())
        self.said = self.began

    def __enter__(self) -> Watch:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.live:
            self.live.stop()

    def __call__(self) -> None:
        """Show the progress now."""
        if self.live:
            self.live.update(self._table(self._look()))
        elif time.perf_counter() - self.said > EVERY:
            self.said, stand = time.perf_counter(), self._look()
            said = "; ".join([self._summary(stand), *_speed(stand)])
            self.console.print(f"  {self.title}: {said}", highlight=False)

    def _look(self) -> list[Standing]:
        """The progress of every job, in order. Records of ended runs are not read again."""
        stand = []
        for job in self.jobs:
            now = self.over.get(job.name) or standing(job, self.folder / job.name)
            if now.clock and now.clock == self.left[job.name]:
                now = replace(now, waits=True)
            if now.share == 1:
                self.over[job.name] = now
            stand.append(now)
        return stand

    def _done(self, stand: Sequence[Standing]) -> float:
        return sum(s.share * _size(j) for j, s in zip(self.jobs, stand, strict=True))

    def _summary(self, stand: Sequence[Standing]) -> str:
        total, done = sum(map(_size, self.jobs)), self._done(stand)
        passed = time.perf_counter() - self.began
        rate = (done - self.done_before) / passed
        left = f", about {duration((total - done) / rate)} left" if rate > 0 else ""
        return f"{done / total:.0%} of {counted(len(self.jobs), 'run')} after {duration(passed)}{left}"

    def _table(self, stand: Sequence[Standing]) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("run", "n", "B", "lr", "seed", "", "held-out"):
            table.add_column(name, justify="left" if name in ("run", "") else "right")
        for job, now in zip(self.jobs, stand, strict=True):
            if now.going:
                table.add_row(
                    job.name,
                    str(job.arm["n"]),
                    str(job.arm["B"]),
                    f"{job.arm['lr']:.1e}",
                    str(job.seed),
                    ProgressBar(total=1.0, completed=now.share, width=24),
                    "" if now.reward is None else f"{now.reward:.3f}",
                )
        return Group(f"{self.title}: {self._summary(stand)}", *(f"  {x}" for x in _speed(stand)), table)


class Counts:
    """How far a step without jobs is: a line that is redrawn on a terminal; elsewhere a line every 15 s, by a thread,
    since the step may work on one thing for longer."""

    def __init__(self, title: str, console: Console):
        self.title, self.console = title, console
        self.what, self.done, self.total, self.before = "", 0, 0, 0
        self.began = self.since = time.perf_counter()
        self.over = threading.Event()
        self.live = (
            Live(console=console, get_renderable=self.line, refresh_per_second=4, transient=True)
            if console.is_terminal else None
        )
        self.talker = threading.Thread(target=self._talk, daemon=True)

    def __enter__(self) -> Counts:
        if self.live:
            self.live.start()
        else:
            self.talker.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.over.set()
        if self.live:
            self.live.stop()
        else:
            self.talker.join()

    def __call__(self, what: str, done: int = 0, total: int = 0) -> None:
        """Take what the step does now, and how many of how many are done."""
        if total != self.total:
            self.since, self.before = time.perf_counter(), done
        self.what, self.done, self.total = what, done, total

    def line(self) -> str:
        """What is shown now."""
        now = time.perf_counter()
        of = f"{self.done} of {self.total} {self.what}" if self.total else self.what
        rate = (self.done - self.before) / max(now - self.since, 1e-9)
        left = f", about {duration((self.total - self.done) / rate)} left" if rate > 0 else ""
        return f"{self.title}: {of} after {duration(now - self.began)}{left}"

    def _talk(self) -> None:
        while not self.over.wait(EVERY):
            self.console.print(f"  {self.line()}", highlight=False)


def standing(job: Job, run: Path) -> Standing:
    """The progress of a job by its folder, which may not exist yet."""
    lines = tail(run / "metrics.jsonl", TAIL)
    evaluated = [x for x in lines if "eval/select" in x]
    last = evaluated[-1] if evaluated else {}
    share = 1.0 if ended(run) else min(max((_spent(lines, unit) / most for unit, most in job.budget.items())), 0.99)
    return Standing(share, last.get("eval/select"), _clock(run))


def _spent(lines: Sequence[Mapping[str, Any]], unit: str) -> float:
    """The most that lines of metrics.jsonl say of a unit of a run's budget; 0 for one that they do not count."""
    return max((x.get(STOPS[unit]) or 0 for x in lines), default=0)


def _clock(run: Path) -> Mapping[str, Any]:
    """The last line of a run's timing.jsonl; empty where there is none."""
    lines = tail(run / "timing.jsonl", 1024)
    return lines[-1] if lines else {}


def _speed(stand: Sequence[Standing]) -> list[str]:
    """The speed of the running jobs together, as a line; none before the first update."""
    speed = together([s.clock for s in stand if s.going])
    return [told(speed)] if speed else []


def _size(job: Job) -> float:
    return job.budget.get(of_run(ROLLOUTS)) or next(iter(job.budget.values()))
