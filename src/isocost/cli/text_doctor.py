"""What `isocost doctor` prints: what is checked, a row per finding as it is made, and what the checks cost."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from isocost.cli.text import show
from isocost.doctor.finding import Diagnosis, Finding, ServiceSubject, Subject
from isocost.doctor.reward.subject import RewardSubject
from isocost.screen.words import counted, duration

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "cannot tell": "cyan"}


@show.register
def show_subject(s: Subject, console: Console) -> None:
    """The model, data and verifier, and the warnings on them."""
    kernels = f", {s.kernels} kernels" if s.kernels else ""
    console.print(
        f"[bold]doctor[/]: {s.model} ({s.parameters:,} parameters, {s.dtype} on {s.device}, "
        f"{counted(s.threads, 'thread')}{kernels}) on {s.data}, verifier {s.verifier}"
    )
    for warning in s.warnings:
        console.print(f"[yellow]! {_plain(warning)}[/]")


@show.register
def show_service(s: ServiceSubject, console: Console) -> None:
    """The service, the model and the prompt."""
    sdk = f", SDK {s.sdk}" if s.sdk else ""
    console.print(f"[bold]doctor[/]: {s.model} at {s.url} (adapter of rank {s.rank}{sdk}), prompt {_plain(s.prompt)!r}")


@show.register
def show_reward(s: RewardSubject, console: Console) -> None:
    """The reward, the data, the kinds of answers, and the warnings of the trial."""
    kinds = ", ".join(f"{k} {many:,}" for k, many in s.kinds.items())
    few = f" of {s.of:,}" if s.of > s.problems + s.unknown else ""
    console.print(f"[bold]doctor[/]: reward {_plain(s.reward)} on {_plain(s.data)}, {counted(s.problems, 'problem')}"
                  f"{few} ({kinds}), without a model")
    for warning in s.warnings:
        console.print(f"[yellow]! {_plain(warning)}[/]")


@show.register
def show_finding(f: Finding, console: Console) -> None:
    """The verdict, the check, what was measured, and below it what to do."""
    row = Table.grid(padding=(0, 2))
    row.add_column(width=11, no_wrap=True)
    row.add_column(width=28)
    row.add_column(overflow="fold")
    row.add_row(f"[{COLOURS[f.verdict]}]{f.verdict}[/]", f.name, _plain(f.said))
    if f.do:
        row.add_row("", "", f"[dim]do:[/] {_plain(f.do)}")
    console.print(row)


@show.register
def show_diagnosis(found: Diagnosis, console: Console) -> None:
    """The number of findings by verdict, and what the checks cost. The findings were printed as they were made."""
    c, verdicts = found.cost, [f.verdict for f in found.findings]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in COLOURS if v in verdicts)
    console.print(
        f"[bold]{counts}[/] in {duration(found.seconds)}; the checks used {c.rollouts:,} rollouts, "
        f"{c.prefill + c.decode:,} tokens sampled, {c.score:,} scored, {c.train:,} trained on, "
        f"{c.verify:,} verifier calls"
    )


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
