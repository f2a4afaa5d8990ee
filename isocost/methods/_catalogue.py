"""The catalogue page of the methods, written from their files: what it says cannot go stale."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any

from isocost import methods
from isocost.seams import SIZES, describe, diff

HEAD = """# Methods

Written from the method files by `isocost.methods.catalogue()`; a test fails when it is not current. To add one, see
[Write a method](write_a_method.md). With one update on fresh rollouts every ratio ρ is exactly 1, and methods that
differ in their clip alone take the same step: the clip matters from the second update (`improve.minibatches`,
`improve.epochs`) or the first stale rollout (`max_age`) on.
"""


def page() -> str:
    """The whole page, in Markdown."""
    cards = {name: methods.load(name).CARD for name in methods.names()}
    rows = [f"| [{n}](#{n}) | {c.title} | {c.year} | {_touched(n)} | {c.claim} |" for n, c in cards.items()]
    table = "\n".join(["| name | title | year | changes | claim |", "| --- | --- | --- | --- | --- |", *rows])
    return "\n\n".join([HEAD.strip(), table, f"```\n{methods.tree()}\n```", *map(_entry, cards)]) + "\n"


def _entry(name: str) -> str:
    module = methods.load(name)
    idea, _, rest = (inspect.getdoc(module) or "").partition("\n\n")
    parts = [f"## {name}", f"{_paper(module.CARD)} {idea}", f"```\n{inspect.cleandoc(rest)}\n```", _changes(name)]
    parts.append(f"Needs: {_needs(name)}")
    return "\n\n".join(parts)


def _paper(card: methods.Card) -> str:
    known = re.fullmatch(r"\d{4}\.\d{5}", card.paper)
    return f"[arXiv:{card.paper}](https://arxiv.org/abs/{card.paper})." if known else f"{card.paper}."


def _touched(name: str) -> str:
    module = methods.load(name)
    parent = module.CARD.parent
    return "everything" if parent is None else ", ".join(diff(methods.load(parent).recipe(), module.recipe()))


def _changes(name: str) -> str:
    module = methods.load(name)
    parent, recipe = module.CARD.parent, module.recipe()
    if parent is None:
        rows = [f"| {seam} | {_value(value)} |" for seam, value in describe(recipe).items() if seam != "name"]
        return "\n".join(["| seam or size | default |", "| --- | --- |", *rows])
    changed = diff(methods.load(parent).recipe(), recipe)
    rows = [f"| {seam} | {_value(was)} | {_value(now)} |" for seam, (was, now) in changed.items()]
    sizes = ", ".join(f"`{size}={getattr(recipe, size)}`" for size in SIZES)
    return "\n".join([f"| differs in | {parent} | {name} |", "| --- | --- | --- |", *rows]) + f"\n\nSizes: {sizes}."


def _needs(name: str) -> str:
    """The first sentence of the nearest ancestor's `needs`."""
    module = methods.load(name)
    while not hasattr(module, "needs"):
        module = methods.load(module.CARD.parent)
    return (inspect.getdoc(module.needs) or "").splitlines()[0]


def _value(x: Any) -> str:
    return "none" if x == [] else f"`{_call(x)}`"


def _call(x: Any) -> str:
    if isinstance(x, Mapping):
        settings = ", ".join(f"{k}={_call(v)}" for k, v in x.items() if k not in ("fn", "source"))
        fn = x["fn"].removeprefix("isocost.").removeprefix("parts.").removeprefix("methods.").replace(":", ".")
        return f"{fn}({settings})" if settings else fn
    if isinstance(x, list):
        return f"[{', '.join(map(_call, x))}]"
    return repr(x) if isinstance(x, str) else str(x)
