"""`harness:FILE.py` and `cmd:COMMAND`: what opens harnesses that drive. Those of libraries: `harness_library`.

    harness:./mine.py                    `drive(task, base_url, model)` of a file, with its `tasks()` or --data
    cmd:node agent.js #seconds=300       a command, with --data

Options stand after `#`: `seconds` from one request to the next (60), `turns` and `tokens` as limits of a rollout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from isocost.envs.adapters import seeded
from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.harness import run as harness_run
from isocost.envs.harness.driven import SECONDS, Driven, problem_of
from isocost.envs.user_file import at_least_one, listed, load
from isocost.errors import UserError, needed
from isocost.types import Problem
from isocost.world import EnvironmentFault

TURNS, TOKENS = 16, 256     # limits where a harness states none
_OPTIONS = re.compile(r"\s*#([a-z_.]+=[^#]*)$")
FORM = "seconds=60,turns=16,tokens=256"


def parted(spec: str) -> tuple[str, dict[str, Any]]:
    """What follows the kind, and the options. Raises UserError."""
    said = spec.partition(":")[2].strip()
    found = _OPTIONS.search(said)
    return (said[: found.start()], seeded.options(found[1])) if found else (said, {})


def limits(spec: str, given: dict[str, Any], of: Any = None) -> dict[str, Any]:
    """`seconds`, and the limits of `EnvironmentSet`: options, else those of a file. Raises UserError for others, and
    without the server's packages."""
    for module in ("starlette", "uvicorn"):
        needed(module, "serve", "the address that a harness calls")
    seconds = given.pop("seconds", getattr(of, "seconds", SECONDS))
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise UserError(f"{spec}: seconds is a number above 0, got {seconds!r}")
    turns = seeded.whole(given, "turns", at_least_one(spec, "max_turns", getattr(of, "max_turns", TURNS)), 1)
    tokens = seeded.whole(given, "tokens", at_least_one(spec, "max_tokens", getattr(of, "max_tokens", TOKENS)), 1)
    if given:
        raise UserError(f"{spec.partition(':')[0]} has no option {next(iter(given))!r}; there are seconds, turns, "
                        "tokens")
    return {"seconds": float(seconds), "max_turns": turns, "max_tokens": tokens}


def open_harness(spec: str) -> EnvironmentSet:
    """A harness of a user's file. Raises UserError."""
    path, given = parted(spec)
    if not path.endswith(".py"):
        raise UserError(f"environment {spec!r} names no file: write harness:my_harness.py")
    module, source = load(path)
    drive = getattr(module, "drive", None)
    if not callable(drive):
        raise UserError(f"{path} has no function drive(task, base_url, model), which returns the reward")
    bounds = limits(spec, given, module)
    tasks = getattr(module, "tasks", None)
    if tasks is not None and not callable(tasks):
        raise UserError(f"{path}: tasks must be a function that returns the tasks, dictionaries of plain data")

    def problems() -> Iterator[Problem]:
        for number, task in enumerate(() if tasks is None else listed(f"the tasks of {path}", tasks)):
            if not isinstance(task, dict):
                raise UserError(f"{path}: task {number} has the type {type(task).__name__}; a task is a dictionary")
            try:
                yield problem_of(task, number, module.__name__)
            except EnvironmentFault as error:
                raise UserError(f"{path}: {error}") from error

    make = partial(Driven, run=partial(harness_run.of_function, drive), seconds=bounds.pop("seconds"))
    return EnvironmentSet(spec, make, None if tasks is None else problems, model=str(getattr(module, "model", "")),
                          source=source, **bounds)


def open_command(spec: str) -> EnvironmentSet:
    """A harness that is a command. Raises UserError."""
    command, given = parted(spec)
    if not command:
        raise UserError(f'{spec!r} names no command: write "cmd:python my_agent.py"')
    seeded.words_of(command)
    bounds = limits(spec, given)
    make = partial(Driven, run=partial(harness_run.of_command, command), seconds=bounds.pop("seconds"), spawns=True)
    return EnvironmentSet(spec, make, **bounds)
