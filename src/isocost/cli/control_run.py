"""The options of one run of control: `isocost train METHOD --control TASK`, and `isocost eval` of such a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isocost.cli.options import json_option, reported
from isocost.errors import UserError

if TYPE_CHECKING:
    from isocost.steps.events import Observer

FILE = click.Path(dir_okay=False, path_type=Path)
SOME, POSITIVE = click.IntRange(min=1), click.FloatRange(min=0, min_open=True)
OWN = ("control", "offline", "updates_per_sample", "batch", "width", "seeds", "environments")   # of control alone
SHARED = ("method", "budget", "seed", "out", "lr", "sets", "evaluations", "as_json")    # and those that it also takes


def control_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `OWN`."""
    for option in reversed((
        click.option("--control", metavar="TASK", help="train a method of value-based control on a task: pendulum, "
                     "swingup, maze:8, goalmaze:8, lock:8, bandit, or gym:ID"),
        click.option("--offline", type=FILE, metavar="FILE",
                     help="with --control: the set of `isocost collect` that an offline method learns from, without "
                     "samples; the budget may be 20k-updates"),
        click.option("--updates-per-sample", type=float, default=1.0, show_default=True, help="with --control: sigma"),
        click.option("--batch", type=SOME, help="with --control: transitions per update  [default: the method's own]"),
        click.option("--width", type=SOME, help="with --control: units of a hidden layer  [default: the method's own]"),
        click.option("--seeds", type=SOME, default=1, show_default=True, help="with --control: runs of SEED, SEED + 1, "
                     "... side by side, each in a folder of its own"),
        click.option("--environments", type=SOME, default=1, show_default=True, help="with --control: copies of the "
                     "task that a run steps together; updates per sample stay the same"),
    )):
        command = option(command)
    return command


@click.command()
@click.argument("task")
@click.option("--by", "shares", multiple=True, metavar="BEHAVIOUR[=SHARE]", help="who acts: random, the folder of a "
              "run of control, or, on a maze, navigate, stitch or explore; with several, each one's share of the "
              "trajectories  [default: random]")
@click.option("--steps", type=SOME, default=20_000, show_default=True, help="transitions; the last trajectory is whole")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="of everything that is sampled")
@click.option("--out", type=FILE, help="the file  [default: data/TASK-SEED.parquet]")
@json_option
@reported
def collect(task: str, as_json: bool, **asked: Any) -> None:
    """Make a set of transitions on a task of control, for `isocost train METHOD --control TASK --offline FILE`."""
    from isocost.cli.printer import observer, printed
    from isocost.steps.control.collect import collect_set

    shown = observer(as_json)
    printed(collect_set(task, **asked, observer=shown), shown, as_json)


def trained(method: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer) -> Any:
    """Train with these options, of which `given` were given; None without --control, whose options are taken out.

    Raises UserError for options that have no use with it, or without it.
    """
    from isocost.steps.control.single import ControlOptions, train_control

    unused = [text for name, text in given.items() if name not in (*OWN, *SHARED)]
    if unused:
        raise UserError(f"{unused[0]} has no use with --control: leave it out")
    wanted = {f.name: asked[f.name] for f in fields(ControlOptions) if asked.get(f.name) is not None}
    return train_control(method, asked["control"], ControlOptions(**{"budget": None, **wanted}), asked["out"],
                         observer=observer)


def without_control(asked: dict[str, Any], given: Mapping[str, str]) -> None:
    """Take the options of control out. Raises UserError if one of them was given."""
    if unused := [given[name] for name in OWN if name in given]:
        raise UserError(f"{unused[0]} is for a run of control: add --control TASK, such as --control pendulum")
    for name in OWN:
        asked.pop(name)


def measured(run: Path, samples: int | None, given: Mapping[str, str]) -> Any:
    """`isocost eval` of a run of control on `samples` fresh episodes; None if the run is of another kind."""
    from isocost.runs.files import read_json
    from isocost.steps.control.single import evaluate_control

    if not (run / "run.json").exists() or read_json(run / "run.json").get("kind") != "control":
        return None
    if unused := [text for name, text in given.items() if name not in ("run", "samples", "as_json")]:
        raise UserError(f"{unused[0]} has no use with a run of control: it is measured on fresh episodes of its task")
    return evaluate_control(run, **({} if samples is None else {"episodes": samples}))
