"""What `isocost compare` calls: folders are read, methods and settings of a trainer are trained, a pilot is either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost.cli.options import site_of
from isocost.errors import UserError
from isocost.steps.events import Observer

READS = ("arms", "unit", "metric", "margin", "seed", "out", "as_json")      # options of a comparison of folders
PILOTED = ("arms", "pilot", "seeds", "margin", "metric", "unit", "as_json")     # options that read an earlier pilot
THEIRS = ("metrics", "columns", "stall")        # options of a trainer of the user's


def compared(
    arms: Sequence[str], asked: dict[str, Any], given: Mapping[str, str], observer: Observer, *, dry_run: bool
) -> Any:
    """The answer of a comparison, its plan with `dry_run`, or the gate of a pilot, by the command's options `asked`, of
    which `given` were given. Raises UserError for options that do not fit the arms."""
    from isocost.compare import steps
    from isocost.compare.folders import compare_folders
    from isocost.compare.terms import are_folders

    site, unit, pilot = site_of(asked), asked.pop("unit"), asked.pop("pilot")
    seeds = _seeds(pilot, given, dry_run)
    if pilot is not None and seeds is None:
        from isocost.compare.gate import read_pilot

        return read_pilot(pilot, arms, unit=unit, **{k: asked[k] for k in ("seeds", "margin", "metric")})
    if (trainer := asked.pop("trainer")) is not None:
        from isocost.cli import trainer as of_trainer

        return of_trainer.compared(arms, trainer, asked, given, site, observer, dry_run=dry_run, pilot=seeds)
    for name in THEIRS:
        if asked.pop(name):
            raise UserError(f"{given[name]} is for a comparison of settings of your own trainer: name it with "
                            "--trainer")
    if lost := next((x for x in (arm.partition("@")[0] for arm in arms) if "/" in x and not Path(x).exists()), None):
        raise UserError(f"there is no folder or file {lost}: name folders of runs, methods (see `isocost methods`) or "
                        ".py files")
    if are_folders(arms):
        if seeds is not None:
            raise UserError(f"--pilot {seeds} trains methods, and {arms[0]} is a folder of runs: give --pilot the "
                            "folder that holds a folder of runs for each arm")
        if unused := [option for name, option in given.items() if name not in READS]:
            raise UserError(f"{unused[0]} is for methods, which are trained; folders are compared as they were run: "
                            "leave it out, or name methods")
        return compare_folders(arms, unit=unit, **{k: asked[k] for k in ("metric", "margin", "seed", "out")})
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
