"""Recipes as data: describe one, compare two, list the functions of one, set one setting."""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
import types as pytypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from isocost.errors import UserError
from isocost.seams import SEAMS, SIZE_BOUNDS, SIZES, Recipe
from isocost.traits import Bounds, Declared, declared, outside

AnyRecipe = TypeVar("AnyRecipe", bound=Any)      # a Recipe, or an agent of control
SIZE = Bounds.of("[1, inf)")     # of a size that declares none
METHODS = "isocost.methods."     # before the name of a method, in the name of its module
# Every run of a study asks for the same ones.
_signature: Callable[[Any], inspect.Signature] = lru_cache(maxsize=2048)(inspect.signature)


def describe(x: Any) -> Any:
    """A recipe as plain data: every parameter with its value, defaults bound. Records store it, `diff` compares it.

    A function from outside the package is described with the hash of its source file, because its name alone does not
    identify it. Nor does a name say by which rule a function computes: `rules` are those of the files that a recipe's
    functions are from, by method, where they are not 1. Raises UserError for a function that cannot be found by its
    name: a lambda, a function within another, a callable object.
    """
    if isinstance(x, partial) or (callable(x) and not isinstance(x, type)):
        fn, args, keywords = (x.func, x.args, x.keywords) if isinstance(x, partial) else (x, (), {})
        _refuse_nameless(fn)
        settings = {k: p.default for k, p in _settings(fn).items()}
        out: dict[str, Any] = {"fn": _named(fn)}
        if not fn.__module__.startswith("isocost."):
            out["source"] = _source_hash(fn)
        out |= {k: describe(v) for k, v in {**settings, **keywords}.items() if v is not inspect.Parameter.empty}
        return out | ({"args": [describe(a) for a in args]} if args else {})
    if is_dataclass(x) and not isinstance(x, type):
        rules = _rules(x) if isinstance(x, Recipe) else {}
        return {f.name: describe(getattr(x, f.name)) for f in fields(x)} | ({"rules": rules} if rules else {})
    if isinstance(x, (list, tuple)):
        return [describe(i) for i in x]
    if isinstance(x, dict):
        return {str(k): describe(v) for k, v in x.items()}
    return x.item() if isinstance(x, np.generic) else x


def _rules(recipe: Recipe) -> dict[str, int]:
    """The rules of the files of a recipe's functions: method -> the number in its card, if it is not 1."""
    modules = sorted({used.fn.__module__ for used in functions([getattr(recipe, seam) for seam in SEAMS])})
    cards = ((name.removeprefix(METHODS), getattr(sys.modules.get(name), "CARD", None)) for name in modules)
    return {name: rule for name, card in cards if (rule := getattr(card, "rule", 1)) != 1}


def calls(x: Any) -> Iterator[Mapping[str, Any]]:
    """Every function in a described seam or recipe, the outermost first."""
    if isinstance(x, Mapping):
        if "fn" in x:
            yield x
        for value in x.values():
            yield from calls(value)
    elif isinstance(x, list):
        for value in x:
            yield from calls(value)


def call(x: Mapping[str, Any]) -> str:
    """The short name of a described function, such as "grpo.advantage"."""
    return _short(x["fn"])


@dataclass(frozen=True)
class Used:
    """A function as a recipe uses it, with its settings, every default bound."""

    fn: Callable[..., Any]
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its short name, such as "grpo.advantage"."""
        return _short(_named(self.fn))

    @property
    def foreign(self) -> bool:
        """Whether it is from outside the package: what it calls inside cannot be known."""
        return not self.fn.__module__.startswith("isocost.")

    @property
    def declared(self) -> Declared:
        return declared(self.fn)


def functions(x: Any) -> Iterator[Used]:
    """Every function in a seam's value, at any depth, the outermost first. Raises UserError as `describe` does."""
    if isinstance(x, partial) or (callable(x) and not isinstance(x, type)):
        fn, keywords = (x.func, x.keywords) if isinstance(x, partial) else (x, {})
        _refuse_nameless(fn)
        defaults = {k: p.default for k, p in _settings(fn).items() if p.default is not p.empty}
        settings = {**defaults, **keywords}
        yield Used(fn, settings)
        for value in (*(x.args if isinstance(x, partial) else ()), *settings.values()):
            yield from functions(value)
    elif isinstance(x, (list, tuple, dict)):
        for value in x.values() if isinstance(x, dict) else x:
            yield from functions(value)


