"""Declarations of a seam function, written beside its definition, so that a new method needs no entry elsewhere.

    @trait("compares_siblings")                     a property that some functions or sizes conflict with
    @requires("reference", at="enrich", why="...")  what it needs, and the seam that must provide it
    @gives("reference")                             what it provides to functions that require it
    @shares(gamma="gamma")                          a setting that must have one value in the whole recipe
    @bounds(low="[0, 1]", high="[0, inf)")          the allowed values of a setting
    @asks("entropy")                                what it needs of the learner: a name of `isocost.can.LEARNER`
    @exported("low", "high", surrogate="clipped")   what it is in the terms that other trainers share

`isocost.contract.conflicts` checks recipes by these, and `isocost methods check` compares some of them with what the
function does. A decorator returns the function itself.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from isocost.can import LEARNER, Can

__all__ = ["addressed", "asks", "bounds", "exported", "gives", "requires", "shares", "trait"]
F = TypeVar("F", bound=Callable[..., Any])

TRAITS = {
    # advantage
    "compares_siblings": "the advantage is a comparison within the group, so a group of one has none",
    "by_group_spread": "the advantage is divided by the spread of the group's rewards",
    "by_batch_spread": "the advantage is divided by a spread over the whole batch",
    "by_token": "the tokens of one rollout have different advantages",
    "needs_graded_rewards": "the advantage is unbounded if all rewards are 0 or 1",
    "independent_attempts": "it needs attempts that are independent draws (select too)",
    # choose, allocate, advantage
    "tracks_pass_rate": "it uses the pass rates in the ledger",
    # allocate
    "phased": "attempts are allocated in several phases",
    "favours_rare": "problems with few right attempts get more attempts",
    # guide
    "poses_twins": "a problem is posed in several variants at once",
    # play
    "one_call": "the attempts of a group must be made in one call",
    "casts_roles": "the attempts of one call have different roles, assigned within the call",
    "not_as_posed": "attempts continue or end inside another one, so they are not draws on the problem as posed",
    "shares_beginnings": "attempts share beginnings that the policy wrote",
    "chosen_by_steps": "a scorer decides after each step which texts go on, so tokens are not the policy's own draws",
    "chosen_by_reward": "the attempts are chosen among others by their rewards",
    "forces_end": "attempts are interrupted and made to end",
    # schedule
    "in_parts": "a group's attempts are played one by one, or in parts",
    "leaves_unmarked": "some attempts are cancelled before they are marked",
    "defers_groups": "groups are deferred, and continued in a later wave",
    # reward
    "not_whether_right": "the value is not whether the attempt is right",
    # any seam
    "needs_turns": "it acts on the turns of a dialogue; on one question and one answer it is its parent",
    # improve
    "by_rollout": "it needs one advantage and one weight for all tokens of a rollout",
}
COMPARED = {"<": operator.lt, ">": operator.gt}


@dataclass(frozen=True)
class Trait:
    """A name of `TRAITS`, and the settings at which the function has it: a value for each, or ("<", 1)."""

    name: str
    when: Mapping[str, Any] = field(default_factory=dict)

    def holds(self, settings: Mapping[str, Any]) -> bool:
        return all(_meets(settings.get(k), v) for k, v in self.when.items())


@dataclass(frozen=True)
class Requirement:
    """What a function at another seam must provide, and why, with what would provide it."""

    thing: str
    at: str
    why: str


@dataclass(frozen=True)
class Bounds:
    """The allowed numbers of a setting: intervals and single numbers, as written."""

    text: str                                           # "0 or [1, inf)"
    parts: tuple[tuple[float, bool, float, bool], ...]  # low, whether it is one of them, high, whether it is

    @staticmethod
    def of(text: str) -> Bounds:
        """Raises ValueError for text that is neither a number nor an interval such as [0, 1)."""
        parts = []
        for part in text.split(" or "):
            found = re.fullmatch(r"([\[(])\s*(\S+)\s*,\s*(\S+?)\s*([\])])", part.strip())
            opened, low, high, closed = found.groups() if found else ("[", part, part, "]")
            parts.append((float(low), opened == "[", float(high), closed == "]"))
        return Bounds(text, tuple(parts))

    def hold(self, value: Any) -> bool:
        """Whether a number is allowed, or all of several are; True for anything that is not a number."""
        if isinstance(value, (list, tuple)):
            return all(map(self.hold, value))
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return True
        return any(
            (low < value or (from_it and value == low)) and (value < high or (to_it and value == high))
            for low, from_it, high, to_it in self.parts
        )


@dataclass(frozen=True)
class Export:
    """A function in the terms of `isocost.trainers.driving.export.TrainerLoss`: fixed values by field, and settings by
    field. With `when`, only at these settings.
    """

    values: Mapping[str, Any]
    settings: Mapping[str, str]
    when: Mapping[str, Any] = field(default_factory=dict)

    def at(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The fields at these settings; empty if `when` does not hold."""
        if not all(_meets(settings.get(k), v) for k, v in self.when.items()):
            return {}
        return {**self.values, **{k: settings[name] for k, name in self.settings.items() if name in settings}}


