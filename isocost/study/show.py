"""What a user sees while runs go on: which run, reward so far, how far, time left. Reads the records, nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from isocost.run import Job

TAIL = 8192  # bytes of a stream's end that surely hold its last lines


class Watch:
    """A live table over running jobs; on something that is not a terminal, a line now and then."""

    def __init__(self, title: str, jobs: Sequence[Job], folder: Path, console: Console):
        self.title, self.jobs, self.folder, self.console = title, jobs, folder, console
        self.live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self.began, self.done_before, self.said = time.perf_counter(), self._done(), time.perf_counter()

    def __enter__(self) -> Watch:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.live:
            self.live.stop()

    def __call__(self) -> None:
        """Show how things stand now."""
        if self.live:
            self.live.update(self._table())
        elif time.perf_counter() - self.said > 15:
            self.said = time.perf_counter()
            self.console.print(f"  {self.title}: {self._summary()}", highlight=False)

    def _progress(self, job: Job) -> tuple[float, float | None]:
        """(share of the budget spent, latest held-out reward)."""
        lines = tail(self.folder / job.name / "metrics.jsonl")
        unit, limit = next(iter(job.budget.items()))
        spent = max((x.get(unit, 0) for x in lines), default=0)
        rewards = [x["eval/select"] for x in lines if "eval/select" in x]
        ended = (self.folder / job.name / "end.json").exists()
        return (1.0 if ended else min(spent / limit, 0.99)), rewards[-1] if rewards else None

    def _done(self) -> float:
        return sum(self._progress(j)[0] * _size(j) for j in self.jobs)

    def _summary(self) -> str:
        total, done = sum(map(_size, self.jobs)), self._done()
        passed = time.perf_counter() - self.began
        rate = (done - self.done_before) / passed
        left = f", about {duration((total - done) / rate)} left" if rate > 0 else ""
        return f"{done / total:.0%} of {len(self.jobs)} runs after {duration(passed)}{left}"

    def _table(self) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("run", "n", "B", "lr", "seed", "", "held-out"):
            table.add_column(name, justify="left" if name in ("run", "") else "right")
        for job in self.jobs:
            share, reward = self._progress(job)
            if 0 < share < 1:
                table.add_row(
                    job.name,
                    str(job.n),
                    str(job.B),
                    f"{job.lr:.1e}",
                    str(job.seed),
                    ProgressBar(total=1.0, completed=share, width=24),
                    "" if reward is None else f"{reward:.3f}",
                )
        return Group(f"{self.title}: {self._summary()}", table)


def tail(path: Path) -> list[dict[str, Any]]:
    """The last whole lines of a stream that may be being written; empty if there is none yet."""
    try:
        with open(path, "rb") as f:
            f.seek(0, 2)
            f.seek(max(f.tell() - TAIL, 0))
            lines = f.read().split(b"\n")
    except FileNotFoundError:
        return []
    whole = lines[:-1] if len(lines) < 2 or lines[0].startswith(b"{") else lines[1:-1]
    return [json.loads(x) for x in whole if x.startswith(b"{")]


def _size(job: Job) -> float:
    return next(iter(job.budget.values()))


def duration(seconds: float) -> str:
    """Seconds as a person would say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
