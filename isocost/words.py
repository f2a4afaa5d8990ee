"""Counts in sentences, rows in a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def counted(k: int | float, noun: str) -> str:
    """How many of a thing: '1 run', '3 runs', '0 runs'. Of a noun of several words the last one takes the s."""
    return f"{k:,.0f} {noun}" if k == 1 else f"{k:,.0f} {noun}s"


def markdown_table(head: Sequence[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table; numbers are written as given, and a | in a cell does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(x).replace("|", "\\|") for x in line) + " |" for line in lines) + "\n"
