"""The options of a study of value-based control."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.steps.events import Observer

TAKES = ("out", "seed", "method", "control", "length", "width", "as_json")
ONLY = ("length", "width")
FOR, STUDY = "the task has neither model nor problems", "a study of value-based control"
OF_IMPORT = ("sources", "out", "source", "columns", "control", "as_json")      # options that an import takes


def imported(task: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer) -> Any:
    """The import of logs of control with these options, of which `given` were given."""
    from isocost.steps.control.logs import import_control

    if wrong := next((option for name, option in given.items() if name not in OF_IMPORT), None):
        raise UserError(f"{wrong} has no use with --control: settings of the runs go into the table arms.csv")
    return import_control(asked["sources"], asked["out"] or Path("studies") / "imported-control", task,
                          trainer=asked["source"], columns=asked["columns"], observer=observer)


def profiled(out: Path, task: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer) -> Any:
    """The profile of a task with these options, of which `given` were given."""
    from isocost.steps.control.profile import SAMPLES, WIDTH, profile_control

    return profile_control(out, task, method=asked["method"] or "sac", seed=asked["seed"],
                           samples=asked["length"] or SAMPLES, width=asked["width"] or WIDTH, observer=observer)
