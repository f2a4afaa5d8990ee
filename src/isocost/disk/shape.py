"""Checks plain data against a type: what a JSON file must hold, written as Python annotations.

An annotation is a type, a union, a Literal, a list, tuple or dict of these, `Keys` (an object with named keys) and
what is made of it, a dataclass (its fields; other keys are an error unless the class has a property of that name), or
ndarray (nested lists of numbers, equally long). Integers stand for floats, never the other way round, and true is not a
number. msgspec checks types faster and was tried: of `bill.train.rollouts is 'many', expected a number` it says
"Expected `float`, got `str` - at `$.bill[...].rollouts`", without the value and the key.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache, cached_property
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

import numpy as np

SHOWN = 40          # characters of a value that a message quotes
LARGEST = 2**63     # above all integers of a record; float arithmetic overflows beyond it
UNKNOWN = "a key that is not named is an error"         # Keys(rest=UNKNOWN)
FILLED = "not empty"                                    # Annotated[tuple[X, ...], FILLED]
OPEN = "null stands for an infinite value"      # Annotated[float, OPEN]


# Dataclasses, not named tuples: `_check` keeps one check for each shape, and named tuples of equal fields are equal.
@dataclass(frozen=True)
class AtLeast:
    """Annotated[int, AtLeast(1)]: the smallest value that is allowed."""

    least: float


class Keys:
    """An object with these keys: those that it needs, and `more` that it may have. A record can grow: `rest` is the
    shape of other keys, by default anything."""

    def __init__(self, needs: Mapping[str, Any], more: Mapping[str, Any] | None = None, rest: Any = Any):
        self.needs, self.more, self.rest = dict(needs), dict(more or {}), rest

    def needing(self, **needs: Any) -> Keys:
        """The same with more keys needed."""
        return Keys({**self.needs, **needs}, {k: v for k, v in self.more.items() if k not in needs}, self.rest)


@dataclass(frozen=True)
class Each:
    """A list of such."""

    shape: Any


@dataclass(frozen=True)
class Maybe:
    """Such, or null."""

    shape: Any


@dataclass(frozen=True)
class Either:
    """One of these."""

    shapes: tuple[Any, ...]


@dataclass(frozen=True)
class Filled:
    """Such, a list or an object, and not empty."""

    shape: Any


@dataclass(frozen=True)
class FixedList:
    """A list of exactly so many such."""

    shape: Any
    length: int


@dataclass(frozen=True)
class AtMost:
    """Annotated[float, AtMost(1)]: the largest value that is allowed."""

    most: float


_NULL = type(None)
_OWN = frozenset((int, float, str, bool, None, _NULL))     # types that JSON has itself
Share = Annotated[float, AtLeast(0), AtMost(1)]
Count = Annotated[int, AtLeast(0)]
Size = Annotated[int, AtLeast(1)]
# A dataclass says in `OLDER` how records of earlier formats differ: by field, the keys that they have in its place, or
# the shape that it had.
NO_KEYS: Mapping[str, Sequence[str]] = types.MappingProxyType({})
Flaw = tuple[str, str]                          # where in the data, and what is wrong there
Check = Callable[[Any], Flaw | None]


def flaw(data: Any, shape: Any, *, partial: bool = False) -> str:
    """What does not fit the shape, as text; `partial` data of other versions may lack keys and have more."""
    found = _check(shape, partial)(data)
    return "" if found is None else f"{found[0].removeprefix('.') or 'it'} {found[1]}"


def built(shape: Any, data: Any) -> Any:
    """The inverse of `asdict` for data that fits an annotation. Raises TypeError or ValueError if it does not."""
    origin, args = get_origin(shape), get_args(shape)
    if type(data) not in (dict, list, tuple):
        return data
    if origin is Annotated:
        return built(args[0], data)
    if origin in (Union, types.UnionType):
        return built(next(a for a in args if a is not _NULL), data)
    if isinstance(shape, type) and issubclass(shape, Plain):
        return shape.of(data)
    if is_dataclass(shape):
        return _of_fields(shape, data)
    if origin is tuple:
        each = args[:1] * len(data) if args[-1] is Ellipsis else args
        return tuple(built(a, x) for a, x in zip(each, data, strict=True))
    if origin in (dict, Mapping):
        return {k: built(args[1], v) for k, v in data.items()}
    of_own = isinstance(shape, type) and issubclass(shape, Mapping)     # an arm
    return shape(data) if of_own else data


def _of_fields(shape: Any, data: Mapping[str, Any]) -> Any:
    hints = _hints(shape)
    return shape(**{f.name: built(hints[f.name], data[f.name]) for f in fields(shape) if f.name in data})


@cache
def _hints(shape: Any) -> dict[str, Any]:
    return get_type_hints(shape, include_extras=True)


def plain(x: Any) -> Any:
    """The same with dataclasses and mappings as dictionaries."""
    if isinstance(x, Plain):
        return x.data()
    if is_dataclass(x) and not isinstance(x, type):
        return {f.name: plain(getattr(x, f.name)) for f in fields(x)}
    if isinstance(x, Mapping):
        return {k: plain(v) for k, v in x.items()}
    return type(x)(map(plain, x)) if type(x) in (list, tuple) else x


class Plain:
    """A frozen dataclass that is a file or a part of one: its fields, `HEAD` and `SHOWN`, without defaults of
    `LATER`."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]       # that its subclasses are dataclasses
    HEAD: ClassVar[Mapping[str, Any]] = NO_KEYS
    SHOWN: ClassVar[Sequence[str]] = ()
    LATER: ClassVar[Sequence[str]] = ()

    def data(self) -> dict[str, Any]:
        own = {f.name: plain(getattr(self, f.name)) for f in fields(self)
               if f.name not in self.LATER or getattr(self, f.name) != f.default}
        return {**self.HEAD, **own, **{k: getattr(self, k) for k in self.SHOWN}}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        found: Self = _of_fields(cls, data)
        return found


