"""Compare methods by training them, or folders of runs by reading them, at equal cost.

    from isocost.compare import compare_folders, compare_methods

    found = compare_methods(["grpo", "drgrpo"], budget="20k-rollouts", data="sums:level=1")
    found.comparison.best, found.comparison.answers, found.to_dict()

`plan_comparison` takes the arguments of `compare_methods` and trains nothing. The functions are imported when first
used, so that reading a recorded comparison (`isocost.compare.judge`) loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocost.compare.folders import compare_folders
    from isocost.compare.steps import compare_methods, plan_comparison

_HOMES = {"compare_folders": "folders", "compare_methods": "steps", "plan_comparison": "steps"}
__all__ = ["compare_folders", "compare_methods", "plan_comparison"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"isocost.compare has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"isocost.compare.{_HOMES[name]}"), name)
