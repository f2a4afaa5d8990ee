"""The terminal's text of one run, and of the events of any step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from isocost.cli.text import bill, flags, head, pass_at, show, spent
from isocost.planner.study_runs import worded
from isocost.runs.files import FATES
from isocost.runs.speed import rates, told
from isocost.steps.events import Evaluated, Noted, Sampled, Skipped, Started, Warned
from isocost.terminal import echo
from isocost.words import counted, duration, grouped

if TYPE_CHECKING:
    from isocost.steps.evaluate import Mean, Measured, MeasuredModel
    from isocost.steps.single import RunCost, RunEnd
    from isocost.steps.whole import Whole


def whole(w: Whole, console: Console) -> None:
    """Seconds by phase, and the path of the report."""
    head(console, "time")
    seconds = "  ".join(f"{k} {v:.0f} s" for k, v in w.phases.items())
    console.print(f"  {seconds}  = {sum(w.phases.values()):.0f} s")
    console.print(f"\nreport: {w.report.resolve()}")


@show.register
def warned(e: Warned, console: Console) -> None:
    flags(console, (e.text,))


@show.register
def noted(e: Noted, console: Console) -> None:
    console.print(f"  {e.text}", soft_wrap=True)


@show.register
def skipped(e: Skipped, console: Console) -> None:
    """On stderr, so that JSON on stdout stays JSON."""
    echo(f"skipped: {e.text}", err=True)


@show.register
def started(e: Started, console: Console) -> None:
    job = e.job
    budget = ", ".join(f"{grouped(v)} {k}" for k, v in job.budget.items())
    console.print(
        f"[bold]{job.method}[/] on {job.setting.data} with {job.setting.model}: {worded(job.arm)}, "
        f"lr = {job.arm['lr']:.2g}, seed {job.seed}, {budget}"
    )


@show.register
def evaluated(e: Evaluated, console: Console) -> None:
    console.print(
        f"  {e.rollouts:>9,} rollouts  step {e.step:>6}  held-out reward, test split {e.reward:.4f}"
        + (f"  {told(e.speed)}" if e.speed else ""),
        highlight=False,
        soft_wrap=True,
    )


@show.register
def sampled(e: Sampled, console: Console) -> None:
    billed = f"; billed in {e.folder}/dry-run.json" if e.folder else ""
    console.print(
        f"  estimating the cost used {e.rollouts:,} rollouts of {counted(e.tokens, 'token')}, {e.seconds:.1f} s "
        f"(not counted in any budget{billed}); nothing was trained", soft_wrap=True
    )


def run_cost(c: RunCost, console: Console) -> None:
    console.print(f"  would cost {bill(c.bill)}")
    sampled(Sampled.of(c.pricing, c.folder), console)


def run_end(e: RunEnd, console: Console) -> None:
    """Why a run ended and what became of its rollouts."""
    fates = ", ".join(f"{k} {v:,}" for k in FATES if (v := e.fates.get(k)))
    console.print(
        f"  {e.reason}: {e.detail}\n  {counted(e.steps, 'step')} in {duration(e.seconds)}; rollouts: {fates}",
        markup=False,       # a verifier's error may contain brackets
    )
    flags(console, e.notes)
    for kind, count in e.verifier_failures.items():
        first = e.verifier_examples.get(kind)
        failed = f"verifier failures, {kind}: {count:,}" + (f"; the first: {first}" if first else "")
        console.print(f"  [yellow]! {failed}[/]", soft_wrap=True)
    console.print(f"  record: {e.folder}")
    if speed := rates(e.timing):
        console.print(f"  speed: {told(speed)}", highlight=False)


def measured(m: Measured, console: Console) -> None:
    if m.base and m.difference:
        _mean("base", m.base, "", console)
    _mean("final", m.final, "", console)
    if m.base and m.difference:
        _mean("difference", m.difference, "+", console)


def measured_model(m: MeasuredModel, console: Console) -> None:
    """pass@1 of a model, its other pass@k, and what measuring took."""
    _mean("pass@1", m.right, "", console)
    pass_at(m.pass_at, console)
    how = f"{counted(m.samples, 'completion')} each" if m.samples else "computed exactly"
    console.print(f"  {m.model} on {m.data}: {counted(m.problems, 'problem')}, {how}", markup=False, soft_wrap=True)
    if m.unscored:
        console.print(f"  [yellow]! {counted(m.unscored, 'completion')} without a reward, in no mean[/]")
    spent(m.cost, m.money, m.server, console)


def _mean(name: str, m: Mean, sign: str, console: Console) -> None:
    bounds = f"[{m.low:{sign}.4f}, {m.high:{sign}.4f}]"
    over = f"({m.level:.0%} over {counted(m.problems, 'problem')})"
    console.print(f"  {name:<10} {m.value:{sign}.4f} {bounds} {over}", markup=False)
