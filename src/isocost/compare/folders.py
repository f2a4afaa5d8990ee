"""Compare folders of recorded runs, of isocost or imported, at equal cost."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocost.compare.asked import ALPHA, ask
from isocost.compare.design import labels_of
from isocost.compare.evaluations.files import evaluations_in, is_evaluation
from isocost.compare.evaluations.judge import EvaluationComparison, compare_evaluations
from isocost.compare.judge import MARGIN, SHARES, compare
from isocost.compare.results import FolderComparison
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.laws.tracks import Track, tracks
from isocost.runs import measure, parted
from isocost.runs.files import RunFiles, canonical, find_runs, read_json
from isocost.runs.measure import TRAINING
from isocost.runs.source import RunLog
from isocost.screen.words import counted
from isocost.steps.folder import StudyFolder, writing
from isocost.steps.outside.importing import import_logs, mapped_of
from isocost.units import compared

LOGGED = "wall-clock seconds (logged)"  # the seconds of imported runs
EVALUATED = "the seconds of imported runs are wall-clock time from their logs, with evaluations and pauses"
UNPAIRED = 2**31         # runs of unknown seed get seeds from here on, which pair with no other run
JUDGED = ("kind", "metric", "scale", "unit", "model")     # what must be the same; an arm may have several problem sets


def compare_folders(
    folders: Sequence[str | Path], *, unit: str = "rollouts", metric: str = PASS, margin: float = MARGIN,
    seed: int = 0, log: str | Path | None = None, out: str | Path | None = None,
) -> FolderComparison:
    """Judge recorded runs at the largest cost that all of them reached. Each folder is one arm and holds its runs.

    `unit` of cost is rollouts, tokens, flops or seconds; `metric` is pass@1, best@4 or worst@4; `margin` is the
    difference in reward below which two arms count as the same; `seed` is that of the bootstrap. With `out`, the answer
    is kept in `out/comparison.json`. With `log`, the question is counted there, and answered at its error rate
    (`isocost.compare.asked`). Learning-rate probes and edge runs in the folders are left out.

    Raises UserError if a folder holds no run, or runs of several arms; if the runs are not measured alike, or a record
    does not hold the cost in `unit`; and in the cases of `isocost.compare.judge.compare`.
    """
    paths = [Path(f) for f in folders]
    labels = labels_of([str(f) for f in paths])
    arms, notes, recorded, unpaired = {}, [], {}, 0
    for label, folder in zip(labels, paths, strict=True):
        runs = runs_in(folder)
        recorded[label] = [read_json(f / "run.json") for f in runs]
        _check_one_arm(folder, recorded[label])
        arms[label] = tracks(runs, unit, metric)
        if any(seed_unknown(r) for r in recorded[label]):
            arms[label] = [replace(t, seed=UNPAIRED + unpaired + i) for i, t in enumerate(arms[label])]
            unpaired += len(arms[label])
        silent = len(runs) - len(arms[label])
        if silent:
            notes.append(f"{label}: {silent} of {counted(len(runs), 'run')} without an evaluation, left out")
    measured = [(label, measure.of(r)) for label, own in recorded.items() for r in own]
    measure.one(measured, JUDGED)
    notes += _cautions(recorded, arms)
    notes += parted.of_arms({label: [RunFiles(Path(t.run)) for t in own] for label, own in arms.items()})
    share = 1.0
    if log is not None:
        alpha, number = ask(Path(log), _digest(arms, unit, metric, margin), f"{' or '.join(labels)} at equal {unit}")
        share = alpha / ALPHA
        notes.append(f"question {number} of {log}, answered at an error rate of {alpha:.2g}")
    answer = compare(arms, unit=unit, margin=margin, seed=seed, missing=notes, shares=[x * share for x in SHARES])
    logged = unit == "seconds" and any(RunLog.of(r) for runs in recorded.values() for r in runs)
    counted_in = LOGGED if logged else compared(unit)
    answer = replace(answer, missing=(*answer.missing, *((EVALUATED,) if logged else ())))
    if out is None:
        return FolderComparison(answer, counted_in)
    kept = {"folders": [str(f) for f in paths], "metric": metric, "counted_in": counted_in,
            "kind": measured[0][1]["kind"]}
    with writing(Path(out)):
        StudyFolder(Path(out)).write("comparison.json", {**answer.data(), **kept})
    return FolderComparison(answer, counted_in, Path(out) / "comparison.json")


def runs_in(folder: Path) -> list[Path]:
    """The runs of one arm in a folder, without learning-rate probes and edge runs. Raises UserError if there are none.
    """
    runs = [f for f in find_runs(folder) if read_json(f / "run.json").get("purpose") not in ("probe", "edge")]
    if not runs:
        raise UserError(f"{folder} holds no run: expected {folder}/run.json, or folders below it with one")
    return runs


def _digest(arms: Mapping[str, Sequence[Track]], unit: str, metric: str, margin: float) -> str:
    """Of all that a comparison of folders is made from: the points of every run, and what is asked of them."""
    points = sorted([[t.seed, t.cost.tolist(), t.reward.tolist()] for t in own] for own in arms.values())
    return hashlib.sha256(canonical([points, unit, metric, margin]).encode()).hexdigest()[:16]


def seed_unknown(run: Mapping[str, Any]) -> bool:
    """Whether an imported run's seed was not in its log: then its number pairs it with no other run."""
    return bool(RunLog.of(run)) and any(m.startswith("the seed") for m in run.get("missing") or ())


