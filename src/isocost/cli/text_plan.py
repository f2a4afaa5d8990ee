"""The terminal's text of a plan: the pilot's, or the prescription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from isocost.cli.text import bill, flags, head, interval
from isocost.cli.text_units import more, units, whole_commands
from isocost.planner.learning_rate import NOISE
from isocost.runs import measure
from isocost.stats.power import detectable
from isocost.units import ROLLOUTS, words
from isocost.words import counted, word

if TYPE_CHECKING:
    from isocost.steps.plans import PilotPlan, Plan

SHOWN = 20      # evaluation points that are listed


def pilot_plan(p: PilotPlan, console: Console) -> None:
    """What a pilot will run, what it can detect, and its cost."""
    head(console, "plan: no pilot" if p.direct else "plan of the pilot")
    console.print(f"  {p.why}")
    if p.limits_why:
        console.print(f"  {p.limits_why}")
    if p.direct:
        console.print(f"  fallback: {p.fallback_why}; {p.train_seeds} x {p.train_C:,} rollouts")
    else:
        console.print(f"  learning rate: {p.rate.why}")
        probes, at = len(p.of_purpose("probe")), [f"{x:,}" for x in p.points]
        shown = at if len(at) <= SHOWN else [*at[: SHOWN - 1], "...", at[-1]]
        edges = len(p.of_purpose("edge"))
        checks = f", {counted(edges, 'edge run')} at half and twice the rate" if edges else ""
        console.print(f"  {probes} probe runs, {len(p.of_purpose('pilot'))} grid runs{checks}; evaluated at "
                      f"{', '.join(shown)} rollouts")
        if p.reserve:
            console.print(f"  then {p.reserve:.3g} times the grid's cost where the choice is open: the leading n at "
                          "half and twice its rate, and longer runs of the n that are not behind", soft_wrap=True)
        console.print(f"  pilot: {bill(p.pilot_bill)}")
        if p.shares:
            console.print(f"  {p.shares}")
    console.print(f"  training{'' if p.direct else ' after it'}: {bill(p.train_bill)}")
    precision(console, p)
    flags(console, p.flags)
    whole_commands(console, (p.why, *p.flags), p.folder, p.budget)
    if p.elsewhere and not p.direct:
        elsewhere(console, p)
    if p.overridden:
        console.print(f"  {p.overridden}", markup=False, soft_wrap=True)
    units(console, p.units)
    if p.profiled is not None:
        beside(console, p, p.profiled)


def elsewhere(console: Console, p: PilotPlan) -> None:
    """The runs of a pilot that another trainer has to run, and what to do with their logs."""
    console.print(f"  {p.elsewhere}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("  run", "n", "B", "updates", "learning rate", "warm-up", "seed"):
        table.add_column(name, justify="left" if name == "  run" else "right")
    for r in p.runs:
        rate = f"{r.lr(p.rate):.2g}" if r.purpose == "probe" else f"by the probe ({r.lr(p.rate):.2g})"
        table.add_row(f"  {r.name}", str(r.n), str(r.B), str(r.M), rate, str(r.warmup), str(r.seed))
    console.print(table)


def precision(console: Console, p: PilotPlan) -> None:
    """What sampled evaluations cost and how precise they are; nothing where evaluations are exact."""
    e = p.evaluation
    if e.samples is None:
        return
    unit = ROLLOUTS if p.budget is None else p.budget.unit
    own = "" if p.direct else f"{p.evaluating(p.pilot_bill):.0%} of training in {words(unit)} in the pilot, "
    after = f"{p.evaluating(p.train_bill):.0%} " + ("of training in " + words(unit) if p.direct else "after it")
    console.print(
        f"  evaluation: {e.problems} held-out problems x {counted(e.samples, 'sample')}, standard error at most "
        f"{e.sd:.3f} on each split; it costs {own}{after}", highlight=False
    )
    if p.detectable is not None and p.sd_source != "measured":
        exact = detectable(p.seeds, len(p.grid), NOISE)
        console.print(
            f"  with exact evaluations the minimum detectable difference would be {exact:.3f} instead of "
            f"{p.detectable:.3f}", highlight=False
        )


def beside(console: Console, p: PilotPlan, profiled: int) -> None:
    """What is not in the budget: the profile, and evaluations except for the time and money they take."""
    e, evaluations = p.evaluation, p.bill.evaluations
    each = ", which are exact and sample nothing"
    if e.samples is not None:
        sampled = evaluations * e.rollouts
        each = f" x {counted(e.samples, 'sample')}: {sampled:,} rollouts, counted as time and money only"
    console.print(
        f"  not in the budget: profiling, {profiled:,} rollouts; {evaluations:,} evaluations of {e.problems} problems"
        f"{each}", highlight=False
    )


def plan(p: Plan, console: Console) -> None:
    """The prescription, and what follows from it: more compute, what its seeds can detect, runs to add, its cost."""
    measured = {"kind": "held-out", "unit": ROLLOUTS, "scale": measure.UNIT, **(p.measure or {})}
    a = p.arm
    limit = "" if p.turns is None else f", turn limit {p.turns}"
    head(console, f"prescription: n = {a.n}, B = {a.B}{limit}, M = {a.M}, lr = {a.lr:.2g}")
    if p.fallback:
        console.print(f"  fallback: {p.fallback}")
        whole_commands(console, (p.fallback,), p.folder, p.budget)
    else:
        console.print(f"  {p.chosen}")
    if p.risks:
        console.print(f"  {p.risks}", highlight=False)
    passes = "" if a.epochs is None else f", {a.epochs:.1f} passes over the problems"
    console.print(
        f"  C = {a.C:,} {measured['unit']} a run, {counted(p.seeds, 'seed')}, warm-up "
        f"{counted(a.warmup, 'update')}{passes}; against {p.comparison}"
    )
    if a.prediction:
        expected = a.prediction
        told = measure.in_its_units(measured["scale"], expected.value, expected.low, expected.high)
        console.print(
            f"  expected {measured['kind']} reward {interval(expected)} ({expected.level:.0%} prediction interval"
            + (")" if p.measure else ", test split)")
            + (told and f": {told}")
        )
    if p.growth:
        console.print(f"  {p.growth.text}", highlight=False)
    if p.more:
        more(console, p.more, measured["unit"])
    elif p.marginal:
        console.print(f"  twice the budget would buy {p.marginal.gain:+.3f} (n = {p.marginal.doubled_n})")
    if p.sees:
        console.print(f"  {p.sees.text}")
    for rank, run in enumerate(p.next):
        first = "to resolve:" if p.fallback else "to reduce the uncertainty:"
        console.print(f"  {'  or' if rank else first} {run['text']}")
        if p.extendable and run["option"]:
            console.print(f"      isocost pilot {word(p.folder)} {run['option']}", highlight=False, soft_wrap=True)
    console.print(f"  training: {bill(p.bill, measured['unit'])}")
    if e := p.evaluating:
        console.print(
            f"  evaluation: {counted(p.bill.evaluations, 'evaluation')} of {e['problems']} held-out problems x "
            f"{counted(e['samples'], 'sample')}, {e['rollouts']:,} rollouts: {e['share']:.0%} of the cost of training "
            f"in {words(e['unit'])}; standard error at most {e['sd']:.3f} on each split", highlight=False
        )
    units(console, p.units, measured["unit"])
    for check in p.checks:
        if not check.holds:
            console.print(f"  [yellow]! {check.text}[/]")
    flags(console, p.flags)
