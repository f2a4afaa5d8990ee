"""What a seam function declares about itself, beside its definition: a new method has no entry anywhere else.

    @trait("compares_siblings")                     what other functions, or sizes, may not go with
    @requires("reference", at="enrich", why="...")  what it cannot do without, and the seam that must give it
    @gives("reference")                             what it gives to functions that require it
    @shares(gamma="gamma")                          a setting that must have one value wherever it stands
    @bounds(low="[0, 1]", high="[0, inf)")          the values that a setting may have

`isocost.contract.conflicts` refuses recipes by these, and `isocost methods check` holds some of them against what the
function does. A decorator returns the function that it was given.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

TRAITS = {
    # advantage
    "compares_siblings": "credit is a comparison within the group, so a group of one earns none",
    "by_group_spread": "credit is divided by the spread of the group's rewards",
    "by_batch_spread": "credit is divided by a spread over the whole batch",
    "by_token": "the tokens of one rollout have credits of their own",
    "needs_graded_rewards": "credit grows without bound where rewards are 0 and 1 alone",
    "independent_attempts": "it counts on attempts that are independent draws (select too)",
    # choose, allocate, advantage
    "tracks_pass_rate": "it depends on the pass rates that the ledger has counted",
    # allocate
    "phased": "attempts are allocated in several phases",
    "favours_rare": "problems of which few attempts were right get more attempts",
    # guide
    "poses_twins": "a problem is posed in several variants at once",
    # play
    "one_call": "the attempts of a group must be made in one call",
    "casts_roles": "the attempts of one call have different roles, and each call has its own",
    "not_as_posed": "attempts continue or end where another one was, so they are no draws on the problem as posed",
    "shares_beginnings": "attempts share beginnings that the policy wrote",
    "forces_end": "attempts are interrupted and made to end",
    # schedule
    "in_parts": "a group's attempts are played one by one, or in parts",
    "leaves_unmarked": "some attempts are given up on before they are marked",
    "defers_groups": "groups are put off, and continued in a later wave",
    # reward
    "not_whether_right": "the value is another than whether the attempt is right",
    # improve
    "by_rollout": "it takes one credit and one weight for all tokens of a rollout",
}
COMPARED = {"<": operator.lt, ">": operator.gt}


@dataclass(frozen=True)
class Trait:
    """A name of `TRAITS`, and the settings at which the function has it: a value each, or ("<", 1)."""

    name: str
    when: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, settings: Mapping[str, Any]) -> bool:
        return all(_meets(settings.get(k), v) for k, v in self.when.items())


@dataclass(frozen=True)
class Requirement:
    """A thing that a function at another seam must give, and why, with what would."""

    thing: str
    at: str
    why: str


@dataclass(frozen=True)
class Bounds:
    """The numbers that a setting may have: intervals and single numbers, as they were written."""

    text: str                                           # "0 or [1, inf)"
    parts: tuple[tuple[float, bool, float, bool], ...]  # low, whether it is one of them, high, whether it is

    @staticmethod
    def of(text: str) -> Bounds:
        """Raises ValueError for what is neither a number nor an interval such as [0, 1)."""
        parts = []
        for part in text.split(" or "):
            found = re.fullmatch(r"([\[(])\s*(\S+)\s*,\s*(\S+?)\s*([\])])", part.strip())
            opened, low, high, closed = found.groups() if found else ("[", part, part, "]")
            parts.append((float(low), opened == "[", float(high), closed == "]"))
        return Bounds(text, tuple(parts))

    def hold(self, value: Any) -> bool:
        """Whether a number is one of these, or all of several are; what is no number is not judged."""
        if isinstance(value, (list, tuple)):
            return all(map(self.hold, value))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        return any(
            (low < value or (from_it and value == low)) and (value < high or (to_it and value == high))
            for low, from_it, high, to_it in self.parts
        )


@dataclass(frozen=True)
class Declared:
    """All that one function declares."""

    traits: tuple[Trait, ...] = ()
    requires: tuple[Requirement, ...] = ()
    gives: frozenset[str] = frozenset()
    shares: Mapping[str, str] = field(default_factory=dict)     # the number's name: the setting that holds it
    bounds: Mapping[str, Bounds] = field(default_factory=dict)  # by setting

    def has(self, name: str, settings: Mapping[str, Any]) -> Trait | None:
        """The trait of this name, if the function has it at these settings."""
        return next((t for t in self.traits if t.name == name and t.holds(settings)), None)


def declared(fn: Any) -> Declared:
    """What a function declares; nothing where it does not."""
    return getattr(fn, _ATTRIBUTE, Declared())


def trait(*names: str, **when: Any) -> Callable[[F], F]:
    """The function has these traits; with settings, only at these values: `trait("by_group_spread", std=True)`.

    Raises ValueError for a name that is not in `TRAITS`: a misspelt trait would switch its checks off.
    """
    if bad := next((name for name in names if name not in TRAITS), None):
        raise ValueError(f"there is no trait {bad!r}; there are {', '.join(TRAITS)}")
    return _adds(lambda d: replace(d, traits=(*(Trait(name, when) for name in names), *d.traits)))


def requires(thing: str, *, at: str, why: str) -> Callable[[F], F]:
    """The function needs a thing that a function of the seam `at` gives; `why` says so, and what would give it."""
    return _adds(lambda d: replace(d, requires=(Requirement(thing, at, why), *d.requires)))


def gives(*things: str) -> Callable[[F], F]:
    """The function gives these things to functions that require them."""
    return _adds(lambda d: replace(d, gives=d.gives | set(things)))


def shares(**numbers: str) -> Callable[[F], F]:
    """Settings that stand for a number of the whole recipe: `shares(best_of="n")`. Of a list it is the length."""
    return _adds(lambda d: replace(d, shares={**d.shares, **numbers}))


def bounds(**ranges: str) -> Callable[[F], F]:
    """The values that settings may have: `bounds(low="[0, 1]", dual="0 or [1, inf)")`; of a list, each of its numbers.

    Raises ValueError for what cannot be read.
    """
    read = {name: Bounds.of(text) for name, text in ranges.items()}
    return _adds(lambda d: replace(d, bounds={**d.bounds, **read}))


def outside(settings: Mapping[str, Any], known: Declared) -> Iterator[tuple[str, Any, str]]:
    """(setting, value, what it may be) of each that is out of its bounds."""
    for name, allowed in known.bounds.items():
        if name in settings and not allowed.hold(settings[name]):
            yield name, settings[name], allowed.text


_ATTRIBUTE = "__isocost_declared__"


# Decorators apply from the one below upwards: what each adds goes first, so that a list reads as it was written.
def _adds(change: Callable[[Declared], Declared]) -> Callable[[F], F]:
    def decorate(fn: F) -> F:
        setattr(fn, _ATTRIBUTE, change(declared(fn)))
        return fn

    return decorate


def _meets(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple) and wanted and wanted[0] in COMPARED:
        return bool(COMPARED[wanted[0]](value, wanted[1]))
    return bool(value == wanted)