def _check_one_arm(folder: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Raises UserError if a folder holds runs of several arms."""
    kinds = {(str(r.get("method")), *(r["arm"].get(k) for k in ("n", "B", "lr"))) for r in runs}
    if len(kinds) > 1:
        named = "; ".join(f"{m} n={n} B={B} lr={lr:g}" for m, n, B, lr in sorted(kinds, key=str)[:4])
        raise UserError(f"{folder} holds runs of {len(kinds)} arms ({named}); give one folder per arm")


def _cautions(recorded: Mapping[str, Sequence[Mapping[str, Any]]], arms: Mapping[str, Sequence[Track]]) -> list[str]:
    """Notes on runs that were not designed as one comparison: pairing, problems, what their records lack."""
    notes = []
    seeds = [{t.seed for t in own} for own in arms.values()]
    if not set.intersection(*seeds):
        notes.append("no seed is in every arm: runs are not paired")
    problems = {(r.get("problems") or {}).get("hash") for runs in recorded.values() for r in runs}
    if len(problems) > 1:
        notes.append("the training problems are not the same in all runs")
    measured = [measure.of(r) for runs in recorded.values() for r in runs]
    problems_of = "trained on" if all(own["kind"] == TRAINING for own in measured) else "evaluated on"
    for key, what, option in (("model", "which model {} started from", "--model"),
                              ("data", f"which problems {{}} were {problems_of}", "--data")):
        unknown = sum(not own[key] for own in measured)
        if unknown:
            whose = "the runs" if unknown == len(measured) else "some of the runs"
            notes.append(f"{what.format(whose)} is not in their logs: give `isocost import {option}`")
    named = {own["metric"] for own in measured}
    if len(named) > 1:
        notes.append(f"{', '.join(sorted(named - {''}))} of the logs is compared with isocost's own held-out reward; "
                     "the records do not show that both measure the same")
    lacking = {m for runs in recorded.values() for r in runs for m in r.get("missing") or ()}
    notes += [f"the logs lack {m}" for m in sorted(lacking)]
    if not all(r.get("seal") for runs in recorded.values() for r in runs):
        notes.append("the records do not show whether each arm's learning rate was tuned, nor with what budget: "
                     "`isocost compare METHOD METHOD` tunes it for every arm alike")
    return notes


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
