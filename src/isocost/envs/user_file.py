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
