"""The printer: results and events as text, running jobs as a live display, and results as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from isocost.cli.live import Counts, Watch
from isocost.cli.text import show
from isocost.disk.jsonfile import page
from isocost.runs.job import Job
from isocost.screen.console import console as new_console
from isocost.screen.display import Result
from isocost.screen.terminal import echo
from isocost.steps.events import Observer, Skipped, Tell


class Printer(Observer):
    """Prints the events and results of a step to a console when they occur."""

    def __init__(self, console: Console | None = None):
        self.console = console or new_console()

    def on(self, event: object) -> None:
        """Print an event, or a result."""
        show(event, self.console)

    @contextmanager
    def running(self, title: str, folder: Path, jobs: Sequence[Job]) -> Iterator[Callable[[], None]]:
        """A live table over the jobs; without a terminal, a line every 15 s."""
        with Watch(title, jobs, folder, self.console) as watch:
            yield watch


    @contextmanager
    def counting(self, title: str) -> Iterator[Tell]:
        """A line that is redrawn; without a terminal, a line every 15 s."""
        with Counts(title, self.console) as counts:
            yield counts


class Quiet(Printer):
    """Prints only what goes to stderr: for commands that print JSON."""

    def on(self, event: object) -> None:
        """Print a skipped log."""
        if isinstance(event, Skipped):
            super().on(event)

    running = Observer.running
    counting = Observer.counting


def observer(as_json: bool) -> Printer:
    """The observer of a command."""
    return Quiet() if as_json else Printer()


def printed(result: Result, observer: Printer, as_json: bool) -> None:
    """Print a command's result: as text, or as JSON and nothing else."""
    if as_json:
        echo(page(result.to_dict()))
    else:
        observer.on(result)
