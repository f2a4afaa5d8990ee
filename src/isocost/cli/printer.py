"""The printer: results and events as text, running jobs as a live display, and results as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Columns

from isocost.cli.live import Counts, Watch
from isocost.disk.jsonfile import page
from isocost.runs.job import Job
from isocost.screen.console import console as new_console
from isocost.screen.display import Result, Row, Table, TextResult
from isocost.screen.terminal import echo
from isocost.steps.events import Observer, Skipped, Tell

COLOURS = {     # of a word that is the first in its row
    "ok": "green", "warn": "yellow", "fail": "bold red", "cannot tell": "cyan", "BROKEN": "bold red", "broken": "red",
}


def show(result: Any, console: Console) -> None:
    """Print the heading and the rows of a result, or of an event of a step; a text as it is, in lines of any length."""
    if isinstance(result, TextResult):
        echo(str(result), nl=False)
    elif isinstance(result, Skipped):     # on stderr, so that JSON on stdout stays JSON
        echo(f"skipped: {result.text}", err=True)
    else:
        if heading := getattr(result, "heading", ""):
            console.print(f"\n[bold]{escape(heading)}[/]")
        for row in result.rows():
            _print(row, console)


def _print(row: Row | Table, console: Console) -> None:
    if isinstance(row, Table):
        console.print(columns(row), markup=False)
        return
    text = f"{row.name}: {row.text}" if row.name else row.text
    if row.kind == "flag":
        console.print(f"  [yellow]! {escape(text)}[/]")
    elif row.kind == "head":
        console.print(f"[bold]{escape(text)}[/]", soft_wrap=True)
    else:
        console.print(f"  {text}", markup=False, highlight=False, soft_wrap=row.kind == "command")


def columns(table: Table) -> Columns:
    """A table as the console prints it."""
    out = Columns(box=None, pad_edge=False, show_header=any(table.heads))
    for i, name in enumerate(table.heads):
        out.add_column(name if i else f"  {name}", justify="left" if i in table.left else "right", overflow="fold")
    for first, *more in table.cells:
        out.add_row(f"  {first}", *more, style=COLOURS.get(first.strip()))
    return out


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
