"""Records of control runs as learning curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.optimize import isotonic_regression

from isocost.errors import UserError
from isocost.laws.value_fit import OFFLINE, ReturnCurve
from isocost.runs.arm import Arm
from isocost.runs.files import DIVERGED, RunFiles

RETURN = "return"       # of an evaluation, or of an episode of training in a log: its line's key


def return_curves(runs: Sequence[RunFiles], purposes: Sequence[str] = ()) -> list[ReturnCurve]:
    """The learning curves of control runs, of these purposes or of all; runs without an evaluation are left out.

    A run that diverged never arrives: its curve goes on at its least return to the samples that it was planned for.
    Raises UserError for a run of another kind.
    """
    found = []
    for run in runs:
        about = run.about()
        if about.get("kind") != "control":
            raise UserError(f"{run.folder} is not a run of control: it has no curve of returns")
        if purposes and about.get("purpose") not in purposes:
            continue
        points: dict[float, list[float]] = {}
        for line in run.lines("metrics.jsonl"):
            if line.get(RETURN) is not None:
                points.setdefault(float(line["env_steps"]), []).append(float(line[RETURN]))
        points.pop(0.0, None)
        if not points:
            continue
        end = float((about.get("budget") or {}).get("env-steps", 0))
        if run.end.get("reason") == DIVERGED and end > max(points):
            points[end] = [min(min(own) for own in points.values())]
        samples = sorted(points)
        returns = np.array([sum(points[s]) / len(points[s]) for s in samples])
        found.append(ReturnCurve(run.name, arm_of(about), int(about["seed"]), np.array(samples), returns,
                                 task_of(about)))
    return found


def arm_of(about: Mapping[str, Any]) -> Arm:
    """sigma, batch, rate and, where known, width of a run, and its updates before the first sample."""
    first = (about.get("offline") or {}).get("updates")
    return Arm(about["arm"]).only("sigma", "batch", "rate", "width").but(**{OFFLINE: first})


def task_of(about: Mapping[str, Any]) -> str:
    """The task of a run."""
    return str((about.get("task") or {}).get("name") or "")


def levels(curve: ReturnCurve) -> ndarray:
    """A curve's returns made monotone by isotonic regression."""
    return np.asarray(isotonic_regression(curve.returns).x)
