"""The options of a study of value-based control."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from isocost.cli.options import POSITIVE, SOME, counts, several
from isocost.errors import UserError
from isocost.steps.events import Observer

ONLY = ("length", "width", "offline", "offline_updates", "updates_per_sample", "sets")
TAKES = ("out", "seed", "method", "control", "as_json", *ONLY)
FOR, STUDY = "the task has neither model nor problems", "a study of value-based control"
OF_IMPORT = ("sources", "out", "source", "columns", "control", "as_json")      # options that an import takes


control_options = several(
    click.option("--control", metavar="TASK", help="a study of value-based control: updates per sample, batch and rate "
                 "on a task such as pendulum, swingup or gym:HalfCheetah-v5"),
    click.option("--length", type=SOME, help="with --control: samples of a run  [default: 3000]"),
    click.option("--width", type=SOME, help="with --control: units of a hidden layer  [default: 64]"),
    click.option("--offline", metavar="FILE", help="with --control: a dataset to learn from first; then the study is "
                 "of offline updates and samples"),
    click.option("--offline-updates", metavar="N,N,N", help="with --offline: the numbers to compare"),
    click.option("--updates-per-sample", type=POSITIVE, help="with --offline: sigma of all runs  [default: 2]"),
    click.option("--set", "sets", multiple=True, metavar="SEAM.NAME=VALUE", help="with --offline: a setting of a seam"),
)


def imported(task: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer) -> Any:
    """The import of logs of control with these options, of which `given` were given."""
    from isocost.steps.control.logs import import_control

    if wrong := next((option for name, option in given.items() if name not in OF_IMPORT), None):
        raise UserError(f"{wrong} has no use with --control: settings of the runs go into the table arms.csv")
    return import_control(asked["sources"], asked["out"] or Path("studies") / "imported-control", task,
                          trainer=asked["source"], columns=asked["columns"], observer=observer)


def profiled(out: Path, task: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer) -> Any:
    """The profile of a task with these options, of which `given` were given."""
    from isocost.steps.control.profile import SAMPLES, WIDTH, FromSet, profile_control

    file, updates = asked["offline"], counts(asked["offline_updates"], "--offline-updates")
    own = {k: asked[k] for k in ("offline_updates", "updates_per_sample", "sets") if k in given}
    if not file and own:
        raise UserError(f"{given[next(iter(own))]} is of a study that begins on a set: name it with --offline FILE")
    if file and not updates:
        raise UserError("--offline needs the numbers of updates on the set to compare: --offline-updates "
                        "500,1000,2000,4000")
    more = {"sigma": asked["updates_per_sample"]} if asked["updates_per_sample"] else {}
    of = FromSet(file, tuple(updates), sets=tuple(asked["sets"]), **more) if file and updates else None
    return profile_control(out, task, method=asked["method"] or "sac", seed=asked["seed"],
                           samples=asked["length"] or SAMPLES, width=asked["width"] or WIDTH, of=of, observer=observer)
