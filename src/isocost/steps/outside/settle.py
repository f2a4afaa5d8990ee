"""The trainer and the launcher of a study, from the options of its steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isocost.errors import UserError
from isocost.runs.launch.launchers import launcher_of
from isocost.runs.launch.site import Site
from isocost.steps.study import StudyRecord
from isocost.trainers.driving.command import STALL, Trainer, parsed
from isocost.trainers.driving.driven import KINDS


def trainer_of(
    text: str, *, metrics: str | None = None, columns: Mapping[str, str] | None = None, stall: float | None = None
) -> Trainer:
    """The trainer of `--trainer` and the options beside it; its command runs in the current directory. Raises UserError
    for an unknown trainer or word in braces, and for a command that lacks one that it needs."""
    kinds = {name: drive.words for name, drive in KINDS.items()}
    return parsed(text, Path.cwd(), kinds, metrics=metrics, columns=columns, stall=stall or STALL)


def settle(study: StudyRecord, trainer: str | None, site: Site) -> StudyRecord:
    """The study with the trainer and the site that a later step names: its trainer cannot be another one. Raises
    UserError for another trainer than the study's, and for a site that cannot execute a trainer's runs."""
    own = study.trainer
    if own is None:
        if trainer is not None:
            raise UserError(f"--trainer: {study.path} is a study of runs that isocost trains itself; a study of your "
                            "trainer begins with `isocost profile --trainer ... --out STUDY`, in another folder")
        return study
    if trainer is not None:
        there = f"{own.kind}: {own.command}"
        now = trainer_of(trainer if ":" in trainer else f"{trainer}: {own.command}")
        if (now.kind, now.command) != (own.kind, own.command):
            raise UserError(f"{study.path} is a study of the trainer {there!r}; its runs cannot be another's: leave "
                            "--trainer out, or begin another study")
    if site.to is None:
        return study
    launcher_of(site.to)
    return study.amend(launch=site.to, address=site.address, gpus=site.gpus)
