"""A user's file of Python, run once for each content."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from isocost.errors import UserError
from isocost.types import Message, Problem

T = TypeVar("T")


def load(path: str) -> tuple[ModuleType, str]:
    """The file as a module, and the SHA-256 of its content. Raises UserError if it is missing or does not import."""
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    text = Path(path).read_bytes()
    return _module(path, text), hashlib.sha256(text).hexdigest()


def load_class(path: str, name: str) -> tuple[Any, str]:
    """A class of the file, and the SHA-256 of its content. Raises UserError if there is none."""
    module, source = load(path)
    made = getattr(module, name, None)
    if not inspect.isclass(made):
        raise UserError(f"{path} has no class {name!r}")
    return made, source


def listed(name: str, function: Callable[[], Iterable[T]]) -> Iterator[T]:
    """What a user's function lists. Raises UserError, with this name, for what it raises."""
    try:
        yield from function()
    except UserError:
        raise
    except Exception as e:
        raise UserError(f"{name} cannot be listed: {type(e).__name__}: {e}") from e


def problems(name: str, function: Callable[[], Iterable[Any]]) -> Iterator[Problem]:
    """What a user's `problems` lists. Raises UserError, with this name, for what it raises, and for other types."""
    for number, problem in enumerate(listed(name, function), 1):
        if not isinstance(problem, Problem):
            raise UserError(f"{name}: problem {number} is of type {type(problem).__name__}; write "
                            "isocost.types.Problem(id, messages, answer)")
        told = problem.prompt
        if not isinstance(told, tuple | list) or not all(isinstance(m, Message) for m in told):
            raise UserError(f"{name}: the prompt of problem {number} must be messages: write "
                            "(isocost.types.Message('user', text),)")
        yield problem


def at_least_one(spec: str, name: str, value: Any) -> int:
    """A limit that a user's file states. Raises UserError unless it is an integer of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{spec}: {name} is an integer of at least 1, got {value!r}")
    return value


@cache
def _module(path: str, text: bytes) -> ModuleType:
    module = ModuleType(f"isocost_env_{Path(path).stem}")
    module.__file__ = path
    sys.modules[module.__name__] = module      # where dataclasses and pickle expect what the file defines
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except BaseException as e:
        raise UserError(f"{path} does not import: {type(e).__name__}: {e}") from e
    return module
