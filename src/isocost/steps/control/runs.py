"""Runs of control, in stacks of those that can share one, in as many processes as there are workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.planner.control.pilot import EPISODES, POINTS, ControlRunPlan
from isocost.runs.files import COMPLETE, DIVERGED, ended
from isocost.screen.words import counted
from isocost.steps.events import Observer

STACKED = 32        # runs of one stack, at most: more than a cache holds are slower


@dataclass(frozen=True)
class Trained:
    """What all runs of a study of control are of: the task, the method, and the seal that they carry."""

    task: str
    method: str
    seal: str | None = None


def run_all(
    folder: Path, runs: Sequence[ControlRunPlan], of: Trained, title: str, workers: int, observer: Observer
) -> None:
    """Run these in `folder`, each in a folder of its own; those that ended are not run again.

    Raises UserError for a run that ended for another reason than its budget or divergence.
    """
    from isocost.runs.control import ControlJob

    todo = [r for r in runs if not ended(folder / r.name)]
    by: dict[tuple[Any, ...], list[ControlJob]] = {}
    for run in todo:
        points = tuple(round(run.samples * (k + 1) / POINTS) for k in range(POINTS))
        job = ControlJob(run.name, of.task, of.method, run.seed, {"env-steps": run.samples}, run.arm, points,
                         episodes=EPISODES, purpose=run.purpose, seal=of.seal)
        by.setdefault(job.shared, []).append(job)
    groups = [jobs[i : i + STACKED] for jobs in by.values() for i in range(0, len(jobs), STACKED)]
    groups.sort(key=lambda jobs: -sum(j.arm["sigma"] * j.arm["batch"] * j.budget["env-steps"] for j in jobs))
    done = len(runs) - len(todo)
    with observer.counting(title) as tell:
        tell("runs", done, len(runs))
        if workers <= 1 or len(groups) <= 1:
            for jobs in groups:
                _stack(jobs, folder)
                done += len(jobs)
                tell("runs", done, len(runs))
        else:
            with ProcessPoolExecutor(min(workers, len(groups)), mp_context=get_context("spawn")) as pool:
                for jobs, _ in zip(groups, pool.map(_stack, groups, [folder] * len(groups)), strict=True):
                    done += len(jobs)
                    tell("runs", done, len(runs))
    _refuse_unfinished(folder, runs)


def _stack(jobs: Sequence[Any], folder: Path) -> None:
    from isocost.runs.control import run_stack

    run_stack(jobs, [folder / job.name for job in jobs])


def _refuse_unfinished(folder: Path, runs: Sequence[ControlRunPlan]) -> None:
    from isocost.runs.files import read_json

    ends: Mapping[str, str] = {r.name: str(read_json(folder / r.name / "end.json")["reason"]) for r in runs}
    odd = [name for name, reason in ends.items() if reason not in (*COMPLETE, DIVERGED)]
    if odd:
        raise UserError(f"{counted(len(odd), 'run')} did not end, such as {odd[0]} ({ends[odd[0]]}); run the same "
                        "command again to continue")
