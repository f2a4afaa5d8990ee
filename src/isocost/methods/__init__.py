"""One paper, one file: each file here is a method, without registration.

A method's file has a docstring with its equations, `CARD`, its functions, named after the seams that they fill, and
`recipe(**changes)`; it may have `needs(profile)`. Other people's files work the same, by path or through the entry
points `isocost.methods`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocost.errors import Interrupted, UserError

if TYPE_CHECKING:
    from isocost.seams import Recipe

__all__ = ["Card", "family", "load", "names", "needs", "recipe", "tree"]
HOLDS, FAILS, UNMEASURED = "holds", "fails", "not measured"


@dataclass(frozen=True)
class Card:
    """The source of a method, and its claim."""

    title: str
    paper: str              # arXiv id, or a citation where there is none
    year: int
    parent: str | None      # the method this one is a change to
    claim: str              # one sentence, checkable
    rule: int = 1           # grows when what its functions compute changes: part of every recipe that uses one of them


class _Set:
    """A method with settings: its module, with a recipe that has them. Later changes override the settings."""

    def __init__(self, module: Any, name: str, pairs: Sequence[str]):
        if bad := next((p for p in pairs if "=" not in p), None):
            raise UserError(f"{name}: {bad!r} has no value; write METHOD@SEAM.NAME=VALUE, such as grpo@loss.high=0.28")
        self._module, self._sets = module, dict(p.split("=", 1) for p in pairs)
        self.__doc__ = module.__doc__
        self.recipe()       # an unknown setting raises here

    def recipe(self, **changes: Any) -> Recipe:
        return tuned(self._module.recipe(**changes), self._sets).but(**changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def names() -> list[str]:
    """The names of all methods: those of this package and of installed plug-ins, sorted."""
    return sorted({*shipped(), *(e.name for e in entry_points(group="isocost.methods"))})


def shipped() -> list[str]:
    """The names of the methods of this package, sorted. A plug-in of the same name does not replace them."""
    return list(_files())


@cache
def _files() -> tuple[str, ...]:
    return tuple(sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_")))


def load(name: str) -> Any:
    """The module of a method, by its name or by the path of a .py file; METHOD@SETTINGS is one with these settings.

    Raises UserError if it does not exist, does not import, lacks `CARD` or `recipe`, or lacks one of the settings.
    """
    method, own = parted(name)
    found = _from_file(Path(method)) if method.endswith(".py") else _by_name(method)
    lacking = [part for part in ("CARD", "recipe") if not hasattr(found, part)]
    if lacking:
        raise UserError(f"{name} is not a method: it has no {' and no '.join(lacking)} (see docs/write_a_method.md)")
    return _Set(found, name, own.split(",")) if own else found


def recipe(name: str, **changes: Any) -> Recipe:
    """A method's recipe, with these sizes or seams. Raises UserError also if its file fails to make one."""
    from isocost.seams import Recipe

    method = load(name)
    try:
        made = method.recipe(**changes)
    except (UserError, Interrupted):
        raise
    except Exception as e:      # other people's files may raise anything
        raise UserError(f"{name} makes no recipe: {told(e, method.__file__)}{_hint(e, changes)}") from e
    if not isinstance(made, Recipe):
        raise UserError(f"{name} makes no recipe: its `recipe` returns a {type(made).__name__}; is a `return` missing?")
    return made


def _hint(error: Exception, changes: Mapping[str, Any]) -> str:
    """How to correct a recipe with an unknown keyword; empty for another error."""
    from isocost.seams import SEAMS, SIZES

    keyword = re.search(r"unexpected keyword argument '(\w+)'", str(error)) if isinstance(error, TypeError) else None
    if keyword is None or (keyword[1] in (*SEAMS, *SIZES) and keyword[1] not in changes):
        return ""
    if keyword[1] in changes:
        return ". Write `def recipe(**changes)`, and end it with `.but(**changes)`"
    close = " or ".join(map(repr, get_close_matches(keyword[1], (*SEAMS, *SIZES))))
    return f". No seam has this name{f': did you mean {close}?' if close else ''}"


def parted(name: str) -> tuple[str, str]:
    """A method and its settings, as written; a path may contain an @."""
    method, at, own = name.rpartition("@")
    return (method, own) if at and ("=" in own or not ("/" in own or own.endswith(".py"))) else (name, "")


def tuned(recipe: Recipe, sets: Mapping[str, str]) -> Recipe:
    """A recipe with a user's settings, by `seam.name`. Raises UserError for an unknown setting."""
    from isocost.recipe import tune

    for path, value in sets.items():
        try:
            recipe = tune(recipe, path, value)
        except KeyError as e:
            raise UserError(f"{recipe.name}: {path}={value}: {e.args[0]}") from None
    return recipe


