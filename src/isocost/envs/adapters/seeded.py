"""What the adapters of other libraries share: options, problems that are seeds, and the global random numbers."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from isocost.errors import UserError
from isocost.types import Message, Problem

COUNT = 500             # problems, where the option is not given
_GLOBAL = threading.Lock()


def library(name: str, packages: str) -> Any:
    """Import what an environment needs. Raises UserError with the line that installs these packages."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"this environment needs {name}: pip install {packages} ({error})") from error


def options(text: str) -> dict[str, Any]:
    """Options "key=value,...", with values as JSON where they are, else as text. Raises UserError for one without =."""
    found: dict[str, Any] = {}
    for option in filter(None, text.split(",")):
        key, equals, value = (x.strip() for x in option.partition("="))
        if not equals:
            raise UserError(f"options are key=value, got {option!r}")
        try:
            found[key] = json.loads(value)
        except json.JSONDecodeError:
            found[key] = {"True": True, "False": False}.get(value, value)
    return found


def whole(found: dict[str, Any], key: str, default: int, least: int) -> int:
    """Take an option that is an integer. Raises UserError for another value."""
    value = found.pop(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{key} is an integer of at least {least}, got {value!r}")
    return value


def words_of(command: str) -> list[str]:
    """The words of a command, as a shell reads them. Raises UserError for a quotation that does not end."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UserError(f"the command {command!r} cannot be read: {error}") from error


def count_and_seed(name: str, text: str) -> tuple[int, int]:
    """The number of problems and the first seed, from the options "count=..,seed=.." of an environment whose problems
    are seeds. Raises UserError for another option or a bad value.
    """
    given = options(text)
    count, seed = whole(given, "count", COUNT, 1), whole(given, "seed", 0, 0)
    if given:
        raise UserError(f"{name} has no option {next(iter(given))!r}; there are count and seed")
    return count, seed


def seeds(name: str, count: int, first: int) -> Iterator[Problem]:
    """Problems that differ in the seed that their environment is reset with, `meta["seed"]`."""
    for seed in range(first, first + count):
        known = f"{name} {seed}"
        yield Problem(f"{name}-{seed}", (Message("user", known),), None, meta={
            "seed": seed, "source": name, "kin": known, "exact": False,
        })


def digest(text: str) -> str:
    """A short name of a state."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def global_random(seed: int) -> Iterator[None]:
    """Seed the global generators of Python and numpy for a block, one at a time, and put them back afterwards."""
    with _GLOBAL:
        before, arrays = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(arrays)