def fingerprint(x: Any) -> str:
    """A short hash of plain data, the same on every machine."""
    return hashlib.sha256(json.dumps(x, sort_keys=True, default=str).encode()).hexdigest()[:16]


def diff(a: Recipe, b: Recipe) -> dict[str, tuple[Any, Any]]:
    """The seams and sizes at which two recipes differ, defaults bound: {name: (in a, in b)}."""
    left, right = describe(a), describe(b)
    return {k: (left[k], right[k]) for k in (*SEAMS, *SIZES) if left[k] != right[k]}


def tune(recipe: AnyRecipe, path: str, value: Any) -> AnyRecipe:
    """`tune(r, "loss.high", 0.28)`, `tune(r, "rollouts", 16)`. The function's own signature is the schema.

    A setting that is a function has settings of its own: `tune(r, "play.view.keep", 3)`. An agent of control is tuned
    as a recipe is: its numbers are sizes, and its functions seams.
    A string is read as the type of the setting it replaces. Raises KeyError, with what is expected, for an unknown
    setting and for a value outside the bounds that the function declares.
    """
    seam, *rest = path.split(".")
    own = {f.name: getattr(recipe, f.name) for f in fields(recipe)}
    sizes = [k for k, v in own.items() if isinstance(v, int)]
    seams = [k for k, v in own.items() if not isinstance(v, int | str)]
    if seam not in (*seams, *sizes):
        raise KeyError(f"{seam!r} is neither a seam ({', '.join(seams)}) nor a size ({', '.join(sizes)})")
    old = own[seam]
    if not rest:
        if seam not in sizes:
            knob = next(iter(knobs(old)), "name")
            raise KeyError(f"{seam} is a function; set one of its settings, such as {seam}.{knob}")
        size = _read(value, old, path)
        if type(size) is not type(old):
            kind = "an integer" if type(old) is int else "true or false"
            raise KeyError(f"{path} is {old!r}; expected {kind}, got {value!r}")
        if not (allowed := SIZE_BOUNDS.get(seam, SIZE)).hold(size):
            raise KeyError(f"expected a value in {allowed.text}")
        return replace(recipe, **{seam: size})
    name = ".".join(rest)
    if seam in sizes:
        raise KeyError(f"{seam} is a size, {old!r}, and has no setting {name!r}")
    if isinstance(old, tuple):
        raise KeyError(f"{seam} is several functions; change their settings in a method's file")
    return replace(recipe, **{seam: _set(old, rest, value, seam)})


def _set(old: Any, names: Sequence[str], value: Any, where: str) -> Any:
    """A function with one setting changed; further names are of the function that the setting is, such as a view's."""
    fn, keywords = (old.func, old.keywords) if isinstance(old, partial) else (old, {})
    own, (name, *more) = knobs(old), names
    if name not in own or (more and not callable(own[name])):
        takes = ", ".join(own) or "no settings"
        raise KeyError(f"{where} is {fn.__module__}:{fn.__qualname__}, which takes {takes}; not {'.'.join(names)!r}")
    if more:
        new = _set(own[name], more, value, f"{where}.{name}")
    else:
        new = _read(value, own[name], f"{where}.{name}")
        for _, _, allowed in outside({name: new}, declared(fn)):
            raise KeyError(f"{_named(fn)} expects a value in {allowed}")
    return partial(fn, **{**keywords, name: new})