@cache
def _check(shape: Any, partial: bool) -> Check:
    """The check of one annotation, made once: journals have many lines."""
    origin, args = get_origin(shape), get_args(shape)
    if shape is Any or shape is UNKNOWN:
        return lambda x: None
    if origin is Annotated:
        return _annotated(shape, partial)
    if kinds := _kinds(shape):
        return _plain(kinds, _words(shape))
    if origin in (Union, types.UnionType):
        return _union([_check(a, partial) for a in args], _words(shape))
    if origin is Literal:
        return lambda x: None if type(x) is str and x in args else ("", f"is {_said(x)}, expected {_words(shape)}")
    if shape is np.ndarray:
        return _numbers
    if origin in (list, Sequence) or (origin is tuple and args[-1] is Ellipsis):
        return _each(args[0], partial)
    if origin is tuple:
        return _row([_check(a, partial) for a in args])
    if origin in (dict, Mapping):
        return _values(_check(args[1], partial))
    if isinstance(shape, Each):
        return _each(shape.shape, partial)
    if isinstance(shape, Filled):
        return _check(Annotated[shape.shape, FILLED], partial)
    if isinstance(shape, FixedList):
        return _row([_check(shape.shape, partial)] * shape.length, _quick(shape.shape))
    if isinstance(shape, Maybe):
        return _check(Either((shape.shape, None)), partial)
    if isinstance(shape, Either):
        return _union([_check(x, partial) for x in shape.shapes], " or ".join(map(_words, shape.shapes)))
    if isinstance(shape, Keys):
        checks = {k: _check(v, partial) for k, v in {**shape.needs, **shape.more}.items()}
        rest = _unknown if shape.rest is UNKNOWN and not partial else _check(shape.rest, partial)
        return _keys(checks, () if partial else tuple(shape.needs), rest)
    if isinstance(shape, type) and is_dataclass(shape):
        hints = _hints(shape)
        needed = [f.name for f in fields(shape) if f.default is MISSING and f.default_factory is MISSING]
        beside = {"schema": _check(Any, partial), **{k: _later(v, partial) for k, v in _derived(shape).items()}}
        checks = {**beside, **{f.name: _check(hints[f.name], partial) for f in fields(shape)}}
        older: dict[str, Any] = getattr(shape, "OLDER", {})
        instead = {k: v for k, v in older.items() if isinstance(v, Keys)}
        for keys in instead.values():
            checks.update({k: _check(v, partial) for k, v in {**keys.needs, **keys.more}.items() if k not in hints})
        for k in older.keys() - instead.keys():
            checks[k] = _union([checks[k], _check(older[k], partial)], _words(hints[k]))
        return _keys(checks, () if partial else tuple(needed),
                     _check(Any, partial) if partial else _unknown, {k: tuple(v.needs) for k, v in instead.items()})
    if isinstance(shape, type) and issubclass(shape, Mapping) and shape is not dict:
        return _values(_check(float, partial))
    return _plain((shape,), _words(shape))


