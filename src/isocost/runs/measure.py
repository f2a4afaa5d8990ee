"""What a run's rewards measure and what its C counts. Runs must agree on both to be compared, or to fit one law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isocost.errors import UserError
from isocost.runs.source import RunLog
from isocost.units import ENV_STEPS, ROLLOUTS

HELD_OUT, TRAINING = "held-out", "training"  # the kinds of reward
UNNAMED = "not named"  # a model or data that neither a log nor the user names

ONE = {  # what runs must agree on: its name, and how to make them agree
    "kind": ("kind of reward", "separate held-out from training reward, or name one column for all with "
                               "`isocost import --map`"),
    "metric": ("metric", "name the same measure in all logs with `isocost import --map held_out=COLUMN`"),
    "scale": ("scale", "count the rewards of all logs alike, and import them with one --scale"),
    "unit": ("unit of C", "keep runs whose cost is counted in different units apart"),
    "model": ("model", "keep runs of different models apart"),
    "data": ("data", "keep runs trained on different problems apart"),
}

UNIT = (0.0, 1.0)  # the scale of rewards in records


def of(run: Mapping[str, Any]) -> dict[str, str]:
    """The value of each key of `ONE` in a run.json, as text; empty if it has none. isocost's own runs name no metric
    and have held-out rewards from 0 to 1 at a C in rollouts."""
    log = RunLog.of(run) or RunLog()
    low, high = scale_of(run)
    values = {
        "kind": log.kind or HELD_OUT,
        "metric": log.metric,
        "scale": f"from {low:g} to {high:g}",
        "unit": log.unit or (ENV_STEPS if run.get("kind") == "control" else ROLLOUTS),
        "model": (run.get("model") or {}).get("name"),
        "data": (run.get("problems") or {}).get("spec") or (run.get("task") or {}).get("name"),
    }
    return {k: "" if v in (None, UNNAMED) else str(v) for k, v in values.items()}


def scale_of(run: Mapping[str, Any]) -> tuple[float, float]:
    """The least and the greatest reward of a rollout of this run.json, on the scale of its log."""
    log = RunLog.of(run)
    return (log and log.scale) or UNIT


def in_its_units(scale: Sequence[float], *rewards: float) -> str:
    """A reward and its interval (value, low, high; 0 to 1) on the scale of a log; empty if that is 0 to 1."""
    least, most = scale
    if (least, most) == UNIT:
        return ""
    value, low, high = (f"{least + (most - least) * r:.4g}" for r in rewards)
    return f"{value} [{low}, {high}] on the logs' scale from {least:g} to {most:g}"


def from_to(scale: Sequence[float], first: float, last: float) -> str:
    """The first and last reward (0 to 1) on the scale of its log; empty if that is 0 to 1."""
    least, most = scale
    if (least, most) == UNIT:
        return ""
    started, ended = (f"{least + (most - least) * r:.4g}" for r in (first, last))
    return f"{started} -> {ended} of {least:g} to {most:g} in the log"


def worded(text: str, kind: str) -> str:
    """A sentence about held-out reward, reworded for the kind of reward that was measured."""
    return text.replace("on the validation split", "in training reward") if kind == TRAINING else text


def one(runs_of: Sequence[tuple[str, Mapping[str, str]]], keys: Sequence[str] = tuple(ONE)) -> None:
    """Raises UserError, naming both, if two of these (name, result of `of`) differ in a key that they must agree on."""
    for key in keys:
        what, right = ONE[key]
        values = [(name, own[key]) for name, own in runs_of if own[key]]
        for name, value in values:
            if value != values[0][1]:
                other = f"of {name} {value}" if name != values[0][0] else f"{value} in another of its runs"
                raise UserError(f"the {what} of {values[0][0]} is {values[0][1]}, {other}: {right}")
