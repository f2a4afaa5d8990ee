"""The runs of a study of control, of its pilot and of its prescription, and the audit of what was sealed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from isocost.can import Can
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.laws.value_fit import SPREAD, fit_control
from isocost.planner.audit import seals
from isocost.planner.control.curves import return_curves
from isocost.planner.control.outcome import (
    ControlAudit,
    ControlForecast,
    audit_control,
    runs_to_train,
    seal_control,
)
from isocost.planner.forecast import changed, digest, records_hash
from isocost.runs import files as records
from isocost.screen.display import OfPlanner, Result, Row, Table, folder_field
from isocost.screen.words import counted, grouped, word
from isocost.steps.control.plan import OPTIONS, pilot_of, prescribed
from isocost.steps.control.profile import DATA, set_hash
from isocost.steps.control.runs import Trained, run_all
from isocost.steps.events import SILENT, Observer
from isocost.steps.study import StudyRecord, changes


@dataclass(frozen=True)
class ControlRuns(Result):
    """Runs that were made: their names, and the command that follows."""

    runs: tuple[str, ...]
    then: str
    folder: Path | None = folder_field()

    def rows(self) -> list[Row]:
        """How many, and what to do next."""
        return [Row("", f"{counted(len(self.runs), 'run')} done"), Row("next", self.then, "command")]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"runs": list(self.runs)}


@dataclass(frozen=True)
class ControlForecastResult(OfPlanner):
    """A sealed forecast of control (`isocost.planner.control.outcome.ControlForecast`)."""

    has: ClassVar[str] = "forecast"

    forecast: ControlForecast
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return f"forecast, sealed {self.forecast.seal[:12]}"

    def rows(self) -> list[Row]:
        """What would falsify it."""
        return [Row("wrong if", self.forecast.falsifier)]


@dataclass(frozen=True)
class ControlAuditResult(OfPlanner):
    """The forecast against the outcome (`isocost.planner.control.outcome.ControlAudit`)."""

    has: ClassVar[str] = "audit"

    audit: ControlAudit
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return f"audit: {self.audit.verdict}"

    def rows(self) -> list[Row | Table]:
        """The reason for the verdict, and the outcome of each arm."""
        a = self.audit
        cells = [(o.name, o.arm.label, f"{o.arrived} of {o.count}",
                  *(("never", "") if o.samples is None else
                    (grouped(round(o.samples)), grouped(round(o.samples * o.arm["sigma"])))), f"{o.final:.4g}",
                  "" if o.ratio is None else f"{o.ratio.value:.2f} [{o.ratio.low:.2f}, {o.ratio.high:.2f}]")
                 for o in a.arms]
        held = {None: "", True: "the mean return at the end lies in its interval",
                False: "the mean return at the end lies outside its interval"}[a.final_held]
        out: list[Row | Table] = [Row("", a.reason), Table(
            ("arm", "", "arrived", "samples", "updates", "return", "times the prescription's samples"), cells, (0, 1))]
        return [*out, *([Row("", held)] if held else [])]


@changes
def pilot_control(
    study: StudyRecord, *, workers: int | None = None, dry_run: bool = False, observer: Observer = SILENT
) -> Result:
    """Run the planned pilot; runs that ended are not run again. A dry run returns the plan."""
    study.source.require(Can.PILOT, study.path)
    pilot = pilot_of(study)
    if dry_run:
        from isocost.steps.control.plan import ControlPilotResult, evaluating

        return ControlPilotResult(pilot, study.path, evaluating(study, len(pilot.runs)))
    with study.phase("pilot"):
        run_all(study.runs, pilot.runs, _trained(study), "pilot", _workers(study, workers), observer)
    return ControlRuns(tuple(r.name for r in pilot.runs), f"isocost fit {word(study.path)}", study.path)


@changes
def train_control(
    study: StudyRecord, *, workers: int | None = None, dry_run: bool = False, observer: Observer = SILENT
) -> Result:
    """Seal the forecast, then train the prescription and its rivals on new seeds. A dry run returns the plan.

    Raises UserError for logs, before there is a plan, and where what a sealed forecast was made from has changed.
    """
    study.source.require(Can.TRAIN, study.path)
    made = prescribed(study)
    if dry_run:
        return made
    plan = made.plan
    if not study.has("forecast.json"):
        spread = SPREAD
        if not plan.refused:
            spread = fit_control(return_curves(study.runs_read, ("pilot",)), plan.wanted).between(plan.arm["sigma"])
        sealed = seal_control(plan, spread, {**_hashes(study), "code": records.code()["sources"]}, study.asked["seed"])
        write_json(study.path / "forecast.json", {"schema": records.SCHEMA, **sealed.data()})
        study = study.again()
    forecast = forecast_of(study)
    if altered := changed(forecast.hashes, _hashes(study)):
        raise UserError(f"{', '.join(altered)} was changed after the forecast was sealed: start another study")
    observer.on(ControlForecastResult(forecast, study.path))
    runs = [r for own in runs_to_train(forecast.plan, study.asked["seed"]).values() for r in own]
    with study.phase("train"):
        run_all(study.runs, runs, _trained(study, forecast.seal), "training", _workers(study, workers), observer)
    return ControlRuns(tuple(r.name for r in runs), f"isocost audit {word(study.path)}", study.path)


@changes
def audit_control_study(study: StudyRecord) -> ControlAuditResult:
    """Compare the sealed forecast with the outcome and write audit.json."""
    study.source.require(Can.SEAL, study.path)
    forecast = forecast_of(study)
    named = {run for own in forecast.runs.values() for run in own}
    files = [run for run in study.runs_read if run.name in named]
    found = audit_control(forecast, return_curves(files, ("train",)), seals(files),
                          changed(forecast.hashes, _hashes(study)))
    study.write("audit.json", found.data())
    return ControlAuditResult(found, study.path)


def forecast_of(study: StudyRecord) -> ControlForecast:
    """The sealed forecast, its seal verified."""
    return ControlForecast.of(study.record("forecast.json", "train --plan"))


def _hashes(study: StudyRecord) -> dict[str, str]:
    """Of the plan, the law and the pilot's records as the files are now."""
    found = {"records": records_hash([r for r in study.runs_read if r.about().get("purpose") == "pilot"])}
    for name in ("plan", "law"):
        if study.has(f"{name}.json"):
            data = study.record(f"{name}.json", name)
            found[name] = digest({k: v for k, v in data.items() if k != OPTIONS})
    return found


def _trained(study: StudyRecord, seal: str | None = None) -> Trained:
    """Raises UserError for a set that is another one than the study began with."""
    asked = study.asked
    if DATA in asked and set_hash(asked[DATA], asked["task"]) != asked["hash"]:
        raise UserError(f"{asked[DATA]} has changed since the study began: put the file back, or start another study")
    return Trained(asked["task"], asked["method"], seal, asked.get(DATA), asked.get("sets", {}))


def _workers(study: StudyRecord, asked: int | None) -> int:
    planned = study.record("pilot.json", "plan").get(OPTIONS, {}).get("workers")
    return asked or planned or os.cpu_count() or 1
