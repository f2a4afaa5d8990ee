"""Printing: no name, no record and no answer of a model can command the terminal it is shown on.

Plain text goes through `echo`, tables and coloured lines through `isocost.screen.console`, which takes longer to load.
"""

from __future__ import annotations

import logging

import click

from isocost.screen.words import visible


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print plain text, its control characters made visible."""
    click.echo(visible(text), err=err, nl=nl)


class _Lines(logging.Handler):
    """Each message as one line on the current stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(f"isocost: {record.getMessage()}", err=True)


def show_log() -> None:
    """Print what the package logs on stderr, as the commands and their worker processes do. A library user does not
    call it: Python's `logging` decides there what the logger "isocost" shows."""
    log = logging.getLogger("isocost")
    if not log_is_shown():
        log.addHandler(_Lines())
        log.setLevel(logging.INFO)


def log_is_shown() -> bool:
    """Whether `show_log` was called in this process."""
    return any(isinstance(h, _Lines) for h in logging.getLogger("isocost").handlers)
