"""The terminal's text of `ls`, `methods`, `diff`, `import` and `verdict`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from rich.console import Console
from rich.table import Table

from isocost.cli import text
from isocost.cli.text import show
from isocost.planner.training.study_runs import worded
from isocost.recipe import calls
from isocost.runs import measure
from isocost.screen.terminal import echo
from isocost.screen.words import counted, duration, grouped, visible
from isocost.steps.look.listing import (
    BrokenRow,
    Difference,
    Listing,
    MethodCheck,
    MethodList,
    MetricsTable,
    RunRow,
    StudyRow,
)
from isocost.steps.look.verdict import Verdicts
from isocost.steps.outside.importing import ImportedRuns


@show.register
def show_listing(found: Listing, console: Console) -> None:
    """Studies a line each, runs as a table, then the folders that cannot be read."""
    runs = [r for r in found.found if isinstance(r, RunRow)]
    for s in (r for r in found.found if isinstance(r, StudyRow)):
        name, steps = visible(s.path, lines=False), ", ".join(s.steps) or "no step yet"
        console.print(
            f"[bold]{name}[/]  {_of(s)}: {steps}; {duration(s.seconds)}"
            + (f"; audit: {s.verdict}" if s.verdict else ""),
            highlight=False,
        )
    if runs:
        console.print(_runs(runs))
    for r in (r for r in found.found if isinstance(r, BrokenRow)):
        console.print(f"[bold]{visible(r.path, lines=False)}[/]  [red]broken[/]: {r.broken}", highlight=False)
    if not found.found:
        console.print("no study and no run here; `isocost quickstart` makes one")


def _of(study: StudyRow) -> str:
    """What a study is of; logs of other trainers, and those who import them, may name neither model nor problems."""
    if study.model == study.data == measure.UNNAMED:
        return "model and problems not named"
    model = "a model that is not named" if study.model == measure.UNNAMED else study.model
    return f"{model} on {'problems that are not named' if study.data == measure.UNNAMED else study.data}"


def _runs(runs: list[RunRow]) -> Table:
    """One row per run; the unit of cost and the kind of reward are in the header if all runs share them."""
    table = Table(box=None, pad_edge=False)
    units, kinds = {r.unit for r in runs}, {r.reward for r in runs}
    spent = units.pop() if len(units) == 1 else "C"
    reward = kinds.pop() if len(kinds) == 1 else "reward"
    for name in ("run", "method", "purpose", "n", "B", "lr", "seed", spent, reward, "ended"):
        table.add_column(
            name, justify="right" if name in ("n", "B", "lr", "seed", spent) else "left", overflow="fold"
        )
    for r in runs:
        held = "" if r.first is None or r.last is None else f"{r.first:.3f} -> {r.last:.3f}"
        held += f" ({r.reward})" if held and reward != r.reward else ""
        own = measure.from_to(r.scale, r.first, r.last) if r.first is not None and r.last is not None else ""
        held += f" ({own})" if own else ""
        table.add_row(
            visible(r.path, lines=False), r.method, r.purpose, str(r.arm["n"]), str(r.arm["B"]), f"{r.arm['lr']:.1e}",
            str(r.seed), str(r.rollouts) + ("" if spent == r.unit else f" {r.unit}"), held, r.ended,
        )
    return table


@show.register
def show_table(found: MetricsTable, console: Console) -> None:
    """The rows that were written, and the file."""
    echo(f"{counted(found.count, 'row')} in {found.path}")


# methods ------------------------------------------------------------------------------------------------------


@show.register
def show_method_list(found: MethodList, console: Console) -> None:
    """One row per method, then those that cannot be loaded."""
    table = Table(box=None, pad_edge=False)
    for name in ("method", "year", "parent", "changes", "claim"):
        table.add_column(name, overflow="fold")
    for m in (m for m in found.methods if m.broken is None):
        changes = "all (the root)" if m.parent is None else ", ".join(m.changes)
        table.add_row(m.name, str(m.year), m.parent or "", changes, m.claim)
    console.print(table)
    for m in (m for m in found.methods if m.broken is not None):
        console.print(f"{m.name}: {m.broken}", highlight=False, markup=False, soft_wrap=True)


@show.register
def show_method_check(found: MethodCheck, console: Console) -> None:
    """One line per promise, with the reason where it is broken, then the result."""
    for f in found.findings:
        echo(f"{f.state:<9} {f.promise}" + (f"\n          {f.why}" if f in found.broken else ""))
    counts = f"breaks {len(found.broken)} of {counted(len(found.findings), 'promise')}"
    echo(f"{found.method} {counts if found.broken else 'keeps the contract'}")


@show.register
def show_difference(found: Difference, console: Console) -> None:
    """The seams that differ, with either side's value.

    A function that only one side has is printed as module:name, with the hash of its source if it is outside the
    package. A function that both sides have is printed by its name, with its settings.
    """
    a, b = found.a, found.b
    if not found.changed:
        console.print(f"{a} and {b} are the same recipe", highlight=False, markup=False, soft_wrap=True)
    for k, (left, right) in found.changed.items():
        both = _functions(left) & _functions(right)
        console.print(f"[bold]{k}[/]", highlight=False)
        for name, value in ((a, left), (b, right)):
            console.print(f"  {name}: {_short(value, both)}", highlight=False, markup=False, soft_wrap=True)
    (old, one), (new, other) = found.code
    if one != other:
        console.print(
            f"{a} is of isocost {old}, sources {one}, and {b} of isocost {new}, sources {other}: a function of the "
            "same name may differ between them", highlight=False, markup=False, soft_wrap=True,
        )


def _functions(x: Any) -> set[tuple[str, str]]:
    """The functions in a described value: module:name, and the hash of the source if outside the package."""
    return {(c["fn"], c.get("source", "")) for c in calls(x)}


def _short(x: Any, both: Collection[tuple[str, str]]) -> str:
    """A described value as a call; functions that are not in `both` with their module and the hash of their source."""
    if isinstance(x, dict) and "fn" in x:
        settings = ", ".join(f"{k}={_short(v, both)}" for k, v in x.items() if k not in ("fn", "source"))
        known = (x["fn"], x.get("source", "")) in both
        fn = x["fn"].split(":")[-1] if known else x["fn"]
        source = f" [source {x['source']}]" if not known and "source" in x else ""
        return fn + (f"({settings})" if settings else "") + source
    return "[" + ", ".join(_short(i, both) for i in x) + "]" if isinstance(x, list) else str(x)


# imports and verdicts -----------------------------------------------------------------------------------------


@show.register
def show_imported(found: ImportedRuns, console: Console) -> None:
    """One line per run, then what the logs lack, each thing once."""
    for r in found.runs:
        own = measure.from_to(r.scale, r.first, r.last)
        echo(
            f"{r.run}  from {r.log} ({r.source}): {worded(r.arm)}, lr = {r.arm['lr']:.2g}, seed "
            f"{r.seed}; {counted(r.points, 'point')} to {grouped(r.C)} {r.unit}; {r.metric} {r.first:.3f} -> "
            f"{r.last:.3f} ({'; '.join(filter(None, (r.kind, own)))})"
            + (f"; diverged: {r.metric} is NaN or infinite to the log's end" if r.diverged else "")
        )
    lacks = Counter(m for r in found.runs for m in r.missing)
    for what, count in lacks.most_common():
        echo(f"missing{'' if count == len(found.runs) else f' in {count} of {len(found.runs)}'}: {what}")


@show.register
def show_verdicts(found: Verdicts, console: Console) -> None:
    """The verdict on each run."""
    for v in found.runs:
        over = {"reason": v.reason, "detail": v.detail}
        text.verdict(console, v.verdict, v.per_cost, over=over, measured=v.measured)
