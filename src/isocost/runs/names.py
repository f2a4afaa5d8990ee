"""Function names in recorded recipes: their names in earlier versions, and today's.

A record holds a recipe as `isocost.recipe.describe` wrote it, with qualified function names ("module:function"). When a
function moves, its old name is added to `moved.json`, which has the modules that moved whole too. Every comparison of a
recorded recipe with a recipe of this version reads the record through `today`, so that old runs resume and old
comparisons are audited as before. Records themselves are never rewritten. Needs no torch.
"""

from __future__ import annotations

from typing import Any

from isocost.moved import MODULES, MOVED

FUNCTIONS: dict[str, str] = MOVED["functions"]


def today(recorded: Any) -> Any:
    """A recorded recipe, or a part of one, with today's function names. Other data is returned unchanged."""
    if isinstance(recorded, dict):
        return {k: _function(v) if k == "fn" and isinstance(v, str) else today(v) for k, v in recorded.items()}
    if isinstance(recorded, list | tuple):
        return [today(x) for x in recorded]
    return recorded


def _function(name: str) -> str:
    module, colon, function = FUNCTIONS.get(name, name).partition(":")
    return f"{MODULES.get(module, module)}{colon}{function}"