@dataclass(frozen=True)
class Declared:
    """All declarations of one function."""

    traits: tuple[Trait, ...] = ()
    requires: tuple[Requirement, ...] = ()
    gives: frozenset[str] = frozenset()
    shares: Mapping[str, str] = field(default_factory=dict)     # the number's name: the setting that holds it
    bounds: Mapping[str, Bounds] = field(default_factory=dict)  # by setting
    exports: tuple[Export, ...] = ()                            # later ones override; empty: no trainer has it
    asks: frozenset[Can] = frozenset()                          # what the learner must be able to do

    def has(self, name: str, settings: Mapping[str, Any]) -> Trait | None:
        """The trait of this name, if the function has it at these settings."""
        return next((t for t in self.traits if t.name == name and t.holds(settings)), None)


def declared(fn: Any) -> Declared:
    """The declarations of a function; empty if there are none."""
    return getattr(fn, _ATTRIBUTE, Declared())


def trait(*names: str, **when: Any) -> Callable[[F], F]:
    """The function has these traits; with settings, only at these values: `trait("by_group_spread", std=True)`.

    Raises ValueError for a name that is not in `TRAITS`, because a misspelt trait would disable its checks.
    """
    if bad := next((name for name in names if name not in TRAITS), None):
        raise ValueError(f"unknown trait {bad!r}; expected one of {', '.join(TRAITS)}")
    return _adds(lambda d: replace(d, traits=(*(Trait(name, when) for name in names), *d.traits)))


def requires(thing: str, *, at: str, why: str) -> Callable[[F], F]:
    """The function needs what a function of the seam `at` provides; `why` says so, and what would provide it."""
    return _adds(lambda d: replace(d, requires=(Requirement(thing, at, why), *d.requires)))


def gives(*things: str) -> Callable[[F], F]:
    """The function provides these things to functions that require them."""
    return _adds(lambda d: replace(d, gives=d.gives | set(things)))


def shares(**numbers: str) -> Callable[[F], F]:
    """Settings that represent a number of the whole recipe: `shares(best_of="n")`. Of a list it is the length."""
    return _adds(lambda d: replace(d, shares={**d.shares, **numbers}))


def asks(*abilities: str) -> Callable[[F], F]:
    """The function needs a learner with these capabilities, by their names in small letters.

    Raises ValueError for a name that is not of `isocost.can.LEARNER`.
    """
    known = {c.name.lower(): c for c in LEARNER}
    if bad := next((name for name in abilities if name not in known), None):
        raise ValueError(f"unknown ability {bad!r}; expected one of {', '.join(sorted(known))}")
    return _adds(lambda d: replace(d, asks=d.asks | {known[name] for name in abilities}))


def bounds(**ranges: str) -> Callable[[F], F]:
    """Allowed values of settings: `bounds(low="[0, 1]", dual="0 or [1, inf)")`; of a list, of each of its numbers.

    Raises ValueError for text that cannot be parsed.
    """
    read = {name: Bounds.of(text) for name, text in ranges.items()}
    return _adds(lambda d: replace(d, bounds={**d.bounds, **read}))


def exported(*same: str, of: Mapping[str, str] | None = None, when: Mapping[str, Any] | None = None, **values: Any
             ) -> Callable[[F], F]:
    """Other trainers have this function; without arguments, all of them do, so that there is nothing to set.

    `values` are fields of `isocost.trainers.driving.export.TrainerLoss`. `same` are settings that are fields of the
    same name, `of` fields by the settings that hold them: `exported(of={"kl": "scale"})`. With `when`, only at these
    settings.
    """
    made = Export(values, {**{name: name for name in same}, **(of or {})}, when or {})
    return _adds(lambda d: replace(d, exports=(made, *d.exports)))


def addressed(fn: F) -> F:
    """A `choose` that leaves its `rng` alone, which is then not made."""
    setattr(fn, _ADDRESSED, True)
    return fn


def draws(fn: Any) -> bool:
    """Whether a `choose` may use its `rng`."""
    return not getattr(fn, _ADDRESSED, False)


def outside(settings: Mapping[str, Any], known: Declared) -> Iterator[tuple[str, Any, str]]:
    """(setting, value, allowed values) of each setting that is out of its bounds."""
    for name, allowed in known.bounds.items():
        if name in settings and not allowed.hold(settings[name]):
            yield name, settings[name], allowed.text


_ATTRIBUTE, _ADDRESSED = "__isocost_declared__", "__isocost_addressed__"


# Decorators apply from the lowest upwards: each adds in front, so that a list has the order of the source.
def _adds(change: Callable[[Declared], Declared]) -> Callable[[F], F]:
    def decorate(fn: F) -> F:
        setattr(fn, _ATTRIBUTE, change(declared(fn)))
        return fn

    return decorate


def _meets(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple) and wanted and wanted[0] in COMPARED:
        return bool(COMPARED[wanted[0]](value, wanted[1]))
    return bool(value == wanted)
