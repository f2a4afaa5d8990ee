"""Events of a step that runs. A step prints nothing: it passes events and results, which have `rows()`, to an
`Observer`.

The command line implements `Observer` with its printer and its live display. From Python nothing is printed unless an
observer is given.
"""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from isocost.planner.training.study_runs import worded
from isocost.runs.job import Job
from isocost.runs.speed import Rates, told
from isocost.screen.display import Row
from isocost.screen.words import counted, duration, grouped


class Tell(Protocol):
    """Receives what a step does now, such as "problems", and how many of how many are done; 0 of 0 where none count."""

    def __call__(self, what: str, done: int = 0, total: int = 0) -> None: ...


class Observer:
    """Receives the events of a step. This one ignores them; override any method."""

    def on(self, event: object) -> None:
        """Called with each event of this module, and with each intermediate result of a step: a learning-rate rule, a
        sealed forecast, and in a whole study what every step returned."""

    @contextmanager
    def running(self, title: str, folder: Path, jobs: Sequence[Job]) -> Iterator[Callable[[], None]]:
        """Surrounds jobs that run side by side, each in `folder`/name; what it yields is called several times a second.
        """
        yield _nothing

    @contextmanager
    def counting(self, title: str) -> Iterator[Tell]:
        """Surrounds a step without jobs that may take minutes; what it yields is called with how far the step is."""
        yield untold


def _nothing() -> None:
    pass


def untold(what: str, done: int = 0, total: int = 0) -> None:
    """The `Tell` that nobody hears."""


SILENT = Observer()


def default() -> Observer:
    """The observer of a study in Python: silent, except in IPython, where someone waits for the call and sees what the
    commands show. The commands come after the steps in the order of imports, so they are imported by name."""
    if not hasattr(builtins, "__IPYTHON__"):
        return SILENT
    printer: Observer = importlib.import_module("isocost.cli.printer").Printer()
    return printer


@dataclass(frozen=True)
class Warned:
    """A warning that does not stop the step: one line of text."""

    text: str

    def rows(self) -> list[Row]:
        """The text."""
        return [Row("", self.text, "flag")]


@dataclass(frozen=True)
class Noted:
    """A fact about the requested settings: one line of text."""

    text: str

    def rows(self) -> list[Row]:
        """The text."""
        return [Row("", self.text, "command")]


@dataclass(frozen=True)
class Skipped:
    """A log that was not imported, with the reason. It is printed on stderr."""

    text: str


@dataclass(frozen=True)
class StudyStart:
    """A whole study starts or continues in `folder`: `size` is the preset's name."""

    folder: Path
    size: str
    seed: int

    def rows(self) -> list[Row]:
        """Its folder, its settings and its steps."""
        return [Row("", f"isocost study in {self.folder} (size {self.size}, seed {self.seed}): profile, plan, pilot, "
                        "fit, plan, train, audit", "head")]


@dataclass(frozen=True)
class Extended:
    """Runs were added to a pilot of `before` rollouts: `rollouts` more, taking about `seconds` more of run time.
    `source` says how the time was estimated."""

    rollouts: int
    seconds: float
    before: int
    source: str

    def rows(self) -> list[Row]:
        """In a sentence."""
        return [Row("", f"adds {self.rollouts:,} rollouts and about {duration(self.seconds)} of run time to a pilot of "
                        f"{self.before:,} rollouts; time is {self.source}")]


@dataclass(frozen=True)
class Started:
    """One run starts or continues."""

    job: Job

    def rows(self) -> list[Row]:
        """What is trained, and its budget."""
        job, budget = self.job, ", ".join(f"{grouped(v)} {k}" for k, v in self.job.budget.items())
        return [Row("", f"{job.method} on {job.setting.problems.data} with {job.setting.model}: {worded(job.arm)}, "
                        f"lr = {job.arm['lr']:.2g}, seed {job.seed}, {budget}", "head")]


@dataclass(frozen=True)
class Evaluated:
    """One run was evaluated: `reward` is on the test split, after `rollouts` rollouts and `step` updates. `mark` is by
    the verifier that trains, where the reward is by another one. `speed` is the run's speed so far; None before the
    first update."""

    rollouts: int
    step: int
    reward: float
    speed: Rates | None
    mark: float | None = None

    def rows(self) -> list[Row]:
        """One line."""
        speed = f"  {told(self.speed)}" if self.speed else ""
        beside = "" if self.mark is None else f" (truth), {self.mark:.4f} (mark)"
        return [Row("", f"{self.rollouts:>9,} rollouts  step {self.step:>6}  held-out reward, test split "
                        f"{self.reward:.4f}{beside}{speed}", "command")]


@dataclass(frozen=True)
class CostSample:
    """What estimating a cost has sampled: rollouts, tokens (prompts and completions) and seconds. No budget counts it.
    `folder` is where it is recorded, if it is."""

    rollouts: int
    tokens: int
    seconds: float
    folder: Path | None = None

    @classmethod
    def of(cls, cost: Mapping[str, Any], folder: Path | None = None) -> CostSample:
        """From the plain data of a cost."""
        return cls(cost["rollouts"], cost["prefill"] + cost["decode"], cost["seconds"], folder)

    def rows(self) -> list[Row]:
        """In a sentence."""
        billed = f"; billed in {self.folder}/dry-run.json" if self.folder else ""
        return [Row("", f"estimating the cost used {self.rollouts:,} rollouts of {counted(self.tokens, 'token')}, "
                        f"{self.seconds:.1f} s (not counted in any budget{billed}); nothing was trained", "command")]