def with_setting(value: Any, name: str, text: Any, where: str) -> Any:
    """A function with one setting, read as the type of what it replaces. Raises KeyError as `tune` does."""
    return _set(value, [name], text, where)


def paced(recipe: Recipe, **planned: Any) -> Recipe:
    """A recipe whose pace has the planned settings, those of them that it takes.

    Raises UserError if it takes no `lr`, which every run plans and tunes.
    """
    pace = recipe.pace
    fn, keywords = (pace.func, pace.keywords) if isinstance(pace, partial) else (pace, {})
    takes = _signature(fn).parameters
    if "lr" not in takes:
        raise UserError(f"{_where(fn)} has no keyword `lr`, which isocost plans and tunes: add it")
    return recipe.but(pace=partial(fn, **{**keywords, **{k: v for k, v in planned.items() if k in takes}}))


def pace_takes(recipe: Recipe, name: str) -> bool:
    """Whether a plan can set this of the recipe's pace, such as `max_turns`."""
    pace = recipe.pace
    return name in inspect.signature(pace.func if isinstance(pace, partial) else pace).parameters


def _refuse_nameless(fn: Callable) -> None:
    if "<" in getattr(fn, "__qualname__", "<"):
        raise UserError(f"{_where(fn)} cannot be recorded: use top-level functions and partials of them in a recipe")


def _named(fn: Callable) -> str:
    return f"{fn.__module__}:{fn.__qualname__}"


def _short(name: str) -> str:
    module, _, function = name.rpartition(":")
    return f"{module.rpartition('.')[2]}.{function}"


def _settings(fn: Callable) -> dict[str, inspect.Parameter]:
    parameters = _signature(fn).parameters
    return {
        k: p for k, p in parameters.items()
        if p.kind is p.KEYWORD_ONLY or (p.default is not p.empty and k not in ("start", "ledger"))
    }


def knobs(value: Any) -> dict[str, Any]:
    """The settings of a function, or of a partial of one, with their values; empty for anything else."""
    if not callable(value):
        return {}
    fn, keywords = (value.func, value.keywords) if isinstance(value, partial) else (value, {})
    return {k: keywords.get(k, p.default) for k, p in _settings(fn).items()}


def _read(value: Any, old: Any, path: str) -> Any:
    """A command line's string as the type of what it replaces; anything else as it is."""
    if not isinstance(value, str) or isinstance(old, str):
        return value
    try:
        parsed = json.loads(value.lower() if value.lower() in ("true", "false") else value)
    except json.JSONDecodeError as e:
        kind = "a list, such as [1, 2]" if isinstance(old, tuple | list) else "a number, true or false"
        raise KeyError(f"{path} is {old!r}; expected {kind}, got {value!r}") from e
    if isinstance(old, bool) != isinstance(parsed, bool) or (
        isinstance(old, int | float) and not isinstance(parsed, int | float)
    ):
        raise KeyError(f"{path} is {old!r}; got {value!r}, which has another type")
    if isinstance(old, tuple | list):
        if not isinstance(parsed, list):
            raise KeyError(f"{path} is {list(old)!r}; expected a list, such as [1, 2], got {value!r}")
        return type(old)(parsed)
    if isinstance(old, bool) or not isinstance(old, int):
        return parsed
    if not float(parsed).is_integer():
        raise KeyError(f"{path} is {old!r}; expected an integer, got {value!r}")
    return int(parsed)


def defined_in(fn: Callable) -> str:
    """The file and line of a function: "/home/me/mine.py, line 3"; what it is if it has none."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}" if code else repr(fn)


def _where(fn: Callable) -> str:
    there = defined_in(fn)
    return f"{fn.__qualname__} ({there})" if hasattr(fn, "__qualname__") else there


def _source_hash(fn: Callable) -> str:
    file = inspect.getsourcefile(inspect.unwrap(fn)) if isinstance(fn, pytypes.FunctionType) else None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16] if file else ""
