"""A study whose runs are a user's trainer's: its start, by a first short run, and the trainer that later steps name.

The first run is the smallest that shows whether a study can be made of such runs: it is launched, logs, is evaluated
before and after its updates, and its seconds are those that the pilot is planned with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path
from typing import Any, Self

import numpy as np

from isocost.laws.curves import curves
from isocost.laws.tracks import LENGTH
from isocost.planner.budget import MEASURED, Timing
from isocost.planner.training.learning_rate import starting_rule
from isocost.planner.training.study_runs import COMMON, run_seed
from isocost.runs.arm import Arm
from isocost.runs.files import SCHEMA, read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.launch.launchers import launcher_of
from isocost.runs.launch.site import HERE, Site
from isocost.runs.measure import UNNAMED
from isocost.screen.display import Result, Row, folder_field
from isocost.screen.words import counted, duration, word
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import StudyFolder, found, restart, writes
from isocost.steps.outside.drive import drive_jobs
from isocost.trainers.driving.command import Trainer
from isocost.trainers.driving.driven import KINDS
from isocost.types import Cost
from isocost.worlds.setting import Setting

Data = Mapping[str, Any]


@dataclass(frozen=True)
class TrainerProfile(Result):
    """The first run of a user's trainer: `updates` of `at["n"]` x `at["B"]` rollouts at the rate `at["lr"]`. base, end:
    held-out reward before and after. timing: its seconds by part. lengths: the mean length of a completion, if the log
    has it. missing: what the log lacks. select: held-out problems. samples: of each. command: what ran."""

    command: str
    base: float
    end: float
    updates: int
    at: Data
    timing: Data
    cost: Data
    select: int
    samples: int
    audit: int = 0
    exact: bool = False
    pool: int | None = None
    parameters: float | None = None
    lengths: Data | None = None
    missing: Sequence[str] = ()
    seconds: float = 0.0
    folder: Path | None = folder_field()

    @classmethod
    def of(cls, data: Data, folder: Path | None = None) -> Self:
        """From trainer.json."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known}, folder=folder)

    @property
    def heading(self) -> str:
        return "profile: the first run of your trainer"

    def rows(self) -> list[Row]:
        """The command, its rewards, how precise they are, its speed, what its log lacks, and the next command."""
        error = 0.5 / (self.select * self.samples) ** 0.5
        return [
            Row("", self.command, "command"),
            Row("", f"{counted(self.updates, 'update')} of {self.at['n']} x {self.at['B']} rollouts at lr "
                    f"{self.at['lr']:.2g} in {duration(self.seconds)}: held-out reward {self.base:.3f} before, "
                    f"{self.end:.3f} after"),
            Row("", f"{self.select} held-out problems, {counted(self.samples, 'sample')} each: standard error of an "
                    f"evaluation at most {error:.3f}"),
            Row("", f"{self.timing['rollout']:.2g} s a rollout and {self.timing['start']:.2g} s to start a run "
                    f"({self.timing['source']})"),
            *(Row("", f"missing: {text}", "flag") for text in self.missing),
            Row("next", f"isocost plan {word(self.folder or '')} --budget ...", "command"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """trainer.json."""
        return {"schema": SCHEMA} | {k: v for k, v in vars(self).items() if k != "folder"}


PROFILED = 4        # updates of the first run
GROUPS = 8          # problems of each of its updates
HELD_OUT = 256      # held-out problems, where it is not said how many
STATED = "the number of held-out problems"     # that the log lacks, and the user states
NAME = "profile"    # of the first run, and of its folder in the study
BASE = "base"       # of the run that measures the base, where one is needed


@dataclass(frozen=True)
class Stated:
    """What a user says of a trainer's runs, because no log holds it. model, data: labels; parameters: the model's size.
    held_out: problems of an evaluation, 256 where it is not said; samples: completions of each. scale: the least and
    the largest reward of a rollout."""

    model: str | None = None
    data: str | None = None
    parameters: float | None = None
    held_out: int | None = None
    samples: int = 1
    scale: tuple[float, float] | None = None

    @property
    def problems(self) -> int:
        """Held-out problems of an evaluation."""
        return self.held_out or HELD_OUT

    @property
    def setting(self) -> Setting:
        """The setting of a study of such runs."""
        return Setting.of(model=self.model or UNNAMED, data=self.data or UNNAMED, held_out=float(self.problems),
                          samples=self.samples, threads=1)


@writes(new=True)
def profile_trainer(
    out: Path, trainer: Trainer, *, seed: int = 0, lr: float | None = None, groups: int = GROUPS, site: Site = HERE,
    observer: Observer = SILENT, **stated: Any,
) -> TrainerProfile:
    """Start a study in `out` whose runs are this trainer's, with a first run of a few updates.

    lr, groups: its learning rate, from which the probe of the pilot starts, and its problems per update. site: where
    the study's runs are executed. **stated: fields of `Stated`.

    Raises:
        UserError: for a run that does not start, does not log what a study needs, or logs other sizes than it was
            asked for, and where `out` already contains a study with different settings.
        Interrupted: after a signal, with the process gone.
    """
    own = Stated(**stated)
    asked: dict[str, Any] = {"seed": seed, "method": None, "trainer": trainer.data(), **site.data()}
    launcher_of(asked["launch"])
    if own.scale is not None:
        asked["scale"] = list(own.scale)
    restart(out, own.setting, **asked)
    home = found(out, own.setting, **asked)
    rate = lr or starting_rule(own.parameters).at(COMMON * groups)
    if not home.has("trainer.json"):
        with home.phase("profile"):
            before = _base(home, groups, observer)
            home.write("trainer.json", _first(home, own, Arm(n=COMMON, B=groups, lr=rate), before, observer))
    return TrainerProfile.of(home.record("trainer.json", "profile"), out)


def _base(home: StudyFolder, groups: int, observer: Observer) -> Cost:
    """Measure the base's reward, for a trainer that does not evaluate before its first update; returns the cost. One
    update at a learning rate of 0 leaves the policy as it was, and the evaluation after it is of the base. The reward
    is kept in study.json for all runs."""
    assert home.trainer is not None
    if KINDS[home.trainer.kind].base:
        return Cost()
    if "base" not in home.asked:
        _run(home, BASE, Arm(n=COMMON, B=groups, lr=0.0), 1, "the base, at a learning rate of 0", observer)
        reward = next(x["eval/select"] for x in read_lines(home.path / BASE / "metrics.jsonl") if "eval/select" in x)
        low, high = home.asked.get("scale") or (0.0, 1.0)
        home.amend(base=low + reward * (high - low))
    return Cost.of(read_json(home.path / BASE / "end.json")["bill"]["train"])


def _run(home: StudyFolder, name: str, arm: Arm, updates: int, title: str, observer: Observer) -> dict[str, Any]:
    """Run the study's trainer for a few updates, evaluated after the last; returns end.json."""
    C = int(updates * arm["n"] * arm["B"])
    job = Job(name, home.setting, home.method, run_seed(home.asked["seed"], "pilot", 0), {"rollouts": C}, arm,
              points=(C,), purpose=NAME)
    return drive_jobs(home, [job], title, observer, 1, home.path)[0]


def _first(home: StudyFolder, stated: Stated, arm: Arm, before: Cost, observer: Observer) -> dict[str, Any]:
    """The data of trainer.json, from a run of a few updates; `before` was spent to measure the base."""
    end = _run(home, NAME, arm, PROFILED, "the first run of your trainer", observer)
    folder = home.path / NAME
    (curve,) = curves([folder])
    assert home.trainer is not None
    missing = [m for m in read_json(folder / "run.json")["missing"] if not m.startswith(STATED)]
    if stated.held_out is None:
        missing.append(f"the number of held-out problems (--held-out): {HELD_OUT} are assumed")
    lengths = [line[LENGTH] for line in read_lines(folder / "metrics.jsonl") if line.get(LENGTH) is not None]
    bill = {k: v for k, v in (before + Cost.of(end["bill"]["train"])).data().items() if v}
    return {
        "command": home.trainer.command, "base": float(curve.select[0]), "end": float(curve.select[-1]),
        "updates": PROFILED, "at": {"n": arm["n"], "B": arm["B"], "nB": arm["n"] * arm["B"], "lr": arm["lr"]},
        "timing": _timing(curve.C, curve.seconds, end["seconds"]).data(),
        "cost": {k: bill[k] for k in ("rollouts", "decode", "updates") if k in bill} | {"seconds": end["seconds"]},
        "select": stated.problems, "audit": 0, "samples": stated.samples, "exact": False, "pool": None,
        "parameters": stated.parameters, "lengths": {"mean": float(np.mean(lengths))} if lengths else None,
        "missing": missing, "seconds": end["seconds"],
    }


def _timing(C: np.ndarray, seconds: np.ndarray, whole: float) -> Timing:
    """Seconds of a rollout, with the evaluations between, by a run's clock; the rest of its time is its start. Without
    a clock in the log all of its time is its rollouts'."""
    timed = isfinite(seconds[0]) and isfinite(seconds[-1]) and seconds[-1] > seconds[0]
    training = min(float(seconds[-1] - seconds[0]), whole) if timed else whole
    source = "its evaluation included" if timed else "its start included, for want of a clock in its log"
    return Timing(0.0, 0.0, float(f"{training / C[-1]:.4g}"), 0.0, f"{MEASURED} the first run, {source}",
                  float(f"{whole - training:.4g}"))
