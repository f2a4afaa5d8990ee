"""What `isocost compare` calls: folders are read, methods and settings of a trainer are trained, a pilot is either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost.cli.options import site_of
from isocost.errors import UserError
from isocost.steps.events import Observer

READS = ("arms", "unit", "metric", "margin", "seed", "columns", "log", "out", "as_json")     # of what is on disk
OF_CONTROL = ("arms", "seed", "as_json")        # of runs of control
SIZES = ("rollouts", "groups")      # of a log that lacks them
PILOTED = ("arms", "pilot", "seeds", "margin", "metric", "unit", "as_json")     # options that read an earlier pilot
THEIRS = ("metrics", "columns", "stall")        # options of a trainer of the user's


def compared(
    arms: Sequence[str], asked: dict[str, Any], given: Mapping[str, str], observer: Observer, *, dry_run: bool
) -> Any:
    """The answer of a comparison, its plan with `dry_run`, or the gate of a pilot, by the command's options `asked`, of
    which `given` were given. Raises UserError for options that do not fit the arms."""
    from isocost.compare import steps
    from isocost.compare.control import are_control, compare_control
    from isocost.compare.design import Conditions
    from isocost.compare.on_disk import LOG, compare_on_disk, kind_of
    from isocost.compare.terms import are_on_disk

    site, unit, pilot, log = site_of(asked), asked.pop("unit"), asked.pop("pilot"), asked.pop("log")
    seeds = _seeds(pilot, given, dry_run)
    if asked["trainer"] is not None or (pilot is not None and seeds is None):
        asked["seeds"] = asked["seeds"] or Conditions.seeds
    if pilot is not None and seeds is None:
        from isocost.compare.gate import read_pilot

        return read_pilot(pilot, arms, unit=unit, **{k: asked[k] for k in ("seeds", "margin", "metric")})
    trainer = asked.pop("trainer")
    if lost := next((x for x in (arm.partition("@")[0] for arm in arms) if trainer is None and "/" in x
                     and not Path(x).exists()), None):
        raise UserError(f"there is no folder or file {lost}: name folders of runs, methods (see `isocost methods`) or "
                        ".py files")
    if trainer is not None:
        from isocost.cli import trainer as of_trainer

        return of_trainer.compared(arms, trainer, asked, given, site, observer, dry_run=dry_run, pilot=seeds)
    if log is not None and not are_on_disk(arms):
        raise UserError("--log counts comparisons of what is on disk: name folders of runs, logs or evaluation files")
    if are_on_disk(arms) and are_control(arms):
        if unused := [option for name, option in given.items() if name not in OF_CONTROL]:
            raise UserError(f"{unused[0]} has no use for runs of control: leave it out")
        return compare_control(arms, asked["seed"])
    if are_on_disk(arms):
        if seeds is not None:
            raise UserError(f"--pilot {seeds} trains methods, and {arms[0]} is on disk: give --pilot the folder that "
                            "holds a folder of runs for each arm")
        read = READS + (SIZES if any(kind_of(Path(a)) is LOG for a in arms) else ())
        if unused := [option for name, option in given.items() if name not in read]:
            raise UserError(f"{unused[0]} is for methods, which are trained; what is on disk is compared as it is: "
                            "leave it out, or name methods")
        metric = asked["metric"] if "metric" in given else ""
        sizes = {"n": asked["rollouts"], "B": asked["groups"]}
        return compare_on_disk(arms, unit=unit, metric=metric, log=log, sizes=sizes,
                               **{k: asked[k] for k in ("margin", "seed", "columns", "out")})
    for name in THEIRS:
        if asked.pop(name):
            raise UserError(f"{given[name]} is for a comparison of settings of your own trainer: name it with "
                            "--trainer")
    if unit != "rollouts":
        raise UserError(f"--unit {unit} is for folders of runs; methods are compared in the unit of their --budget")
    if seeds is not None:
        return steps.pilot_methods(arms, pilot=seeds, site=site, observer=observer, **asked)
    if dry_run:
        return steps.plan_comparison(arms, observer=observer, **asked)
    return steps.compare_methods(arms, site=site, observer=observer, **asked)


def _seeds(pilot: str | None, given: Mapping[str, str], dry_run: bool) -> int | None:
    """The seeds of a pilot that is trained; None for one that is read, or without one."""
    if pilot is None:
        return None
    if dry_run:
        raise UserError("--dry-run trains nothing, and --pilot trains: leave one of them out")
    if pilot.isdecimal():
        return int(pilot)
    if unused := [option for name, option in given.items() if name not in PILOTED]:
        raise UserError(f"{unused[0]} has no use where an earlier pilot is read: leave it out, or give --pilot a "
                        "number of seeds, such as --pilot 4")
    return None
