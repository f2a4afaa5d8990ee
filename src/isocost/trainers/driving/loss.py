"""A recipe's update in the terms that trainers share: from its plain data to `TrainerLoss`.

Each function declares what it is in these terms (`isocost.traits.exported`), so nothing here names a function.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from isocost.runs.names import today
from isocost.trainers.driving.export import TrainerLoss
from isocost.traits import Export, declared

NAMED = {"loss": "the loss", "advantage": "the advantage", "weight": "the average"}
STOCK = ("choose", "guide", "allocate", "play", "schedule", "reward", "select", "improve")
OWN = ("isocost.parts.", "isocost.methods.")    # a record may come from a stranger: no other function is imported


def loss_of(recipe: Mapping[str, Any]) -> TrainerLoss:
    """A recipe's plain data (`isocost.recipe.describe`) in the terms that trainers share; what none has is in `odd`."""
    recipe = _object(today(recipe))
    found: dict[str, Any] = {}
    odd: list[str] = []
    for seam, name in NAMED.items():
        _carry(_object(recipe.get(seam)), name, found, odd)
    for seam in STOCK:
        if seam in recipe:
            _carry(_object(recipe[seam]), f"{seam} is", found, odd)
    improve = _object(recipe.get("improve"))
    found |= {k: improve[k] for k in ("epochs", "minibatches") if improve.get(k)}
    found |= {"refill": bool(recipe.get("refill")), "max_age": recipe.get("max_age") or 0}
    return TrainerLoss(**found, odd=tuple(odd))


def _carry(part: Mapping[str, Any], name: str, found: dict[str, Any], odd: list[str]) -> None:
    """Add what a described function exports, and the functions inside it, to `found`; else its name to `odd`."""
    exports = _exports(str(part.get("fn", "")))
    if not exports:
        odd.append(f"{name} {part.get('fn')}")
        return
    for export in exports:
        found |= export.at(part)
    for inner in (part.get("inner"), *(part.get("terms") or ())):
        if isinstance(inner, Mapping):
            _carry(inner, name, found, odd)


def _exports(name: str) -> tuple[Export, ...]:
    """What a function of the package, "module:function", declares."""
    module, _, function = name.partition(":")
    if not module.startswith(OWN):
        return ()
    try:
        return declared(getattr(importlib.import_module(module), function, None)).exports
    except ModuleNotFoundError:     # a record of another version
        return ()


def _object(x: Any) -> Mapping[str, Any]:
    return x if isinstance(x, Mapping) else {}
