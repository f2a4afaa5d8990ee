"""One file for each method of control, without registration: docstring with equations, `CARD`, the functions of seams,
and `agent(**changes)`. A user's own file works the same, by its path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocost.control.seams import Agent
from isocost.control.types import ControlTask
from isocost.errors import UserError
from isocost.found import FileKind, from_file
from isocost.recipe import tune

KIND = FileKind("isocost.control.methods", "method of control", ("CARD", "agent"), "docs/control_methods.md")
names, load = KIND.names, KIND.load


def known(name: str) -> bool:
    """Whether a name, or the path of a .py file, is of a method of control: a file with an `agent`."""
    if not name.endswith(".py"):
        return name in names()
    return Path(name).is_file() and hasattr(from_file(Path(name)), "agent")


def agent(name: str, **changes: Any) -> Agent:
    """A method's agent, with these sizes or seams."""
    made: Agent = load(name).agent(**changes)
    return made


def tuned(made: Agent, sets: Mapping[str, str]) -> Agent:
    """An agent with a user's settings, such as sample.steps=3. Raises UserError for an unknown one."""
    for path, value in sets.items():
        try:
            made = tune(made, path, value)
        except KeyError as e:
            raise UserError(f"{made.name}: {path}={value}: {e.args[0]}") from None
    return made


def offline() -> list[str]:
    """Those that learn from a set, without samples."""
    return [name for name in names() if load(name).agent().offline]


def refuse_unfit(made: Agent, task: ControlTask) -> None:
    """Raises UserError if the agent's actions are not those of the task, naming methods that fit."""
    acts = "discrete" if task.space.discrete else "continuous"
    if made.acts != acts:
        same = [m for m in (load(name).agent() for name in names()) if m.acts == acts]
        fit = [m.name for m in same if m.offline == made.offline] or [m.name for m in same]
        raise UserError(f"{made.name} is for {made.acts} actions, and {task.name} has {acts} ones: take "
                        f"{' or '.join(fit)}")
    made.networks(task.space, made)     # refuses what else does not fit
