"""Planned runs as jobs, side by side; runs that are there and shorter are continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.planner.evaluation import EvaluationPlan
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.study_runs import PlannedRun
from isocost.runs.files import UNBILLED
from isocost.runs.job import Job, reopen
from isocost.runs.launch.site import HERE, Site
from isocost.screen.words import counted
from isocost.steps.events import Observer, Warned
from isocost.steps.folder import Home
from isocost.steps.outside.drive import drive_jobs
from isocost.steps.outside.early import NEVER, Stops
from isocost.steps.settings import workers_of
from isocost.steps.training import spending


def workers_for(home: Home, asked: int | None, observer: Observer, site: Site = HERE) -> int | None:
    """Runs side by side: the requested number, or the one that the study was planned for; None: what a cluster fits."""
    planned = spending.machine_of(home).side_by_side
    if asked and asked != planned:
        observer.on(Warned(
            f"planned for {counted(planned, 'run')} side by side and run with {asked}: hours on the wall, device-hours "
            f"and money are {planned / asked:.3g} times what the plan says"
        ))
    return asked if site.fills else asked or planned


def run_phase(
    home: Home,
    planned: PilotPlan,
    runs: Sequence[PlannedRun],
    rule: RateRule,
    title: str,
    observer: Observer,
    workers: int | None,
    seal: str | None = None,
    site: Site = HERE,
    stops: Stops = NEVER,
) -> list[dict[str, Any]]:
    """Run the planned runs of one purpose; returns what each end.json says. `stops` is for a user's trainer."""
    jobs = [job_of(home, r, rule, planned.points_of(r), seal, planned.evaluation) for r in runs]
    _refuse_elsewhere(jobs, home.runs)
    if home.trainer is not None:
        return drive_jobs(home, jobs, title, observer, workers, stops=stops)
    for job in jobs:
        reopen(home.runs / job.name, job)
    return run_jobs(jobs, home.runs, title, observer, workers, site)


def run_jobs(
    jobs: Sequence[Job], folder: Path, title: str, observer: Observer, workers: int | None, site: Site = HERE
) -> list[dict[str, Any]]:
    """Run jobs side by side, each in `folder`/name; returns what each end.json says.

    Raises:
        UserError: for a run that was not billed for all that it settled: its C is not its cost.
        Interrupted: after a signal, once everything is saved.
    """
    if not jobs:
        return []
    _refuse_elsewhere(jobs, folder)
    side = workers if site.fills else workers_of(jobs[0].setting, workers)
    with observer.running(title, folder, jobs) as watch:
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


def job_of(
    home: Home, run: PlannedRun, rule: RateRule, points: Sequence[int], seal: str | None = None,
    evaluation: EvaluationPlan | None = None,
) -> Job:
    """A planned run as a job for a worker, evaluated as its plan says, else as the study's setting does."""
    setting = home.setting
    if evaluation is not None and evaluation.samples is not None:
        evaluated = None if evaluation.held_out is None else evaluation.problems
        setting = setting.but(samples=evaluation.samples, evaluated=evaluated)
    return Job(
        name=run.name,
        setting=setting,
        method=home.method,
        seed=run.seed,
        budget={"rollouts": run.C, **(run.cap or {})},
        arm=run.arm.but(lr=run.lr(rule), warmup=run.warmup),
        points=tuple(points),
        purpose=run.purpose,
        seal=seal,
        export=run.purpose == "train",
    )
