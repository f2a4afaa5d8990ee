"""Opens the environment of a spec: `NAME:options` of one that ships, or a user's: `my_env.py:Class`, or a harness."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from isocost.envs import tiny, user_file
from isocost.envs.catalogue import REAL
from isocost.envs.environment_set import TOKENS, TURNS, EnvironmentKind, EnvironmentSet
from isocost.envs.harness.kinds import open_harness
from isocost.envs.user_file import load, load_class
from isocost.errors import UserError

METHODS = ("open", "step", "close")     # that are coroutines


def _shipped() -> dict[str, EnvironmentKind]:
    """The environments of the folder `tiny`: each of its files has an `ENVIRONMENT`, and nothing is registered."""
    found = {m.name: importlib.import_module(f"{tiny.__name__}.{m.name}") for m in pkgutil.iter_modules(tiny.__path__)}
    return {name: module.ENVIRONMENT for name, module in sorted(found.items())}


KINDS: Mapping[str, EnvironmentKind] = {**_shipped(), **REAL}


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
