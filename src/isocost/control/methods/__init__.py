"""One file for each method of control, without registration: docstring with equations, `CARD`, the functions of seams,
and `agent(**changes)`. A user's own file works the same, by its path."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from isocost.control.seams import Agent
from isocost.control.types import ControlTask
from isocost.errors import UserError
from isocost.method_file import from_file
from isocost.recipe import tune


def names() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def load(name: str) -> Any:
    """The module of a method, by its name or by the path of a .py file. Raises UserError if it is not one."""
    if name.endswith(".py"):
        found = from_file(Path(name))
    elif name in names():
        found = importlib.import_module(f"{__name__}.{name}")
    else:
        near = get_close_matches(name, names(), 1)
        hint = f"did you mean {near[0]}?" if near else f"methods are {', '.join(names())}"
        raise UserError(f"there is no control method {name!r}: {hint}")
    if lacking := [part for part in ("CARD", "agent") if not hasattr(found, part)]:
        raise UserError(f"{name} is not a method of control: it has no {' and no '.join(lacking)}")
    return found


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


def refuse_unfit(made: Agent, task: ControlTask) -> None:
    """Raises UserError if the agent's actions are not those of the task, naming methods that fit."""
    acts = "discrete" if task.space.discrete else "continuous"
    if made.acts != acts:
        fit = [name for name in names() if load(name).agent().acts == acts]
        raise UserError(f"{made.name} is for {made.acts} actions, and {task.name} has {acts} ones: take "
                        f"{' or '.join(fit)}")