def told(error: BaseException, file: str) -> str:
    """An error with the last line of this file that led to it, or of the package if none did."""
    if isinstance(error, UserError):
        return str(error)
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"line {error.lineno}: {type(error).__name__}: {error.msg}: {(error.text or '').strip()}"
    frames = traceback.extract_tb(error.__traceback__)
    if here := [f for f in frames if f.filename == file]:
        return f"line {here[-1].lineno}: {said}: {here[-1].line}"
    package = Path(__file__).parents[1]
    if here := [f for f in frames if package in Path(f.filename).parents and f.filename != __file__]:
        return f"{said} ({Path(here[-1].filename).relative_to(package.parent)}, line {here[-1].lineno})"
    return said


def raised_in(error: BaseException, file: str) -> bool:
    """Whether a line of this file raised the error, itself or in a library, and not in the package that it called."""
    package = Path(__file__).parents[1]
    frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
    known = [f for f in frames if f == file or package in Path(f).parents]
    return bool(known) and known[-1] == file


def needs(name: str, profile: Mapping[str, Any]) -> tuple[str, str]:
    """Whether a method's preconditions hold on a profiled problem set: (state, why).

    State is `holds`, `fails` or `not measured`; the last also for a method that does not load or whose `needs` raises.
    A method without `needs` has its parent's.
    """
    try:
        method = load(name)
        while not hasattr(method, "needs"):
            if method.CARD.parent is None:
                return UNMEASURED, f"{name} states no preconditions"
            method = load(method.CARD.parent)
    except UserError as e:
        return UNMEASURED, str(e)
    try:
        state, why = method.needs(profile)
    except Exception as e:      # other people's files may raise anything
        return UNMEASURED, f"its needs raises {told(e, method.__file__)}"
    return state, why


def family(of: Sequence[str] = ()) -> tuple[list[tuple[str, int]], list[str]]:
    """The methods, or these, as a family tree: ([(name, depth)], [reason]).

    Each method comes after its parent, one level deeper. A reason is of a method that does not load.
    """
    cards, broken = {}, []
    for name in of or names():
        try:
            cards[name] = load(name).CARD
        except UserError as e:
            broken.append(str(e))

    def below(parent: str | None, depth: int) -> list[tuple[str, int]]:
        out = []
        for name in [n for n, card in cards.items() if card.parent == parent]:
            out += [(name, depth), *below(name, depth + 1)]
        return out

    roots = dict.fromkeys(card.parent for card in cards.values() if card.parent not in cards)
    return [row for root in roots for row in below(root, 0)], broken


def tree(of: Sequence[str] = ()) -> str:
    """The family tree as text, children indented; methods that do not load come last, with the reason."""
    rows, broken = family(of)
    return "\n".join([*("  " * depth + name for name, depth in rows), *broken])


def _by_name(name: str) -> Any:
    if name in shipped():       # first, because reading the installed packages takes a hundred times as long
        return importlib.import_module(f"{__name__}.{name}")
    found = next((e for e in entry_points(group="isocost.methods") if e.name == name), None)
    if found is None:
        close = " or ".join(map(repr, get_close_matches(name, names())))
        if Path(f"{name}.py").is_file():
            raise UserError(f"unknown method {name!r}; a file is named by its path: ./{name}.py")
        raise UserError(f"unknown method {name!r}{f' (did you mean {close}?)' if close else ''}; expected one of "
                        f"{', '.join(names())}, or the path of a .py file")
    try:
        return found.load()
    except Exception as e:      # other people's files may raise anything
        why = told(e, _origin(found.module))
        raise UserError(f"the method {name} of an installed package ({found.value}) does not import: {why}") from e


def _origin(module: str) -> str:
    """The file of a module that may not import; empty if it is not found."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:       # it imports the parent package, which may raise anything
        return ""
    return (spec.origin or "") if spec else ""


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    # The module's name must be the same in every process and wherever the file is, for runs and seals made with it; two
    # files of one name must have different modules.
    source = path.read_bytes()
    name = f"{path.stem}_{hashlib.sha256(source).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UserError(f"{path} cannot be read as Python")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:    # not by its loader: bytecode of another text of the same length and second would be taken for its own
            exec(compile(source, spec.origin or str(path), "exec", dont_inherit=True), module.__dict__)
        except BaseException as e:
            del sys.modules[name]
            if not isinstance(e, Exception | SystemExit) or isinstance(e, Interrupted):
                raise
            raise UserError(f"{path} does not import: {told(e, spec.origin or '')}") from e
    return sys.modules[name]
