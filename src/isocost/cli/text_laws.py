"""The terminal's text of `laws`."""

from __future__ import annotations

from rich.console import Console

from isocost.cli.text import show
from isocost.screen.terminal import echo
from isocost.screen.words import counted
from isocost.steps.look.laws import LawList, PointsFit


@show.register
def show_laws(found: LawList, console: Console) -> None:
    """Three lines per law; * marks those that `isocost laws fit` can fit to points."""
    for law in found.laws:
        echo(f"{law.name + ' *' * law.points:18} {law.equation}")
        echo(f"{'':18} from {law.data}; {law.where}")
        echo(f"{'':18} {law.source}")
    echo("* isocost laws fit LAW POINTS.csv; the others are functions in Python, see docs/laws.md")


@show.register
def show_points_fit(found: PointsFit, console: Console) -> None:
    """The parameters with their intervals, and which points these treat as independent."""
    of = f" of {counted(found.runs, 'run')}" if found.runs else ""
    echo(f"{found.equation}   ({counted(found.points, 'point')}{of})")
    for p in found.parameters:
        where = "interval open" if p.low is None or p.high is None else f"{p.low:.4g} to {p.high:.4g}"
        echo(f"  {p.name:8} {p.value:<10.4g} {where}")
    echo(f"{found.level:.0%} intervals: {found.draws}")
