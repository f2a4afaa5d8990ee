"""The terminal's text of the results of a study: the answer first, numbers with their intervals, then warnings.

`show(result, console)` prints one result or event by its type. Its functions for other types are in `text_*.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from functools import singledispatch
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table as Columns

from isocost.laws.curves import PASS
from isocost.planner.stopping import StoppingVerdict
from isocost.planner.training.learning_rate import RateRule
from isocost.screen.display import Result, Table, TextResult
from isocost.screen.terminal import echo
from isocost.screen.words import counted, duration
from isocost.steps.events import CostSample, Extended, StudyStart

# Events and lists register their texts when these are imported; those that import most come last.
OTHERS = (
    "text_run", "text_rollouts", "text_environments", "text_listing", "text_compare", "text_laws", "text_doctor",
)


@singledispatch
def show(result: object, console: Console) -> None:
    """Print a result, or an event of a step. Raises TypeError for a type that has no text."""
    if isinstance(result, Result) and type(result).rows is not Result.rows:
        return rows(result, console)
    for name in OTHERS:     # in turn, so that no command imports modules that it does not need
        importlib.import_module(f"isocost.cli.{name}")
        registered = show.dispatch(type(result))
        if registered is not show.dispatch(object):
            return registered(result, console)
    raise TypeError(f"no text for {type(result).__name__}")


def rows(result: Result, console: Console) -> None:
    """The heading of a result, and its rows."""
    if result.heading:
        head(console, escape(result.heading))
    for row in result.rows():
        if isinstance(row, Table):
            console.print(columns(row))
            continue
        text = f"{row.name}: {row.text}" if row.name else row.text
        if row.kind == "flag":
            console.print(f"  [yellow]! {escape(text)}[/]")
        else:
            console.print(f"  {text}", markup=False, highlight=False, soft_wrap=row.kind == "command")


def columns(table: Table) -> Columns:
    """A table as the console prints it."""
    out = Columns(box=None, pad_edge=False)
    for i, name in enumerate(table.heads):
        out.add_column(name if i else f"  {name}", justify="left" if i in table.left else "right")
    for first, *more in table.cells:
        out.add_row(f"  {first}", *more)
    return out


def head(console: Console, title: str) -> None:
    console.print(f"\n[bold]{title}[/]")


@show.register
def opening(e: StudyStart, console: Console) -> None:
    console.print(
        f"[bold]isocost[/] study in {e.folder} (size {e.size}, seed {e.seed}): profile, plan, pilot, fit, plan, train, "
        "audit"
    )


def flags(console: Console, texts: Iterable[str]) -> None:
    for text in texts:
        console.print(f"  [yellow]! {text}[/]")


@show.register
def rate(r: RateRule, console: Console) -> None:
    head(console, "learning rate")
    console.print(f"  {r.why}")
    flags(console, r.flags)


def verdict(
    console: Console, v: StoppingVerdict, per_cost: Mapping[str, float], *, over: Mapping[str, str],
    measured: Mapping[str, str]
) -> None:
    """A verdict on one run: the word first, then its reasons. `over` is the reason and the detail of its end, both
    empty while it trains. `measured` is what its rewards are, by `measure.of`; those of isocost's own runs have no name
    there, and are on the validation split."""
    colour = {"continue": "green", "stop": "red", "change n": "yellow"}[v.word]
    word = f"change n to {v.n}" if v.word == "change n" else v.word
    what = "" if v.metric == PASS else f"{v.metric} "
    latest = f"{what}{v.reward:.3f} on the validation split"
    if measured["metric"]:
        latest = f"{measured['metric']} {v.reward:.3f} ({measured['kind']} reward)"
    latest += f" after {v.C:,.0f} of {v.end:,.0f} {measured['unit']}"
    if over["reason"]:
        detail = f" ({over['detail']})" if over["detail"] else ""
        console.print(f"[bold]{v.run}[/]: ended, {over['reason']}{detail}\n  {latest}", highlight=False, soft_wrap=True)
        return
    console.print(f"[bold]{v.run}[/]: [{colour}]{word}[/]", highlight=False)
    f = v.final
    prior = "the law and its own curve" if v.prior == "law" else "its own curve alone"
    where = "" if measured["metric"] else ", on the test split"
    console.print(
        f"  {latest}; expected at the end{where}, {f} ({f.level:.0%} prediction interval, by "
        f"{prior}, {counted(v.looks, 'evaluation')})", highlight=False
    )
    console.print(f"  {v.why}", markup=False, highlight=False)
    if per_cost:
        told = "  ".join(f"{x:+.3g} {k.replace('_', ' ')}" for k, x in per_cost.items())
        console.print(f"  expected reward {told}", highlight=False)


@show.register
def plain_text(t: TextResult, console: Console) -> None:
    """The text as it is, in lines of any length."""
    echo(str(t), nl=False)


@show.register
def extended(e: Extended, console: Console) -> None:
    console.print(
        f"  adds {e.rollouts:,} rollouts and about {duration(e.seconds)} of run time to a pilot of {e.before:,} "
        f"rollouts; time is {e.source}", highlight=False
    )


def pricing(console: Console, cost: Mapping[str, Any], folder: Path | None = None) -> None:
    """What estimating a cost has sampled, and the folder where that is recorded, if it is."""
    show(CostSample.of(cost, folder), console)
