"""Opens the environment of a spec: `NAME:options` of one that ships, or a user's: `my_env.py:Class`, or a harness."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from isocost.envs import user_file
from isocost.envs.catalogue import REAL
from isocost.envs.environment_set import TOKENS, TURNS, EnvironmentSet, Kind
from isocost.envs.harness.kinds import open_harness
from isocost.envs.tiny import boxes, desk, needle, pages, rooms
from isocost.envs.user_file import load, load_class
from isocost.errors import UserError

METHODS = ("open", "step", "close")     # that are coroutines

def _rooms(spec: str) -> EnvironmentSet:
    which = rooms.Rooms.of(spec)
    return EnvironmentSet(spec, rooms.Walk, partial(rooms.problems, which), max_turns=12, max_tokens=2,
                          model="tiny-agents")


def _pages(spec: str) -> EnvironmentSet:
    which = pages.Pages.of(spec)
    return EnvironmentSet(spec, pages.Search, partial(pages.problems, which), max_turns=12, max_tokens=1 + which.asked,
                          model="tiny-tools")


def _desk(spec: str) -> EnvironmentSet:
    which = desk.Desk.of(spec)
    room = 6 if which.store else 3 + 2 * (which.digits or 3)
    return EnvironmentSet(spec, desk.Work, partial(desk.problems, which), max_turns=6, max_tokens=room,
                          model="tiny-tools")


def _boxes(spec: str) -> EnvironmentSet:
    which = boxes.Boxes.of(spec)
    return EnvironmentSet(spec, boxes.Screen, partial(boxes.problems, which), max_turns=1, max_tokens=5,
                          model="tiny-tools")


def _needle(spec: str) -> EnvironmentSet:
    which = needle.Needle.of(spec)
    return EnvironmentSet(spec, needle.Hunt, partial(needle.problems, which), max_turns=12, max_tokens=4,
                          model="tiny-tools")


KINDS: Mapping[str, Kind] = {
    "rooms": Kind("find a room in a house with a locked door, one letter a move", vars(rooms.Rooms()), _rooms),
    "pages": Kind("find a fact on the pages of a house's rooms, one letter a move", vars(pages.Pages()), _pages),
    "desk": Kind("a calculator with a fee and noise, or a store with rules", vars(desk.Desk()), _desk),
    "boxes": Kind("point at an element on a screen of characters, in one turn", vars(boxes.Boxes()), _boxes),
    "needle": Kind("find a detail in pictures: search, look, zoom, answer", vars(needle.Needle()), _needle),
    **REAL,
}


def open_environment(spec: str) -> EnvironmentSet:
    """The environment of a spec. Raises UserError for one that does not exist or lacks what it needs."""
    kind = KINDS.get(spec.partition(":")[0])
    if kind is None and ".py" in spec:
        return _own(spec)
    if kind is None:
        raise UserError(f"there is no environment {spec!r}; there are {', '.join(KINDS)} and my_env.py:Class")
    return kind.open(spec)


def _takes(function: Any, count: int) -> bool:
    """Whether it can be called with so many arguments; True for one whose signature is not known."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _own(spec: str) -> EnvironmentSet:
    file = spec.partition("#")[0]
    if file.endswith(".py") and Path(file).is_file() and hasattr(load(file)[0], "drive"):
        return open_harness(f"harness:{spec}")
    path, colon, name = spec.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        if file.endswith(".py") and not Path(file).is_file():
            raise UserError(f"there is no file {file}")
        raise UserError(f"environment {spec!r} names no class: write my_env.py:Class. The file of a harness has a "
                        "function drive(task, base_url, model)")
    made, source = load_class(path, name)
    lacks = [m for m in (*METHODS, "final") if not callable(getattr(made, m, None))]
    if lacks:
        raise UserError(f"{spec} has no method {lacks[0]!r}; an environment has open, step, final and close")
    if plain := [m for m in METHODS if not inspect.iscoroutinefunction(getattr(made, m))]:
        raise UserError(f"{spec}: {plain[0]} must be a coroutine: write `async def {plain[0]}`")
    if inspect.iscoroutinefunction(made.final):
        raise UserError(f"{spec}: final must not be a coroutine: write `def final`")
    if not _takes(made, 1):
        raise UserError(f"{spec} cannot be made for a problem: write `def __init__(self, problem)`")
    if not _takes(made.step, 3):
        raise UserError(f"{spec}: step takes {inspect.signature(made.step)}: write `async def step(self, said, luck)`")
    own = getattr(made, "problems", None)
    if callable(own) and not _takes(own, 0):
        raise UserError(f"{spec}: problems takes {inspect.signature(own)}: write `@staticmethod` and `def problems()`")
    if own is not None and not callable(own):
        raise UserError(f"{spec}: problems must be a static method that lists the problems, not a "
                        f"{type(own).__name__}")
    verifier = getattr(made, "verifier", "environment")
    if not isinstance(verifier, str):
        raise UserError(f"{spec}: verifier must be the name of a verifier, got {verifier!r}")
    turns, tokens = (user_file.at_least_one(spec, k, getattr(made, k, least))
                     for k, least in (("max_turns", TURNS), ("max_tokens", TOKENS)))
    problems = partial(user_file.problems, f"the problems of {spec}", own) if own is not None else None
    return EnvironmentSet(spec, made, problems, verifier, turns, tokens, source=source)
