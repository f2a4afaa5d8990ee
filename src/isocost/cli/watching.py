"""What a command prints while a step works: results and notices as they arise, and a live table of running jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from isocost.cli.live import Watch
from isocost.runs.run import Job
from isocost.steps.events import Observer

PERIOD = 0.25       # seconds between two looks at the records of running jobs


class Terminal(Observer):
    """Prints each event by the function that `shows` has for its type, as `show(event, console)`; others not at all."""

    def __init__(self, console: Console, shows: Mapping[type, Callable[..., None]]):
        self.console, self.shows = console, shows

    def on(self, event: object) -> None:
        """Print an event."""
        if show := self.shows.get(type(event)):
            show(event, self.console)

    @contextmanager
    def running(self, title: str, folder: Path, jobs: Sequence[Job]) -> Iterator[None]:
        """Show the progress of running jobs until they have ended."""
        over = threading.Event()
        with Watch(title, jobs, folder, self.console) as watch:

            def refresh() -> None:
                while not over.wait(PERIOD):
                    watch()

            thread = threading.Thread(target=refresh, daemon=True)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()
