"""The options of one run of control: `isocost train METHOD --control TASK`, and `isocost eval` of such a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from isocost.cli.options import SOME, json_option, reported, several
from isocost.errors import UserError

if TYPE_CHECKING:
    from isocost.steps.events import Observer

FILE = click.Path(dir_okay=False, path_type=Path)
OWN = ("control", "offline", "offline_updates", "updates_per_sample", "batch", "width", "seeds",
       "environments", "teacher")      # of control alone
SHARED = ("method", "budget", "seed", "out", "lr", "sets", "evaluations", "stop_at", "price", "devices", "as_json")


control_run_options = several(       # those of `OWN`
    click.option("--control", metavar="TASK", help="train a method of value-based control on a task: pendulum, "
                 "swingup, quad2d, lane, maze:8, goalmaze:8, lock:8, bandit, reach, rooms, family:4, or gym:ID"),
    click.option("--offline", type=FILE, metavar="FILE",
                 help="with --control: the dataset of `isocost collect` that a method learns from, or "
                 "minari:ID-OR-FOLDER; of an offline method the budget may be 20k-updates"),
    click.option("--offline-updates", type=click.IntRange(min=0), default=0, show_default=True,
                 help="with --control: updates on the dataset before the first sample, besides the budget"),
    click.option("--teacher", metavar="NAME[:SETTING=VALUE,...]", help="with --control: who chooses training tasks "
                 "or starts: uniform, mbtl, alp-gmm, covar-gmm, riac, snapshot, or ./file.py"),
    click.option("--updates-per-sample", type=float, help="with --control: sigma  [default: 1; of ppo, ten epochs]"),
    click.option("--batch", type=SOME, help="with --control: transitions per update  [default: the method's own]"),
    click.option("--width", type=SOME, help="with --control: units of a hidden layer  [default: the method's own]"),
    click.option("--seeds", type=SOME, default=1, show_default=True, help="with --control: runs of SEED, SEED + 1, "
                 "... side by side, each in a folder of its own"),
    click.option("--environments", type=SOME, default=1, show_default=True, help="with --control: copies of the "
                 "task that a run steps together; updates per sample stay the same"),
)


@click.command()
@click.argument("task")
@click.option("--by", "shares", multiple=True, metavar="BEHAVIOUR[=SHARE]", help="who acts: random, the folder of a "
              "run of control, navigate (maze, reach, rooms), stitch or explore (maze); with several, each one's share "
              "of trajectories  [default: random]")
@click.option("--steps", type=SOME, default=20_000, show_default=True, help="transitions; the last trajectory is whole")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="of everything that is sampled")
@click.option("--to", "target", type=click.Choice(["parquet", "minari"]), default="parquet", show_default=True,
              help="a file of Parquet, or a folder in Minari's layout")
@click.option("--out", type=click.Path(path_type=Path), help="where  [default: data/TASK-SEED.parquet; of Minari "
              "data/TASK-SEED-v0]")
@json_option
@reported
def collect(task: str, shown: Any, **asked: Any) -> Any:
    """Make a set of transitions on a task of control, for `isocost train METHOD --control TASK --offline FILE`."""
    from isocost.steps.control.collect import collect_set

    return collect_set(task, **asked, observer=shown)


def trained(method: str, asked: Mapping[str, Any], given: Mapping[str, str], observer: Observer) -> Any:
    """Train with these options, of which `given` were given; None without --control, whose options are taken out.

    Raises UserError for options that have no use with it, or without it.
    """
    from isocost.steps.control.single import ControlOptions, train_control

    unused = [text for name, text in given.items() if name not in (*OWN, *SHARED)]
    if unused:
        raise UserError(f"{unused[0]} has no use with --control: leave it out")
    wanted = {f.name: asked[f.name] for f in fields(ControlOptions)
              if asked.get(f.name) is not None and (f.name != "evaluations" or f.name in given)}
    return train_control(method, asked["control"], ControlOptions(**{"budget": None, **wanted}), asked["out"],
                         observer=observer)


def without_control(asked: dict[str, Any], given: Mapping[str, str]) -> None:
    """Take the options of control out. Raises UserError if one of them was given."""
    if unused := [given[name] for name in OWN if name in given]:
        raise UserError(f"{unused[0]} is for a run of control: add --control TASK, such as --control pendulum")
    for name in OWN:
        asked.pop(name)


def measured(run: Path, samples: int | None, given: Mapping[str, str]) -> Any:
    """`isocost eval` of a run of control, or of a folder of them, on `samples` fresh episodes; None for other kinds."""
    from isocost.compare.control import are_control
    from isocost.steps.control.single import evaluate_control

    if not are_control([run]):
        return None
    if unused := [text for name, text in given.items() if name not in ("run", "samples", "as_json")]:
        raise UserError(f"{unused[0]} has no use with a run of control: it is measured on fresh episodes of its task")
    return evaluate_control(run, **({} if samples is None else {"episodes": samples}))
