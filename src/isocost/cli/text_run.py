"""The terminal's text of the events of any step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from isocost.cli.text import flags, show
from isocost.planner.training.study_runs import worded
from isocost.runs.speed import told
from isocost.screen.terminal import echo
from isocost.screen.words import grouped
from isocost.steps.events import CostSample, Evaluated, Noted, Skipped, Started, Warned

if TYPE_CHECKING:
    pass


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
        f"[bold]{job.method}[/] on {job.setting.problems.data} with {job.setting.model}: {worded(job.arm)}, "
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
def sampled(e: CostSample, console: Console) -> None:
    console.print(f"  {e.text}", soft_wrap=True)
