"""A study as a value: what its folder holds, read once.

The command line and `isocost.open` read the path; every step takes the `StudyRecord` and returns a result. A part is
read when a step first needs it, and no file is opened twice. What a step writes is in the study that `write` returns;
what other processes have written since is in that of `again`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from isocost.disk import jsonfile
from isocost.errors import UserError
from isocost.laws.curves import Curve, curves
from isocost.laws.law import Law
from isocost.planner import forecast as forecasts
from isocost.planner.forecast import Forecast
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescription import Plan
from isocost.planner.training.turn_limits import LimitChoice
from isocost.runs import source
from isocost.runs.files import RunFiles, read_json, runs_of
from isocost.screen.words import word
from isocost.steps.folder import StudyFolder, writing

CHOICE = "turn_limit"       # of law.json, where several were compared

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class StudyRecord(StudyFolder):
    """A study as its folder held it. Two of the same folder are equal."""

    _read: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)      # by file, and the curves

    @classmethod
    def read(cls, path: str | Path) -> StudyRecord:
        """The study in a folder. Raises UserError if there is none."""
        path = Path(path)
        if not (path / "study.json").exists():
            run = read_json(path / "run.json") if (path / "run.json").exists() else None
            start = source.of(run or {}).start.format(path="STUDY" if run else word(path))
            raise UserError(f"{path} is {'a run, not' if run else 'not'} a study: it has no study.json; {start}")
        return cls(path)

    def again(self) -> StudyRecord:
        """The study as its folder holds it now."""
        return StudyRecord(self.path)

    def record(self, name: str, step: str) -> dict[str, Any]:
        """A step's record. Raises UserError, naming the step that writes it, if there is none."""
        if name not in self._read:
            self._read[name] = super().record(name, step)
        return dict(self._read[name])

    def write(self, name: str, data: Mapping[str, Any]) -> StudyRecord:
        """Write a step's record; returns the study with it."""
        super().write(name, data)
        return self._but(name)

    def without(self, *names: str) -> StudyRecord:
        """Remove these files, of those that are there; returns the study without them."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        return self._but(*names)

    def _but(self, *names: str) -> StudyRecord:
        return StudyRecord(self.path, {k: v for k, v in self._read.items() if k not in names})

    @property
    def kind(self) -> str:
        """Which planner it is of: the key of the tables by kind."""
        return self.source.kind

    @property
    def runs_read(self) -> list[RunFiles]:
        """The files of its runs, in order of name."""
        return list(self._runs.values())

    @property
    def _runs(self) -> dict[str, RunFiles]:
        if "runs" not in self._read:
            self._read["runs"] = {run.name: run for run in runs_of(self.path)}
        found: dict[str, RunFiles] = self._read["runs"]
        return found

    def run(self, name: str) -> RunFiles:
        """The files of a run, which need not be there."""
        return self._runs.get(name) or RunFiles(self.runs / name)

    @property
    def any_run(self) -> dict[str, Any]:
        """run.json of one of its runs: rewards and C of all of them are measured alike."""
        return self.runs_read[0].about()

    def curves(self, metric: str | None = None) -> list[Curve]:
        """The curves of its runs, by default of its own metric. Raises UserError where it has no runs."""
        metric = metric or self.metric
        if not self.runs_read:
            return curves(self.path, metric)      # raises
        if (key := f"curves of {metric}") not in self._read:
            self._read[key] = curves(self.runs_read, metric)
        return list(self._read[key])

    @cached_property
    def planned(self) -> PilotPlan:
        """The pilot's plan."""
        return PilotPlan.of(self.record("pilot.json", "plan"))

    @cached_property
    def rule(self) -> RateRule:
        """The learning-rate rule that the pilot found."""
        return RateRule.of(self.record("rate.json", "pilot"))

    @cached_property
    def law(self) -> Law | None:
        """The fitted law; None before the fit."""
        return Law.of(self.record("law.json", "fit")) if self.has("law.json") else None

    @property
    def choice(self) -> LimitChoice | None:
        """The turn limits that the law was chosen among; None without a law, and with fewer than two limits."""
        law = self.record("law.json", "fit") if self.has("law.json") else {}
        return LimitChoice.of(law[CHOICE]) if law.get(CHOICE) else None

    @property
    def turns(self) -> int | None:
        """The turn limit that the law is of; None for the largest of the plan, or where none is planned."""
        return None if self.choice is None else self.choice.chosen

    @cached_property
    def plan(self) -> Plan:
        """The prescription."""
        return Plan.of(self.record("plan.json", "plan"))

    @cached_property
    def forecast(self) -> Forecast:
        """The sealed forecast, its seal verified. Raises UserError if there is none, or it was changed."""
        path = self.path / "forecast.json"
        return Forecast.of(self.record("forecast.json", "train")) if self.has("forecast.json") else forecasts.read(path)

    @property
    def hashes(self) -> dict[str, str]:
        """The hashes of what a forecast is made from, as the files are now, by the forecast's version of the seal, else
        by today's; empty for a file that is not there."""
        version = self.forecast.seal_version if self.has("forecast.json") else forecasts.SEAL
        return {"records": forecasts.records_hash(self.runs_read)} | {
            name: forecasts.digest_of(self._hashed(f"{name}.json"), version) if self.has(f"{name}.json") else ""
            for name in ("plan", "law")
        }

    def _hashed(self, name: str) -> dict[str, Any]:
        """A record of any shape: what is only hashed need not fit this version."""
        return self._read.get(name) or jsonfile.read_json(self.path / name)


def changes(step: Callable[Concatenate[StudyRecord, P], R]) -> Callable[Concatenate[StudyRecord, P], R]:
    """Decorates a step that writes to its study: it holds the folder's lock, and reads what is there once it has it. A
    dry run writes nothing and takes no lock."""

    @wraps(step)
    def alone(study: StudyRecord, *args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs.get("dry_run"):
            return step(study, *args, **kwargs)
        with writing(study.path):
            return step(study.again(), *args, **kwargs)

    return alone
