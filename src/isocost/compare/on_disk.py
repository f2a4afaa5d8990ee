"""What the arms of a comparison are on disk: folders of runs, logs of other trainers, or evaluation files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isocost.compare.design import labels_of
from isocost.compare.evaluations.files import evaluations_in, is_evaluation
from isocost.compare.evaluations.judge import EvaluationComparison, compare_evaluations
from isocost.compare.folders import compare_folders
from isocost.compare.results import FolderComparison
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.runs.files import find_runs
from isocost.steps.outside.importing import import_logs, mapped_of

RUNS, LOG, EVALUATION = "a folder of runs", "a log of another trainer", "an evaluation file"


def kind_of(arm: Path) -> str:
    """Whether an arm is runs, another trainer's log (a file or a folder), or evaluations (likewise)."""
    if arm.is_file():
        return EVALUATION if is_evaluation(arm) else LOG
    if find_runs(arm):
        return RUNS
    return EVALUATION if evaluations_in(arm) else LOG


def compare_on_disk(
    arms: Sequence[str | Path], *, unit: str = "rollouts", metric: str = "", seed: int = 0,
    columns: Sequence[str] = (), sizes: Mapping[str, int | None] | None = None, **judged: Any,
) -> FolderComparison | EvaluationComparison:
    """Judge what is on disk: runs and logs at equal cost, evaluations problem by problem.

    The arguments are those of `isocost.compare.folders.compare_folders` and
    `isocost.compare.evaluations.judge.compare_evaluations`, **judged those of both: margin, log and out. `columns` are
    NAME=COLUMN, as for `isocost import`. A log is imported for the comparison only; `sizes` are its n and B where it
    lacks them. Raises UserError for arms of which some are evaluations and some are not, and as those two do.
    """
    kinds = {str(a): kind_of(Path(a)) for a in arms}
    if EVALUATION in kinds.values():
        other = next((a for a, kind in kinds.items() if kind != EVALUATION), None)
        if other is not None:
            one = next(a for a, kind in kinds.items() if kind == EVALUATION)
            raise UserError(f"{one} is {EVALUATION} and {other} is {kinds[other]}: all arms must be of one kind")
        return compare_evaluations(arms, metric=metric, columns=mapped_of(columns), **judged)
    labels, given = labels_of([str(a) for a in arms]), sizes or {}
    with tempfile.TemporaryDirectory(prefix="isocost-") as made:
        folders = []
        for label, arm in zip(labels, arms, strict=True):
            if kinds[str(arm)] == LOG:
                import_logs([arm], Path(made) / label, columns=columns, study=True, n=given.get("n"), B=given.get("B"))
            folders.append(Path(made) / label if kinds[str(arm)] == LOG else Path(arm))
        return compare_folders(folders, unit=unit, metric=metric or PASS, seed=seed, **judged)
