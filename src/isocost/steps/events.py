"""How a step reports what it does while it works: to an observer that the caller passes in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from isocost.runs.run import Job


class Observer:
    """What a caller may watch while a step works. The default ignores everything."""

    def on(self, event: object) -> None:
        """Called with each result and notice as it arises."""

    def running(self, title: str, folder: Path, jobs: Sequence[Job]) -> AbstractContextManager[None]:
        """Entered while jobs run, each in `folder/job.name`, for live progress."""
        return nullcontext()
