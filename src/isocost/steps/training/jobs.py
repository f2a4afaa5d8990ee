"""Planned runs as jobs, side by side; runs that are there and shorter are continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.planner.evaluation import EvaluationPlan
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.study_runs import PlannedRun
from isocost.runs.files import UNBILLED
from isocost.runs.job import Job, reopen
from isocost.screen.words import counted
from isocost.steps.events import Warned
from isocost.steps.execution import Execution
from isocost.steps.folder import StudyFolder
from isocost.steps.outside.drive import drive_jobs
from isocost.steps.outside.early import NEVER, Stops
from isocost.steps.settings import workers_of
from isocost.steps.training import spending
from isocost.trainers.driving.command import Trainer


def execution_for(home: StudyFolder, asked: Execution) -> Execution:
    """With the requested number of workers, or the one that the study was planned for; None: what a cluster fits."""
    planned, workers = spending.machine_of(home).side_by_side, asked.workers
    if workers and workers != planned:
        asked.observer.on(Warned(
            f"planned for {counted(planned, 'run')} side by side and run with {workers}: hours on the wall, "
            f"device-hours and money are {planned / workers:.3g} times what the plan says"
        ))
    return asked if asked.site.fills else replace(asked, workers=workers or planned)


def run_phase(
    home: StudyFolder, jobs: Sequence[Job], title: str, execution: Execution, stops: Stops = NEVER,
    trainers: Mapping[str, Trainer] | None = None,
) -> list[dict[str, Any]]:
    """Run the jobs of one phase of a study or comparison, here or by a user's trainer; returns what each end.json says.
    `stops` is for a user's trainer; `trainers` are those of jobs with one of their own, by name."""
    _refuse_elsewhere(jobs, home.runs)
    if home.trainer is not None or trainers:
        return drive_jobs(home, jobs, title, execution.observer, execution.workers, stops=stops, trainers=trainers)
    for job in jobs:
        reopen(home.runs / job.name, job)
    return run_jobs(jobs, home.runs, title, execution)


def run_jobs(jobs: Sequence[Job], folder: Path, title: str, execution: Execution) -> list[dict[str, Any]]:
    """Run jobs side by side, each in `folder`/name; returns what each end.json says.

    Raises:
        UserError: for a run that was not billed for all that it settled: its C is not its cost.
        Interrupted: after a signal, once everything is saved.
    """
    if not jobs:
        return []
    _refuse_elsewhere(jobs, folder)
    side, site = execution.workers, execution.site
    if not site.fills:
        side = workers_of(jobs[0].setting, side)
    with execution.observer.running(title, folder, jobs) as watch:
        ends = site.run_all(jobs, folder, workers=side, watch=watch)
    for job, end in zip(jobs, ends, strict=True):
        if end["reason"] == UNBILLED:
            raise UserError(f"run {job.name}: {end['detail']}")
    return ends


def _refuse_elsewhere(jobs: Sequence[Job], folder: Path) -> None:
    """Raises UserError for a run whose name leads out of the folder: records may be another person's."""
    for job in jobs:
        if Path(job.name).name != job.name or job.name in ("", "..") or "\0" in job.name:
            raise UserError(f"a planned run is called {job.name!r}, which is not the name of a folder in {folder}: "
                            "plan again, in a folder of your own")


def jobs_of(home: StudyFolder, planned: PilotPlan, runs: Sequence[PlannedRun], rule: RateRule, seal: str | None = None
            ) -> list[Job]:
    """Planned runs as jobs, evaluated as the study's plan says."""
    return [job_of(home, run, rule, planned.points_of(run), seal, planned.evaluation) for run in runs]


def job_of(
    home: StudyFolder, run: PlannedRun, rule: RateRule, points: Sequence[int], seal: str | None = None,
    evaluation: EvaluationPlan | None = None,
) -> Job:
    """A planned run as a job for a worker, evaluated as its plan says, else as the study's setting does."""
    setting = home.setting
    if evaluation is not None and evaluation.samples is not None:
        evaluated = None if evaluation.held_out is None else evaluation.problems
        setting = setting.but(samples=evaluation.samples, evaluated=evaluated)
    return Job(
        name=run.name, setting=setting, method=home.method, seed=run.seed,
        budget={"rollouts": run.C, **(run.cap or {})}, arm=run.arm.but(lr=run.lr(rule), warmup=run.warmup),
        points=tuple(points), purpose=run.purpose, seal=seal, export=run.purpose == "train",
    )
