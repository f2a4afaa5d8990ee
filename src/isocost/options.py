"""The options of a name with settings, `NAME:key=value,...`: of a family of problems, or of an environment."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

from isocost.errors import UserError


def read(spec: str, defaults: Any) -> dict[str, Any]:
    """The options that a spec gives, as fields of a dataclass, by the types of its defaults; None: an integer.

    Raises UserError for an unknown option or a bad value.
    """
    name, _, options = spec.partition(":")
    known = {f.name: _READ.get(type(getattr(defaults, f.name)), int) for f in fields(defaults)}
    given: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        key, _, value = (x.strip() for x in option.partition("="))
        if key not in known:
            raise UserError(f"{spec!r}: {name} has no option {key!r}; there are {', '.join(known)}")
        try:
            given[key] = known[key](value)
        except ValueError:
            raise UserError(f"{spec!r}: {key} takes {_WHAT[known[key]]}, not {value!r}") from None
        if key == "seed" and given[key] < 0:
            raise UserError(f"{spec!r}: seed is at least 0, not {value}")
    return given


class NamedOptions:
    """The options of a name: a frozen dataclass, whose name is that of the name, with a default for each."""

    __slots__ = ()

    @classmethod
    def of(cls, spec: str) -> Self:
        """Read "NAME" or "NAME:key=value,...". Raises UserError for an option that does not exist."""
        return cls(**read(spec, cls()))

    def refuse(self, *wrong: tuple[bool, str]) -> None:
        """Raises UserError with the first reason that applies, of pairs (whether it does, the reason)."""
        if why := next((why for bad, why in wrong if bad), ""):
            raise UserError(f"{type(self).__name__.lower()}: {why}")


_READ: dict[type, type] = {float: float, str: str}
_WHAT: dict[type, str] = {int: "an integer", float: "a number", str: "a text"}