def _later(shape: Any, partial: bool) -> Check:
    """A check that is made when it is needed: a property may have the type of its class."""
    return lambda x: _check(shape, partial)(x)


def _kinds(shape: Any) -> tuple[type, ...]:
    """The types of values of a type that JSON has itself, or of a union of such; empty for any other shape."""
    union = get_origin(shape) in (Union, types.UnionType)
    kinds = {a: (int, float) if a is float else (type(None) if a is None else a,)
             for a in (get_args(shape) if union else (shape,))}
    return tuple(k for own in kinds.values() for k in own) if kinds.keys() <= _OWN else ()


def _quick(shape: Any) -> Callable[[Any], bool]:
    """Whether every value of a list fits, at the speed of C: true is sure, and after false each value is checked."""
    base, *notes = get_args(shape) if get_origin(shape) is Annotated else (shape,)
    kinds = frozenset(_kinds(base))
    if not kinds or not all(isinstance(n, AtLeast | AtMost) for n in notes) or (notes and kinds != {int}):
        return lambda x: False
    least = max((n.least for n in notes if isinstance(n, AtLeast)), default=1 - LARGEST)
    most = min((n.most for n in notes if isinstance(n, AtMost)), default=LARGEST - 1)

    def fits(x: Any) -> bool:
        there = set(map(type, x))
        if not there <= kinds:
            return False
        numbers = [v for v in x if v is not None] if _NULL in there else x
        if there & {int, float} and there <= {int, float, _NULL}:
            return not numbers or (least <= min(numbers) and max(numbers) <= most and all(map(math.isfinite, numbers)))
        return there <= {str, bool, _NULL}

    return fits


def _plain(kinds: tuple[type, ...], words: str) -> Check:
    """The check of types that JSON has itself."""

    def check(x: Any) -> Flaw | None:
        if type(x) not in kinds:
            return "", f"is {_said(x)}, expected {words}"
        if type(x) is float and not math.isfinite(x):
            return "", f"is {x}, expected a finite number"
        if type(x) is int and abs(x) >= LARGEST:
            return "", f"is {_said(x)}, expected {words} below 2**63"
        return None

    return check


def _annotated(shape: Any, partial: bool) -> Check:
    base, *notes = get_args(shape)
    if keys := next((n for n in notes if isinstance(n, Keys)), None):     # of a mapping
        return _check(keys, partial)
    check = _check(base | None if OPEN in notes else base, partial)
    least = next((n.least for n in notes if isinstance(n, AtLeast)), -math.inf)
    most = next((n.most for n in notes if isinstance(n, AtMost)), math.inf)

    def bounded(x: Any) -> Flaw | None:
        if (found := check(x)) is not None or x is None:
            return found
        if FILLED in notes:
            return None if x else ("", f"is {_said(x)}, expected at least one entry")
        if least <= x <= most:
            return None
        return "", f"is {x:g}, expected at least {least:g}" if x < least else f"is {x:g}, expected at most {most:g}"

    return bounded


def _union(checks: Sequence[Check], words: str) -> Check:
    def check(x: Any) -> Flaw | None:
        found = []
        for one in checks:
            if (wrong := one(x)) is None:
                return None
            found.append(wrong)
        deepest = max(found, key=lambda f: len(f[0]))       # for {...} | None the inner flaw is more specific
        return deepest if deepest[0] else ("", f"is {_said(x)}, expected {words}")

    return check


