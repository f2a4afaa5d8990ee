"""The terminal's text of the results of a study: the answer first, numbers with their intervals, then warnings.

`show(result, console)` prints one result or event by its type. Its functions for other types are in `text_*.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from isocost.cli.text_units import megabytes
from isocost.display import Shown, Text
from isocost.laws.curves import PASS
from isocost.planner.budget import Bill
from isocost.planner.learning_rate import RateRule
from isocost.planner.stopping import StoppingVerdict
from isocost.stats.intervals import Interval
from isocost.steps.events import Extended, Opening, Sampled
from isocost.terminal import echo
from isocost.units import FLOPS, ROLLOUTS, words
from isocost.words import counted, duration

# The results whose text is laid out by hand, with tables or lines that follow from each other: the step's file and the
# result's name, and the function that prints it. No command imports a step that it does not run. Of others the rows are
# printed.
TEXTS = {
    "profile.Profile": "text_profile.profile", "profile.ProfileCost": "text_profile.profile_cost",
    "plans.PilotPlan": "text_plan.pilot_plan", "plans.Plan": "text_plan.plan",
    "fit.Law": "text_law.law", "whole.Whole": "text_run.whole",
    "single.RunCost": "text_run.run_cost", "single.RunEnd": "text_run.run_end",
    "evaluate.Measured": "text_run.measured", "evaluate.MeasuredModel": "text_run.measured_model",
}
# Those of other results register their texts when they are imported; those that import most come last.
OTHERS = (
    "text_run", "text_rollouts", "text_environments", "text_listing", "text_compare", "text_laws", "text_doctor",
)


@singledispatch
def show(result: object, console: Console) -> None:
    """Print a result, or an event of a step. Raises TypeError for a type that has no text."""
    if (where := TEXTS.get(f"{type(result).__module__.removeprefix('isocost.steps.')}.{type(result).__name__}")):
        module, _, name = where.partition(".")
        getattr(importlib.import_module(f"isocost.cli.{module}"), name)(result, console)
        return None
    if isinstance(result, Shown) and type(result).rows is not Shown.rows:
        return rows(result, console)
    for name in OTHERS:     # in turn, so that no command imports modules that it does not need
        importlib.import_module(f"isocost.cli.{name}")
        registered = show.dispatch(type(result))
        if registered is not show.dispatch(object):
            return registered(result, console)
    raise TypeError(f"no text for {type(result).__name__}")


def rows(result: Shown, console: Console) -> None:
    """The heading of a result, and its rows."""
    if result.heading:
        head(console, escape(result.heading))
    for row in result.rows():
        text = f"{row.name}: {row.text}" if row.name else row.text
        if row.kind == "flag":
            console.print(f"  [yellow]! {escape(text)}[/]")
        else:
            console.print(f"  {text}", markup=False, highlight=False, soft_wrap=row.kind == "command")


def head(console: Console, title: str) -> None:
    console.print(f"\n[bold]{title}[/]")


def interval(i: Interval) -> str:
    return f"{i.value:.3f} [{i.low:.3f}, {i.high:.3f}]"


@show.register
def opening(e: Opening, console: Console) -> None:
    console.print(
        f"[bold]isocost[/] study in {e.folder} (size {e.size}, seed {e.seed}): profile, plan, pilot, fit, plan, train, "
        "audit"
    )


def pass_at(found: Sequence[Mapping[str, Any]], console: Console) -> None:
    """pass@k beyond k = 1, with intervals; nothing where none was computed."""
    rows = [f"k={x['k']}: {x['value']:.3f} [{x['low']:.3f}, {x['high']:.3f}]" for x in found if x["k"] > 1]
    if rows:
        console.print(f"  pass@k  {'  '.join(rows)}", markup=False)


def money(m: Mapping[str, Any]) -> str:
    """An amount of money and its price."""
    return f"{m['amount']:.4g} {m['currency']} ({m['price']})"


def spent(
    cost: Mapping[str, Any], paid: Mapping[str, Any] | None, server: Mapping[str, Any] | None, console: Console
) -> None:
    """What sampling a model cost, and how its server answered."""
    worth = f", {money(paid)}" if paid else ""
    console.print(
        f"  cost: {cost.get('rollouts', 0):,} rollouts, {cost.get('prefill', 0):,} tokens read, "
        f"{cost.get('decode', 0):,} written{worth}", markup=False, highlight=False
    )
    if not server:
        return
    again = sum(server["repeated"].values())
    kinds = ", ".join(f"{k}: {n}" for k, n in sorted(server["repeated"].items()))
    console.print(f"  requests: {server['sent']:,} sent, {again:,} of them again{f' ({kinds})' if kinds else ''}, "
                  f"{server['failed']:,} failed", markup=False, highlight=False)
    lacks = []
    if server["failed"]:
        why = "; ".join(server["examples"].values())
        lacks.append(f"{counted(server['failed'], 'request')} failed for good and have no score: {why}")
    if server["unknown"]:
        lacks.append(f"{counted(server['unknown'], 'request')} ended without an answer; the server may bill what is "
                     "not counted here")
    if "seed" in server["dropped"]:
        lacks.append("the server takes no seed: the same command does not sample the same completions")
    if other := [k for k in server["dropped"] if k not in ("seed", "logprobs")]:
        lacks.append(f"the server does not take {', '.join(other)}: where it has defaults of its own, they hold")
    flags(console, lacks)


def bill(b: Bill, unit: str = ROLLOUTS) -> str:
    """What runs cost, in words; what is not known is left out."""
    parts = [f"{b.rollouts:,} {unit}"]
    if b.seconds:
        parts.append(duration(b.seconds) + " of run time")
    if b.flops:
        parts.append(f"{b.flops:.1e} {words(FLOPS)}")
    if b.memory_mb:
        parts.append(f"{megabytes(b.memory_mb)} of memory a run")
    if b.disk_mb:
        parts.append(f"{megabytes(b.disk_mb)} of disk")
    return ", ".join(parts)


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
        f"  {latest}; expected at the end{where}, {interval(f)} ({f.level:.0%} prediction interval, by "
        f"{prior}, {counted(v.looks, 'evaluation')})", highlight=False
    )
    console.print(f"  {v.why}", markup=False, highlight=False)
    if per_cost:
        told = "  ".join(f"{x:+.3g} {k.replace('_', ' ')}" for k, x in per_cost.items())
        console.print(f"  expected reward {told}", highlight=False)


@show.register
def plain_text(t: Text, console: Console) -> None:
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
    show(Sampled.of(cost, folder), console)
