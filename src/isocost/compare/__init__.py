"""Compare methods by training them, or folders of runs by reading them, at equal cost.

    from isocost.compare import compare_folders, compare_methods

    found = compare_methods(["grpo", "drgrpo"], budget="20k-rollouts", data="sums:level=1")
    found.comparison.best, found.comparison.answers, found.to_dict()

`compare_trainer` compares settings of a trainer of yours. `plan_comparison` and `plan_trainer_comparison` take the same
arguments and train nothing. `pilot_methods` and `pilot_trainer` take them too, train a pilot and say whether the
comparison is decidable; `read_pilot` reads an earlier pilot. The functions are imported when first used, so that
reading a recorded comparison (`isocost.compare.judge`) loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isocost.compare.folders import compare_folders
    from isocost.compare.gate import read_pilot
    from isocost.compare.steps import compare_methods, pilot_methods, plan_comparison
    from isocost.compare.trainer import compare_trainer, pilot_trainer, plan_trainer_comparison

_HOMES = {"compare_folders": "folders", "compare_methods": "steps", "plan_comparison": "steps",
          "compare_trainer": "trainer", "plan_trainer_comparison": "trainer", "pilot_methods": "steps",
          "pilot_trainer": "trainer", "read_pilot": "gate"}
__all__ = [
    "compare_folders", "compare_methods", "compare_trainer", "pilot_methods", "pilot_trainer", "plan_comparison",
    "plan_trainer_comparison", "read_pilot",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"isocost.compare has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f"isocost.compare.{_HOMES[name]}"), name)
