"""Printing: no name, no record and no answer of a model can command the terminal it is shown on.

Plain text goes through `echo`, tables and coloured lines through `isocost.console`, which takes longer to load.
"""

from __future__ import annotations

import click

from isocost.words import visible


def echo(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Print plain text, its control characters made visible."""
    click.echo(visible(text), err=err, nl=nl)
