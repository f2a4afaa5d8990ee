"""One paper, one file: each file here is a method, without registration.

A method's file has a docstring with its equations, `CARD`, its functions, named after the seams that they fill, and
`recipe(**changes)`; it may have `needs(profile)`. Other people's files work the same, by path or through the entry
points `isocost.methods`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from isocost.errors import Interrupted, UserError
from isocost.found import Card, FileKind, raised_in, told

if TYPE_CHECKING:
    from isocost.seams import Recipe

__all__ = ["Card", "load", "names", "needs", "raised_in", "recipe", "told", "tree"]
HOLDS, FAILS, UNMEASURED = "holds", "fails", "not measured"


KIND = FileKind("isocost.methods", "method", ("CARD", "recipe"), "docs/write_a_method.md")


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
    return KIND.names()


def shipped() -> list[str]:
    """The names of the methods of this package, sorted. A plug-in of the same name does not replace them."""
    return KIND.shipped()


def load(name: str) -> Any:
    """The module of a method, by its name or by the path of a .py file; METHOD@SETTINGS is one with these settings.

    Raises UserError if it does not exist, does not import, lacks `CARD` or `recipe`, or lacks one of the settings.
    """
    method, own = parted(name)
    found = KIND.load(method)
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


def tree(of: Sequence[str] = ()) -> str:
    """The methods, or these, as a family tree: each after its parent, indented below it; those that do not load come
    last, with the reason."""
    cards, broken = {}, []
    for name in of or names():
        try:
            cards[name] = load(name).CARD
        except UserError as e:
            broken.append(str(e))

    def below(parent: str | None, depth: int) -> list[str]:
        out = []
        for name in [n for n, card in cards.items() if card.parent == parent]:
            out += ["  " * depth + name, *below(name, depth + 1)]
        return out

    roots = dict.fromkeys(card.parent for card in cards.values() if card.parent not in cards)
    return "\n".join([*(row for root in roots for row in below(root, 0)), *broken])
