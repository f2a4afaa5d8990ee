"""The terminal's text of `envs`."""

from __future__ import annotations

from rich.console import Console

from isocost.cli.text import show
from isocost.screen.terminal import echo
from isocost.screen.words import counted
from isocost.steps.look.environments import EnvironmentCheck, EnvironmentList


@show.register
def show_environments(found: EnvironmentList, console: Console) -> None:
    """Each environment with the form of its spec, its options, its limits and what it needs."""
    for e in found.environments:
        echo(f"{e.name}: {e.about}")
        if e.limits is not None:
            problems = "problems of --data" if e.limits.problems is None else counted(e.limits.problems, "problem")
            echo(f"    {problems}, at most {counted(e.limits.max_turns, 'turn')} of "
                 f"{counted(e.limits.max_tokens, 'token')}, verifier "
                 f"{e.limits.verifier or 'of the problems'}, model {e.limits.model or 'any'}")
        if e.form:
            echo(f"    written: {e.form}")
        if e.options:
            echo(f"    options: {', '.join(f'{k}={v}' for k, v in e.options.items())}")
        if e.needs:
            echo(f"    needs: {e.needs}")
    echo("your own: --env my_env.py:Class; check it with `isocost envs check my_env.py:Class`")


@show.register
def show_environment_check(found: EnvironmentCheck, console: Console) -> None:
    """One line per promise, with the reason where it is broken, then the result."""
    for f in found.findings:
        echo(f"{f.state:<9} {f.promise}" + (f"\n          {f.why}" if f in found.broken else ""))
    counts = f"breaks {len(found.broken)} of {counted(len(found.findings), 'promise')}"
    echo(f"{found.environment} {counts if found.broken else 'keeps the contract'} "
         f"({counted(found.problems, 'problem')} played)")
