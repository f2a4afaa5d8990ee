"""Runs of control, in stacks of those that can share one, in as many processes as there are workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.laws.value_fit import OFFLINE
from isocost.planner.control.pilot import EPISODES, POINTS, ControlRunPlan
from isocost.runs.files import COMPLETE, DIVERGED, ended
from isocost.screen.words import counted
from isocost.steps.events import Observer

STACKED = 32        # runs of one stack, at most: more than a cache holds are slower
TICK, STEP = 640, 16    # what a tick, and a run's update besides its batch, take: as so many examples at 64 units
SHOWN = 1.0         # seconds between two looks at how far the processes are

_made: Any = None   # updates of all stacks of the step that runs


@dataclass(frozen=True)
class Trained:
    """What all runs of a study of control are of: the task, the method, the set that it learns from, the settings of
    its seams, and the seal that they carry."""

    task: str
    method: str
    seal: str | None = None
    data: str | None = None
    sets: Mapping[str, str] = field(default_factory=dict)


def run_all(
    folder: Path, runs: Sequence[ControlRunPlan], of: Trained, title: str, workers: int, observer: Observer
) -> None:
    """Run these in `folder`, each in a folder of its own; those that ended are not run again.

    Raises UserError for a run that ended for another reason than its budget or divergence.
    """
    from isocost.runs.control import ControlJob, updates_of

    by: dict[tuple[Any, ...], list[ControlJob]] = {}
    for run in runs:
        if not ended(folder / run.name):
            points = tuple(round(run.samples * (k + 1) / POINTS) for k in range(POINTS))
            job = ControlJob(run.name, of.task, of.method, run.seed, {"env-steps": run.samples},
                             run.arm.but(**{OFFLINE: None}), points, of.sets, episodes=EPISODES, purpose=run.purpose,
                             seal=of.seal, data=of.data, offline_updates=int(run.arm.get(OFFLINE, 0)))
            by.setdefault(job.shared, []).append(job)
    stacks = stacks_of(list(by.values()), workers)
    total = sum(updates_of(job) for jobs in stacks for job in jobs)
    context = get_context("spawn")
    _counts(context.Value("q", 0))
    with observer.counting(title) as tell:
        def shown() -> None:
            tell("updates", min(_made.value, total), total)

        shown()
        if workers <= 1 or len(stacks) <= 1:
            for jobs in stacks:
                _stack(jobs, folder, shown)
        else:
            with ProcessPoolExecutor(min(workers, len(stacks)), context, _counts, (_made,)) as pool:
                left = {pool.submit(_stack, jobs, folder) for jobs in stacks}
                while left:
                    done, left = wait(left, SHOWN, FIRST_COMPLETED)
                    for stack in done:
                        stack.result()
                    shown()
    _refuse_unfinished(folder, runs)


def stacks_of(groups: Sequence[Sequence[Any]], workers: int) -> list[list[Any]]:
    """The jobs of groups that can share a stack, in stacks of at most `STACKED`, the longest first.

    A group is parted further while the workers end earlier for it: each stack more has all its ticks once more. The
    stacks of a group have like sigmas, so that few ticks are of few runs.
    """
    ordered = [sorted(group, key=lambda job: -job.arm["sigma"] * job.budget["env-steps"]) for group in groups]
    parts = [-(-len(group) // STACKED) for group in groups]

    def parted() -> list[tuple[float, int, list[Any]]]:
        made = [(_work(stack := jobs[i::k]), g, stack) for g, (jobs, k) in enumerate(zip(ordered, parts, strict=True))
                for i in range(k)]
        return sorted(made, key=lambda x: -x[0])

    found = parted()
    while found and len(found[0][2]) > 1:
        parts[found[0][1]] += 1
        finer = parted()
        if _ends(finer, workers) >= _ends(found, workers):
            break
        found = finer
    return [stack for *_, stack in found]


def _ends(made: Sequence[tuple[float, int, list[Any]]], workers: int) -> float:
    """When the last of the workers ends, each of which takes the longest stack that is left."""
    loads = [0.0] * workers
    for work, *_ in made:
        loads[loads.index(min(loads))] += work
    return max(loads)


def _work(jobs: Sequence[Any]) -> float:
    """The time of a stack in examples: of each run's updates, and of as many ticks as the longest run has."""
    updates = [job.arm["sigma"] * job.budget["env-steps"] for job in jobs]
    return TICK * max(updates) + sum(u * (job.arm["batch"] + STEP) for u, job in zip(updates, jobs, strict=True))


def _counts(made: Any) -> None:
    """In every process: where updates are counted."""
    global _made
    _made = made


def _stack(jobs: Sequence[Any], folder: Path, shown: Callable[[], None] = lambda: None) -> None:
    from isocost.runs.control import run_stack

    seen: dict[str, int] = {}

    def told(name: str, line: Mapping[str, Any]) -> None:
        with _made.get_lock():
            _made.value += line["updates"] - seen.get(name, 0)
        seen[name] = line["updates"]
        shown()

    run_stack(jobs, [folder / job.name for job in jobs], on_step=told)


def _refuse_unfinished(folder: Path, runs: Sequence[ControlRunPlan]) -> None:
    from isocost.runs.files import read_json

    ends: Mapping[str, str] = {r.name: str(read_json(folder / r.name / "end.json")["reason"]) for r in runs}
    odd = [name for name, reason in ends.items() if reason not in (*COMPLETE, DIVERGED)]
    if odd:
        raise UserError(f"{counted(len(odd), 'run')} did not end, such as {odd[0]} ({ends[odd[0]]}); run the same "
                        "command again to continue")
