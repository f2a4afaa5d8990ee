"""Function names in recorded recipes: their names in earlier versions, and today's.

A record holds a recipe as `isocost.recipe.describe` wrote it, with qualified function names ("module:function"). When a
function moves, its old name is added to `names.json`. Every comparison of a recorded recipe with a recipe of this
version reads the record through `today`, so that old runs resume and old comparisons are audited as before. Records
themselves are never rewritten. Needs no torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FUNCTIONS: dict[str, str] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))


def today(recorded: Any) -> Any:
    """A recorded recipe, or a part of one, with today's function names. Other data is returned unchanged."""
    if isinstance(recorded, dict):
        return {k: FUNCTIONS.get(v, v) if k == "fn" and isinstance(v, str) else today(v) for k, v in recorded.items()}
    if isinstance(recorded, list | tuple):
        return [today(x) for x in recorded]
    return recorded
