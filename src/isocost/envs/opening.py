"""Opens the environment of a spec: `NAME:options` of one that ships, or `my_env.py:Class` of a user's file."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from isocost.envs import rooms
from isocost.errors import UserError
from isocost.types import Problem
from isocost.world import Environment

METHODS = ("open", "step", "close")     # that are coroutines
TURNS, TOKENS = 8, 64                   # limits of a user's environment that states none


@dataclass(frozen=True)
class EnvironmentSet:
    """What a spec names: how the environment of a problem is made, its problems and its verifier."""

    spec: str
    make: Callable[[Problem], Environment]
    problems: Callable[[], Iterable[Problem]] | None = None     # None: they come from a data set
    verifier: str = "environment"
    max_turns: int = TURNS
    max_tokens: int = TOKENS        # of a turn
    model: str = ""                 # the built-in model that was taught it
    source: str | None = None       # SHA-256 of a user's file


@dataclass(frozen=True)
class Kind:
    """An environment that ships: what it is, and what opens its specs."""

    about: str
    options: Mapping[str, Any]      # with their defaults
    open: Callable[[str], EnvironmentSet]


def _rooms(spec: str) -> EnvironmentSet:
    which = rooms.Rooms.of(spec)
    return EnvironmentSet(spec, rooms.Walk, partial(rooms.problems, which), max_turns=12, max_tokens=2,
                          model="tiny-agents")


KINDS: Mapping[str, Kind] = {
    "rooms": Kind("find a room in a house with a locked door, one letter a move", vars(rooms.Rooms()), _rooms),
}


def open_environment(spec: str) -> EnvironmentSet:
    """The environment of a spec. Raises UserError for one that does not exist or lacks what it needs."""
    if ".py" in spec:
        return _own(spec)
    kind = KINDS.get(spec.partition(":")[0])
    if kind is None:
        raise UserError(f"there is no environment {spec!r}; there are {', '.join(KINDS)} and my_env.py:Class")
    return kind.open(spec)


def _own(spec: str) -> EnvironmentSet:
    path, colon, name = spec.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise UserError(f"environment {spec!r} names no class: write my_env.py:Class")
    if not Path(path).is_file():
        raise UserError(f"there is no file {path} with the environment {name!r}")
    text = Path(path).read_bytes()
    found = getattr(_module(path, text), name, None)
    if not inspect.isclass(found):
        raise UserError(f"{path} has no class {name!r}")
    made: Any = found
    lacks = [m for m in (*METHODS, "final") if not callable(getattr(made, m, None))]
    if lacks:
        raise UserError(f"{spec} has no method {lacks[0]!r}; an environment has open, step, final and close")
    if plain := [m for m in METHODS if not inspect.iscoroutinefunction(getattr(made, m))]:
        raise UserError(f"{spec}: {plain[0]} must be a coroutine: write `async def {plain[0]}`")
    listed = getattr(made, "problems", None)
    return EnvironmentSet(
        spec, made, listed if callable(listed) else None, getattr(made, "verifier", "environment"),
        getattr(made, "max_turns", TURNS), getattr(made, "max_tokens", TOKENS),
        source=hashlib.sha256(text).hexdigest(),
    )


@cache
def _module(path: str, text: bytes) -> ModuleType:
    """A user's file, run once for each content."""
    module = ModuleType(f"isocost_env_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module      # where dataclasses and pickle expect what the file defines
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except BaseException as e:
        raise UserError(f"{path} does not import: {type(e).__name__}: {e}") from e
    return module
