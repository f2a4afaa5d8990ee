"""Runs of a user's trainer, side by side: launched, read while they train, and launched again when they died.

Whether a run is over is read from its folder, never from the launcher. A driver that was killed and is started again
finds the processes that still run, and starts none twice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.disk.jsonfile import write_json
from isocost.errors import Interrupted, UserError
from isocost.planner.stopping import StoppingVerdict
from isocost.runs.arm import Arm
from isocost.runs.files import DIVERGED, STOPPED, ended, read_json
from isocost.runs.job import Job
from isocost.runs.launch.launcher import OUTPUT, Launch, Launcher, State
from isocost.runs.launch.launchers import launcher_in
from isocost.runs.launch.local import stops
from isocost.runs.schema import RUN
from isocost.runs.stop_at import StopAt, go_on, more_than
from isocost.screen.words import counted
from isocost.steps.events import Observer
from isocost.steps.folder import StudyFolder
from isocost.steps.outside.early import NEVER, VERDICT, Stops
from isocost.steps.settings import workers_of
from isocost.trainers.driving.command import Sizes, Trainer
from isocost.trainers.driving.driven import ENDED, LAUNCH, DrivenRun, RunProgress, asked_of, note_clock
from isocost.trainers.reading.record import ImportOptions
from isocost.types import Cost

STOP_AT = "stop_at.json"    # in the folder of a run that its amount stopped
TICK = 0.25     # seconds between two looks at most
NOTE = 10.0     # seconds between two notes of how long an attempt has run
GRACE = 20.0    # seconds from the request to end until a process is ended
FRUITLESS = 3   # attempts in a row without progress after which a run has failed


def drive_jobs(
    home: StudyFolder, jobs: Sequence[Job], title: str, observer: Observer, workers: int | None,
    folder: Path | None = None, stops: Stops = NEVER, trainers: Mapping[str, Trainer] | None = None,
) -> list[dict[str, Any]]:
    """Run the jobs of a study by its trainer, each in `folder`/name (by default the study's runs); returns what each
    end.json says. `stops` says when a run is ended early; `trainers` are those of jobs with one of their own, by name.

    Raises:
        UserError: for a run that makes no progress, whose log lacks what was asked for, or disagrees with it.
        Interrupted: after a signal, once every process is gone.
    """
    folder = folder or home.runs
    runs = []
    for job in jobs:
        trainer = trainers[job.name] if trainers else home.trainer
        assert trainer is not None
        runs.append(_Run.of(home, trainer, job, folder / job.name))
    for run in runs:
        run.reopen()
    if left := [run for run in runs if not ended(run.driven.folder)]:
        with observer.running(title, folder, jobs) as watch:
            launcher = launcher_in(home.asked)
            judge = stops.judge(home) if stops.any else None
            _Drive(launcher, workers_of(jobs[0].setting, workers), watch, judge).all(left)
    return [read_json(run.driven.folder / "end.json") for run in runs]


@dataclass
class _Run:
    """One run under way. `marks` are the sizes of its files when they were read, `changed` when they last grew; `state`
    is that of its attempt at the last look, None before the first, and `noted` when its time was noted. `judged` is the
    number of evaluations at the last verdict, `counted` the updates at the last look at the amount `at`."""

    driven: DrivenRun
    asked: ImportOptions
    more: Mapping[str, Any]
    at: StopAt | None = None
    seen: RunProgress | None = None
    marks: tuple[int, ...] = ()
    changed: float = 0.0
    stopped: float = 0.0
    why: str = ""
    best: float = -1.0
    fruitless: int = 0
    state: State | None = None
    noted: float = 0.0
    judged: int = 0
    counted: float = -1.0

    @staticmethod
    def of(home: StudyFolder, trainer: Trainer, job: Job, folder: Path) -> _Run:
        arm = Arm({"multiplier": 1.0, "warmup": 0, **job.arm})
        sizes = Sizes(job.name, arm["n"], arm["B"], int(job.budget["rollouts"]), arm["lr"], arm["warmup"], job.seed,
                      tuple(int(p) for p in job.points), job.setting.evaluation.samples)
        held_out = home.setting.problems.held_out
        known = home.asked
        asked = asked_of(sizes, job.setting.model, job.setting.problems.data, known.get("scale"), known.get("base"))
        more = {"purpose": job.purpose, "arm": arm.data(), "seal": job.seal,
                "problems": {"spec": job.setting.problems.data, "select": int(held_out), "audit": 0},
                "job": {"setting": {"samples": job.setting.evaluation.samples}}}
        return _Run(DrivenRun(trainer, sizes, folder, home.path.resolve().name), asked, more, job.stop_at)

    @property
    def name(self) -> str:
        return self.driven.sizes.name

    @property
    def attempt(self) -> Path:
        return self.driven.attempts[-1]

    def reopen(self) -> None:
        """Continue a run that ended shorter than it is asked for now, or was stopped at a smaller amount."""
        go_on(self.driven.folder, self.at)
        mark = self.driven.folder / STOP_AT
        if mark.exists() and not ended(self.driven.folder) and more_than(self.at, read_json(mark)):
            mark.unlink()
        about = self.driven.folder / "run.json"
        if ended(self.driven.folder) and about.exists():
            end = self.driven.folder / "end.json"
            there = read_json(about, RUN)["budget"].get("rollouts", 0)
            if there < self.driven.sizes.C and read_json(end)["reason"] == "spent":
                end.unlink()

    def paid(self, at: StopAt, updates: float) -> float:
        """How much of an amount so many updates, and the time of its attempts, are."""
        cost = Cost(rollouts=int(updates * self.driven.sizes.n * self.driven.sizes.B))
        return at.worth(cost, cost, self.driven.seconds)

    def note(self, state: State, now: float) -> None:
        """Note the time of its attempt, when its state changes and now and then."""
        if state is not self.state or now - self.noted >= NOTE:
            note_clock(self.attempt, runs=state is State.RUNNING)
            self.state, self.noted = state, now

    def close(self) -> None:
        """Close its attempt, which is gone."""
        self.driven.close(self.attempt, watched=self.state is not None)
        self.state = None

    def read(self, now: float) -> None:
        """Write the record anew if the log has grown."""
        run = self.driven
        files = (run.log(int(self.attempt.name)), self.attempt / OUTPUT)
        marks = (*map(_size, files), len(list(run.out.glob("checkpoint-*"))))
        if marks == self.marks:
            return
        self.marks, before = marks, self.seen.lines if self.seen else 0
        self.seen = run.seen()
        if self.seen.lines > before:
            self.changed = now
        if self.seen.evaluated:
            run.write(self.seen, self.asked, self.more)


def _size(path: Path) -> int:
    """Bytes of a log, which is a file or a folder of files."""
    found = [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path] if path.exists() else []
    return sum(p.stat().st_size for p in found)


class _Drive:
    """The loop over runs."""

    def __init__(
        self, launcher: Launcher, workers: int, watch: Callable[[], None],
        judge: Callable[[Path], StoppingVerdict | None] | None = None,
    ):
        self.launcher, self.workers, self.watch, self.judge = launcher, workers, watch, judge
        self.active: list[_Run] = []

    def all(self, runs: Sequence[_Run]) -> None:
        """Run them all to their ends."""
        waiting = list(runs)
        with stops() as signalled:
            try:
                self.adopt(waiting)
                while self.active or waiting:
                    while waiting and len(self.active) < self.workers:
                        self.launch(waiting.pop(0))
                    self.look()
                    self.watch()
                    if signalled:
                        raise Interrupted(signalled[0])
                    self.launcher.rest(TICK)
            finally:
                self.end_all()

    def adopt(self, waiting: list[_Run]) -> None:
        """Take over what an earlier driver launched; what it only prepared is launched now."""
        for run in list(waiting):
            there = run.driven.attempts
            if there and not (there[-1] / ENDED).exists():
                self.launcher.submit(Launch.of(read_json(there[-1] / LAUNCH), there[-1]))
                run.changed = time.monotonic()
                self.active.append(run)
                waiting.remove(run)

    def launch(self, run: _Run) -> None:
        """Start the next attempt of a run, or end the run if it has everything."""
        if run.driven.attempts and self.over(run):
            return
        self.launcher.submit(run.driven.next_launch())
        now = time.monotonic()
        run.changed, run.stopped, run.why, run.marks = now, 0.0, "", ()
        run.note(State.RUNNING, now)
        if run not in self.active:
            self.active.append(run)

    def look(self) -> None:
        """Read every active run; close attempts that are gone, and launch their runs again or end them."""
        states = self.launcher.look([run.attempt for run in self.active])
        for run in list(self.active):
            now, state = time.monotonic(), states[run.attempt]
            if state is State.GONE:
                run.close()
                self.active.remove(run)
                self.after(run)
                continue
            run.note(state, now)
            run.read(now)
            if state is State.WAITING:
                run.changed = now
            self.watch_over(run, now)

    def watch_over(self, run: _Run, now: float) -> None:
        """Stop a process that has logged everything, one that logs nothing, and one whose verdict is to stop."""
        trainer = run.driven.trainer
        if run.stopped:
            if now - run.stopped > GRACE:
                self.launcher.stop(run.attempt, now=True)
        elif self.finished(run) or self.hopeless(run) or self.spent(run, now):
            self.stop(run, now, "")
        elif now - run.changed > 60 * trainer.stall:
            self.stop(run, now, f"it logged nothing for {trainer.stall:g} minutes and was stopped")

    def finished(self, run: _Run) -> bool:
        """Whether a process that does not end by itself has logged everything."""
        return run.seen is not None and not run.driven.ends and not run.driven.missing(run.seen)

    def hopeless(self, run: _Run) -> bool:
        """Whether the verdict on a run is to stop; it is asked for after every evaluation, and kept in its folder."""
        looks = len(run.seen.evaluated) if run.seen else 0
        if self.judge is None or run.seen is None or looks < 2 or looks == run.judged:
            return False
        if not run.driven.missing(run.seen):
            return False
        run.judged = looks
        verdict = self.judge(run.driven.folder)
        if verdict is not None:
            write_json(run.driven.folder / VERDICT, verdict.data())
        return verdict is not None

    def spent(self, run: _Run, now: float) -> bool:
        """Whether the amount of a run does not pay for going on to its next evaluation, at the mean cost of an update
        so far, which is asked after every evaluation; or is spent, asked when its time is noted. Why is kept in its
        folder."""
        at, driven = run.at, run.driven
        if at is None or run.seen is None or not (later := [u for u in driven.missing(run.seen) if u]):
            return False
        done = max(run.seen.evaluated, default=0)
        fresh, run.counted = done != run.counted, done
        if not fresh and run.noted != now:
            return False
        spent = run.paid(at, done if fresh else run.seen.trained)
        rest = run.paid(at, later[0]) - run.paid(at, 0) if not done else spent / done * (later[0] - done)
        if spent + rest * fresh <= at.amount:
            return False
        why = f"{at.text(spent)} of --stop-at {at.text(at.amount)} spent " + (
            f"after {counted(int(done), 'update')}; going on to the evaluation after {later[0]} takes {at.text(rest)}"
            if fresh else f"before the evaluation after {counted(later[0], 'update')}")
        write_json(driven.folder / STOP_AT, {**at.data(), "why": why})
        return True

    def stop(self, run: _Run, now: float, why: str) -> None:
        self.launcher.stop(run.attempt)
        run.stopped, run.why = now, why

    def over(self, run: _Run) -> bool:
        """End the run if its log has everything; whether it has."""
        driven = run.driven
        run.seen = seen = driven.seen()
        tried = counted(len(driven.attempts), "attempt")
        if not driven.missing(seen):
            driven.write(seen, run.asked, run.more, ended=f"trained by {driven.trainer.kind} in {tried}")
            return True
        if len(seen.evaluated) > 1 and driven.log_of(seen).end == DIVERGED:
            driven.write(seen, run.asked, run.more, ended=f"trained by {driven.trainer.kind} in {tried}")
            return True
        if (driven.folder / VERDICT).exists():
            why = read_json(driven.folder / VERDICT)["why"]
            driven.write(seen, run.asked, run.more, ended=f"ended early: {why}", early={"reason": STOPPED})
            return True
        if (driven.folder / STOP_AT).exists():
            at = read_json(driven.folder / STOP_AT)
            why = at.pop("why")
            if not seen.evaluated:
                raise UserError(f"run {run.name}: {why}, which is its first: give a larger --stop-at")
            at["spent"] = run.paid(StopAt.of(at), seen.trained)
            driven.write(seen, run.asked, run.more, ended=why, early={"reason": STOPPED, "stop_at": at})
            return True
        return False

    def after(self, run: _Run) -> None:
        """What follows an attempt that is gone: the run's end, another attempt, or an error."""
        if self.over(run):
            return
        assert run.seen is not None
        driven, seen = run.driven, run.seen
        progress = seen.trained + len(seen.evaluated)
        if seen.trained >= driven.sizes.M and (why := driven.unused()):
            raise UserError(f"run {run.name}: {why}. What it printed ends:\n{driven.last_output()}")
        if seen.trained >= driven.sizes.M and progress <= run.best:     # twice: it did not die within an evaluation
            driven.log_of(seen)     # raises for a column that is not there
            lacking = ", ".join(map(str, driven.missing(seen)))
            raise UserError(
                f"run {run.name} has made its {driven.sizes.M} updates, and its log has no evaluation after {lacking}: "
                f"evaluate before the first update, every {driven.sizes.eval_every} updates ({{eval_every}}) and after "
                f"the last, and log the result with its step. It logged in {driven.log(len(driven.attempts) - 1)}"
            )
        run.fruitless = 0 if progress > run.best else run.fruitless + 1
        if run.best < 0 and progress <= 0:
            run.fruitless = 1
        run.best = max(run.best, progress)
        if run.fruitless >= FRUITLESS or self.alike(run, seen):
            raise UserError(self.failed(run, seen))
        self.launch(run)

    def alike(self, run: _Run, seen: RunProgress) -> bool:
        """Whether its last two attempts ended by themselves before they logged anything, with the same last line."""
        if seen.lines or run.why or run.fruitless < 2:
            return False
        ends = [re.sub(r"\d+", "0", run.driven.last_output(k).rpartition("\n")[2]) for k in (-1, -2)]
        return ends[0] == ends[1] != ""

    def failed(self, run: _Run, seen: RunProgress) -> str:
        """Why a run is given up."""
        driven = run.driven
        if seen.lines == 0:
            other = f", whose folder is in {driven.given}" if driven.given else " (--metrics names another file)"
            what = f"logged nothing in {driven.log(len(driven.attempts) - 1)}{other}"
        elif unused := driven.unused():
            what = f"got no further than update {seen.trained:g} of {driven.sizes.M}: {unused}"
        else:
            what = (f"got no further than update {seen.trained:g} of {driven.sizes.M}; checkpoint at least as often as "
                    "its processes are stopped, and continue from the last checkpoint in {out}")
        why = f"; {run.why}" if run.why else ""
        return (f"run {run.name}: {run.fruitless} attempts in a row {what}{why}. The last one was "
                f"{driven.attempts[-1]}/{OUTPUT}, which ends:\n{driven.last_output() or 'it printed nothing'}")

    def end_all(self) -> None:
        """Stop what is active and wait until it is gone."""
        for run in self.active:
            self.launcher.stop(run.attempt)
        asked = time.monotonic()
        while self.active and time.monotonic() < asked + 2 * GRACE:
            states = self.launcher.look([run.attempt for run in self.active])
            for run in list(self.active):
                if states[run.attempt] is State.GONE:
                    run.close()
                    self.active.remove(run)
                    continue
                run.note(states[run.attempt], time.monotonic())
                if time.monotonic() > asked + GRACE:
                    self.launcher.stop(run.attempt, now=True)
            if self.active:
                self.launcher.rest(TICK / 5)
