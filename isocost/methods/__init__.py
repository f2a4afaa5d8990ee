"""One paper, one file. A file here is a method: there is nothing to register.

A method file holds `CARD`, at most a few functions named after the seam they fill, and `recipe(**changes)`; it may
hold `needs(profile)`. Files of other people count the same: by path, or through the entry points `isocost.methods`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from isocost.errors import UserError

HOLDS, FAILS, UNMEASURED = "holds", "fails", "not measured"


@dataclass(frozen=True)
class Card:
    """Where a method comes from, and what it says of itself."""

    title: str
    paper: str              # arXiv id, or a citation where there is none
    year: int
    parent: str | None      # the method this one is a change to
    claim: str              # one sentence, checkable


def names() -> list[str]:
    """Every method there is by name: those of this package and of installed plug-ins, sorted."""
    return sorted({*shipped(), *(e.name for e in entry_points(group="isocost.methods"))})


def shipped() -> list[str]:
    """The methods of this package by name, sorted. A plug-in of the same name does not take their place."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


def load(name: str) -> Any:
    """The module of a method, by its name or by the path of a .py file.

    Raises UserError if there is none, or if what is there lacks `CARD` or `recipe`.
    """
    found = _from_file(Path(name)) if name.endswith(".py") else _by_name(name)
    lacking = [part for part in ("CARD", "recipe") if not hasattr(found, part)]
    if lacking:
        raise UserError(f"{name} is not a method: it has no {' and no '.join(lacking)} (see docs/write_a_method.md)")
    return found


def needs(name: str, profile: Mapping[str, Any]) -> tuple[str, str]:
    """Whether a method's preconditions hold on a profiled problem set: (state, why).

    State is `holds`, `fails` or `not measured`. A method without a `needs` of its own has its parent's.
    """
    method = load(name)
    while not hasattr(method, "needs"):
        if method.CARD.parent is None:
            return UNMEASURED, f"{name} states no preconditions"
        method = load(method.CARD.parent)
    state, why = method.needs(profile)
    return state, why


def tree(of: Sequence[str] = ()) -> str:
    """The methods as a family tree, children indented under the method they change; all, or these."""
    cards = {name: load(name).CARD for name in of or names()}

    def below(parent: str | None, depth: int) -> list[str]:
        lines = []
        for name in [n for n, card in cards.items() if card.parent == parent]:
            lines += ["  " * depth + name, *below(name, depth + 1)]
        return lines

    roots = dict.fromkeys(card.parent for card in cards.values() if card.parent not in cards)
    return "\n".join(line for root in roots for line in below(root, 0))


def check(name: str) -> list[Any]:
    """Hold a method, by name or path, to the contract: one `Finding` for each promise (see `isocost.check`)."""
    from isocost.check import check as contract

    return contract(name)


def catalogue() -> str:
    """The page docs/methods.md, in Markdown."""
    from isocost.methods._catalogue import page

    return page()


def _by_name(name: str) -> Any:
    if name in shipped():       # first, and without a look at what is installed, which takes a hundred times as long
        return importlib.import_module(f"{__name__}.{name}")
    found = next((e for e in entry_points(group="isocost.methods") if e.name == name), None)
    if found is None:
        raise UserError(f"there is no method {name!r}; there are {', '.join(names())}, or give the path of a .py file")
    try:
        return found.load()
    except (ImportError, AttributeError, SyntaxError) as e:
        raise UserError(f"the method {name} of an installed package ({found.value}) does not import: {e}") from e


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    # The name must be the same in every process and wherever the file lies, for what was begun or sealed with it; and
    # two files called alike must not be taken for one another.
    name = f"{path.stem}_{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UserError(f"{path} cannot be read as Python")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except (SyntaxError, ImportError) as e:
            del sys.modules[name]
            raise UserError(f"{path} does not import: {type(e).__name__}: {e}") from e
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
