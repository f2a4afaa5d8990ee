"""The options of an environment's spec: `NAME:key=value,...`, by the types of their defaults."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from isocost.envs import outside
from isocost.errors import UserError


def read(spec: str, defaults: Any) -> dict[str, Any]:
    """The options that a spec gives, as fields of a dataclass. Raises UserError for an unknown one or a bad value."""
    name, _, options = spec.partition(":")
    known = {f.name: type(getattr(defaults, f.name)) for f in fields(defaults)}
    given: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, _, value = (x.strip() for x in option.partition("="))
        if key not in known:
            raise UserError(f"{spec!r}: {name} has no option {key!r}; there are {', '.join(known)}")
        try:
            given[key] = known[key](value)
        except ValueError:
            raise UserError(f"{spec!r}: {key} takes {_WHAT[known[key]]}, not {value!r}") from None
    return given


def count_and_seed(name: str, text: str) -> tuple[int, int]:
    """The number of problems and the first seed, from the options "count=..,seed=.." of an environment whose problems
    are seeds. Raises UserError for another option or a bad value.
    """
    given = outside.options(text)
    count, seed = outside.whole(given, "count", outside.COUNT, 1), outside.whole(given, "seed", 0, 0)
    if given:
        raise UserError(f"{name} has no option {next(iter(given))!r}; there are count and seed")
    return count, seed


_WHAT: dict[type, str] = {int: "an integer", float: "a number", str: "a text"}

