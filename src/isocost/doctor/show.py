"""`isocost doctor`: what it says in a terminal, and as JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import Console
from rich.table import Table

from isocost.doctor import Diagnosis, diagnose
from isocost.doctor.finding import Finding
from isocost.jsonfile import page
from isocost.steps.settings import console_of, setting_of
from isocost.terminal import echo
from isocost.words import duration
from isocost.worlds.setting import Opened, open_setting

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "cannot tell": "cyan"}


def doctor(*, as_json: bool, **asked: Any) -> int:
    """Open what was asked for, look at it, say what was found. Returns the command's exit code."""
    setting, console = setting_of(asked), console_of(as_json)
    opened = open_setting(setting, tried=True)
    try:
        head(console, opened)
        for warning in opened.problems.report.warnings:
            console.print(f"[yellow]! {_plain(warning)}[/]")
        found = asyncio.run(diagnose(opened, told=lambda f: line(console, f)))
    finally:
        opened.grader.close()
    tail(console, found)
    if as_json:
        echo(page({**facts(opened), **found.data()}))
    return found.code


def facts(opened: Opened) -> dict[str, Any]:
    """What was looked at."""
    s, world = opened.setting, opened.world
    return {
        "model": s.model, "parameters": world.learner.parameters, "data": s.data, "problems": len(opened.problems),
        "verifier": opened.problems.verifier, "temperature": s.temperature, "top_p": s.top_p, "top_k": s.top_k,
        "max_tokens": s.max_tokens, "threads": s.threads,
        **{k: world.extra[k] for k in ("device", "dtype", "kernels", "kernels_why") if k in world.extra},
    }


def head(console: Console, opened: Opened) -> None:
    f = facts(opened)
    kernels = f", {f['kernels']} kernels" if "kernels" in f else ""
    console.print(
        f"[bold]doctor[/] of {f['model']} ({f['parameters']:,} parameters, {f['dtype']} on {f['device']}, "
        f"{f['threads']} thread{'s' * (f['threads'] > 1)}{kernels}) on {f['data']}, marked by {f['verifier']}"
    )


def line(console: Console, f: Finding) -> None:
    """One finding: its verdict, its name, what was seen, and below it what to do."""
    row = Table.grid(padding=(0, 2))
    row.add_column(width=11, no_wrap=True)
    row.add_column(width=28)
    row.add_column(overflow="fold")
    row.add_row(f"[{COLOURS[f.verdict]}]{f.verdict}[/]", f.name, _plain(f.said))
    if f.do:
        row.add_row("", "", f"[dim]do:[/] {_plain(f.do)}")
    console.print(row)


def tail(console: Console, found: Diagnosis) -> None:
    c, count = found.cost, [f.verdict for f in found.findings]
    said = ", ".join(f"{count.count(v)} {v}" for v in COLOURS if v in count)
    console.print(
        f"[bold]{said}[/] in {duration(found.seconds)}; it took {c.rollouts} rollouts, {c.prefill + c.decode} tokens "
        f"sampled, {c.score} scored, {c.train} trained on, {c.verify} verifier calls"
    )


def _plain(text: str) -> str:
    return text.replace("[", "\\[")
