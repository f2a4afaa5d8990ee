"""isocost: plan, predict and audit reinforcement-learning runs.

    profile -> plan -> pilot -> fit -> plan -> train -> audit

`isocost.study(model=..., data=..., out=...)` starts a study and `isocost.open(folder)` opens one; each step is a method
of it that returns a result. `isocost.import_logs(...)` makes a study of another trainer's logs, and
`isocost.load_policy(folder)` gives the policy that a run of control learned. For training one run in a script:
`Recipe`, `train`, `evaluate`, `methods`. All names are imported when they are first used, so that `import isocost`
loads no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from isocost import processor

# Before torch is imported. Waiting OpenMP threads sleep instead of spinning: otherwise another busy process on the same
# cores slows every operation many times over. MKL computes a row's products with the same bits in every batch.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
processor.make_mkl_strict()

_HOMES = {
    "open": ("isocost.steps.api", "open"),
    "study": ("isocost.steps.api", "study"),
    "import_logs": ("isocost.steps.outside.importing", "import_logs"),
    "Study": ("isocost.steps.api", "Study"),
    "Recipe": ("isocost.seams", "Recipe"),
    "train": ("isocost.loop", "train"),
    "evaluate": ("isocost.runs.evaluate", "evaluate"),
    "load_policy": ("isocost.runs.control", "load_policy"),
    "methods": ("isocost.methods", None),
}
__all__ = ["Recipe", "Study", "evaluate", "import_logs", "load_policy", "methods", "open", "study", "train"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"isocost has no {name!r}; it has {', '.join(__all__)}")
    module, attribute = _HOMES[name]
    found = importlib.import_module(module)
    return found if attribute is None else getattr(found, attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
