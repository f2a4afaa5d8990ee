"""isocost: plan, predict and audit reinforcement-learning runs.

    profile -> plan -> pilot -> train -> audit

The names a first script needs: `Recipe`, `train`, `evaluate`, `fit`, `plan`, `methods`. They are imported when first
used, so that the command line answers before torch is loaded.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from isocost import processor

# Before torch is imported: waiting OpenMP threads sleep instead of spinning, or another busy process on the same
# cores slows every operation many times over. And a row's products have the same bits in every batch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
processor.make_mkl_strict()

_HOMES = {
    "Recipe": ("isocost.seams", "Recipe"),
    "train": ("isocost.loop", "train"),
    "evaluate": ("isocost.runs.evaluate", "evaluate"),
    "fit": ("isocost.laws.fit", "fit_law"),
    "plan": ("isocost.planner.rollouts", "prescribe"),
    "methods": ("isocost.methods", None),
}
__all__ = ["Recipe", "evaluate", "fit", "methods", "plan", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"isocost has no {name!r}; it has {', '.join(__all__)}")
    module, attribute = _HOMES[name]
    found = importlib.import_module(module)
    return found if attribute is None else getattr(found, attribute)
