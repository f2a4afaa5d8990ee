"""The trainer and the launcher of a study, from the options of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isocost.errors import UserError
from isocost.jsonfile import write_json
from isocost.runs.launch.launchers import launcher_of
from isocost.runs.source import DRIVEN
from isocost.steps.folder import Home
from isocost.trainers.command import STALL, Trainer, parsed
from isocost.trainers.driven import KINDS


def trainer_of(
    text: str, *, metrics: str | None = None, columns: Mapping[str, str] | None = None, stall: float | None = None
) -> Trainer:
    """The trainer of `--trainer` and the options beside it; its command runs in the current directory.

    Raises:
        UserError: for an unknown trainer or word in braces, and for a command that lacks one that it needs.
    """
    kinds = {name: kind.command for name, kind in KINDS.items()}
    return parsed(text, Path.cwd(), kinds, metrics=metrics, columns=columns, stall=stall or STALL)


def settle(home: Home, trainer: str | None, launch: str | None) -> None:
    """The trainer and the launcher that a later step names: the study's trainer cannot be another one.

    Raises:
        UserError: for another trainer than the study's, and for a launcher of a study that launches isocost's own runs.
    """
    if trainer is None and launch is None:
        return
    if home.source is not DRIVEN:
        option = "--trainer" if trainer is not None else "--launch"
        raise UserError(f"{option}: {home.path} is a study of runs that isocost trains itself; a study of your trainer "
                        "begins with `isocost profile --trainer ... --out STUDY`, in another folder")
    own = home.trainer
    assert own is not None
    if trainer is not None:
        there = f"{own.kind}: {own.command}"
        now = trainer_of(trainer if ":" in trainer else f"{trainer}: {own.command}")
        if (now.kind, now.command) != (own.kind, own.command):
            raise UserError(f"{home.path} is a study of the trainer {there!r}; its runs cannot be another's: leave "
                            "--trainer out, or begin another study")
    if launch is not None:
        launcher_of(launch)
        write_json(home.path / "study.json", home.asked | {"launch": launch})
