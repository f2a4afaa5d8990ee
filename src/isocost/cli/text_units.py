"""Amounts in the terminal's text of a plan: a budget in every unit, what more of it would buy, and megabytes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from isocost.planner.budget import Budget
from isocost.planner.more import More
from isocost.units import FLOPS, ROLLOUTS, SECONDS, WALL, words
from isocost.words import duration, word


def whole_commands(console: Console, texts: Iterable[str], folder: Path | None, budget: Budget | None) -> None:
    """The commands that a plan's texts name by their options alone, such as `isocost plan --samples 8`, each in a line
    of its own with this study and its budget."""
    named = dict.fromkeys(found for text in texts for found in re.findall(r"`isocost plan (--[^`]+)`", text))
    spend = "" if budget is None else f"--budget {shlex.quote(str(budget))} "
    for options in named if folder is not None else ():
        console.print(f"      isocost plan {word(folder)} {spend}{options}", highlight=False, soft_wrap=True)


def megabytes(mb: float) -> str:
    """MB, from 10,000 on as GB."""
    return f"{mb:.0f} MB" if mb < 10_000 else f"{mb / 1000:.0f} GB"


def units(console: Console, found: Mapping[str, Any] | None, unit: str = ROLLOUTS) -> None:
    """A budget in every unit, and how each is known; nothing where none was written; empty columns are left out.

    `unit` is that of C. In a narrow terminal the last two columns wrap first.
    """
    rows = (found or {}).get("rows", ())
    if not rows:
        return
    table = Table(box=None, pad_edge=False)
    columns = {"pilot": "pilot", "training": "training", "budget": "your budget"}
    told = [k for k in columns if any(r[k] for r in rows)]
    names = ("  in every unit", *(columns[k] for k in told))
    for name in (*names, "", ""):
        table.add_column(name, justify="left" if name in ("  in every unit", "") else "right", no_wrap=bool(name))
    for r in rows:
        name, show = _unit(r["unit"], unit)
        table.add_row(f"  {name}", *(show(r[k]) for k in told), r["known"], r["why"])
    console.print(table)


def _unit(unit: str, of_C: str = ROLLOUTS) -> tuple[str, Callable[[float], str]]:
    """A unit's name for a reader, and the function that writes its amounts. Where C counts another unit than rollouts,
    records have that under the name of rollouts."""
    unit = of_C if unit == ROLLOUTS else unit
    if unit in (SECONDS, WALL):
        return words(unit), duration
    if unit == FLOPS:
        return words(unit), lambda x: f"{x:.1e}"
    return words(unit), lambda x: f"{x:,.0f}" if 100 <= x < 1e10 else f"{x:.3g}"


def more(console: Console, rows: Sequence[More], unit: str = ROLLOUTS) -> None:
    """Gain and cost of more rollouts per run, up to the longest run that the law covers."""
    for m in rows:
        if m.gain is None or m.cost is None:
            continue
        name, show = _unit(m.unit, unit)
        g = m.gain
        gained = f"{g.value:+.3f} [{g.low:+.3f}, {g.high:+.3f}]"
        console.print(f"  {m.times} x the {unit} would buy {gained} (n = {m.n}) for {show(m.cost)} {name} more")
        if m.caution:
            console.print(f"    [yellow]! {m.caution}[/]")