def _each(inner: Any, partial: bool) -> Check:
    check, quick = _check(inner, partial), _quick(inner)

    def each(x: Any) -> Flaw | None:
        if type(x) is not list and type(x) is not tuple:
            return "", f"is {_said(x)}, expected a list"
        if quick(x):      # most of a journal
            return None
        for i, item in enumerate(x):
            if (found := check(item)) is not None:
                return f"[{i}]{found[0]}", found[1]
        return None

    return each


def _row(checks: Sequence[Check], quick: Callable[[Any], bool] = lambda x: False) -> Check:
    def check(x: Any) -> Flaw | None:
        if type(x) not in (list, tuple) or len(x) != len(checks):
            return "", f"is {_said(x)}, expected a list of {len(checks)} values"
        if quick(x):
            return None
        for i, (item, one) in enumerate(zip(x, checks, strict=True)):
            if (found := one(item)) is not None:
                return f"[{i}]{found[0]}", found[1]
        return None

    return check


def _values(check: Check) -> Check:
    def each(x: Any) -> Flaw | None:
        if not isinstance(x, dict):
            return "", f"is {_said(x)}, expected an object"
        for k, v in x.items():
            if (found := check(v)) is not None:
                return f".{k[:SHOWN]}{found[0]}", found[1]
        return None

    return each


def _unknown(x: Any) -> Flaw:
    """The flaw of a key that nothing reads."""
    return "", "is not a key that this version of isocost knows"


def _keys(
    checks: Mapping[str, Check], needed: Sequence[str], rest: Check, instead: Mapping[str, Sequence[str]] = NO_KEYS
) -> Check:
    """`instead` are the keys that older records have in place of one that is needed."""
    def check(x: Any) -> Flaw | None:
        if not isinstance(x, dict):
            return "", f"is {_said(x)}, expected an object"
        for k in needed:
            older = [o for o in instead.get(k, ()) if o not in x]
            if k not in x and (older or k not in instead):
                return f".{k if len(older) == len(instead.get(k, ())) else older[0]}", "is missing"
        for k, v in x.items():
            if (found := checks.get(k, rest)(v)) is not None:
                return f".{k[:SHOWN]}{found[0]}", found[1]
        return None

    return check


def _numbers(x: Any) -> Flaw | None:
    """Nested lists of numbers or null, equally long at every depth."""
    try:
        values = np.array(x)        # without a type: with one, numpy reads "1" as a number
        if values.dtype.kind == "O" and {type(v) for v in values.flat} <= {int, float, type(None)}:
            values = values.astype(float)
    except (TypeError, ValueError, OverflowError):
        values = np.array("")
    if not isinstance(x, list) or values.dtype.kind not in "if" or np.isinf(values).any():
        return "", f"is {_said(x)}, expected finite numbers in lists of equal length"
    return None


def _derived(shape: Any) -> dict[str, Any]:
    """A dataclass's properties with their types: a record may contain them too."""
    found = {k: v.fget if isinstance(v, property) else v.func
             for c in reversed(shape.__mro__) for k, v in vars(c).items() if isinstance(v, property | cached_property)}
    return {k: get_type_hints(f, include_extras=True).get("return", Any) for k, f in found.items()}


def _words(shape: Any) -> str:
    origin, args = get_origin(shape), get_args(shape)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_words, args)))
    if origin is Literal:
        return " or ".join(map(repr, args))
    if origin is Annotated:
        return _words(args[0])
    if isinstance(shape, Each | FixedList):
        return "a list"
    names: dict[Any, str] = {int: "an integer", float: "a number", str: "text", bool: "true or false",
                             None: "null", type(None): "null", list: "a list", tuple: "a list", np.ndarray: "numbers"}
    return names.get(shape) or names.get(origin) or "an object"


def _said(x: Any) -> str:
    """A value as a message quotes it: short, and containers by their kind."""
    if isinstance(x, dict):
        return "an object" if x else "an empty object"
    if isinstance(x, list | tuple):
        return "an empty list" if not x else f"a list of {len(x)}"
    if x is None or isinstance(x, bool):
        return {None: "null", True: "true", False: "false"}[x]
    text = repr(x) if isinstance(x, str) else str(x)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
