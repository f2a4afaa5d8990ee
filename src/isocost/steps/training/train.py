"""Training a study's plan: the forecast is sealed first, then the prescription and its comparator are run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from isocost import methods
from isocost.can import Can
from isocost.errors import UserError
from isocost.laws.curves import PASS
from isocost.planner import forecast as forecasts
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs import rules
from isocost.runs.launch.site import HERE, Site
from isocost.screen.display import OfPlanner, Result, Row, folder_field
from isocost.screen.words import counted, word
from isocost.steps.events import SILENT, Observer
from isocost.steps.execution import Execution
from isocost.steps.outside.early import NEVER, Stops
from isocost.steps.outside.settle import settle
from isocost.steps.study import StudyRecord, changes
from isocost.steps.training.jobs import execution_for, jobs_of, run_phase
from isocost.steps.training.limits import of_limit
from isocost.steps.training.plan import prescription
from isocost.steps.training.plans import PlanResult
from isocost.steps.training.stopping import StoppedRuns, amount_of, shared


@dataclass(frozen=True)
class ForecastResult(OfPlanner):
    """A sealed forecast (`isocost.planner.forecast.Forecast`). metric: what its rewards are."""

    has: ClassVar[str] = "forecast"

    forecast: forecasts.Forecast
    metric: str = PASS
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return f"forecast, sealed {self.forecast.seal[:12]}"

    def rows(self) -> list[Row]:
        """What is forecast, the simple forecasts that it has to beat, and the outcome that would falsify it."""
        f, out = self.forecast, [Row("", self.forecast.why)]
        if (i := f.interval) is not None:
            what = "reward" if self.metric == PASS else self.metric
            limit = "" if f.turns is None else f" at a turn limit of {f.turns}"
            out.append(Row("", f"{i.value:.3f} [{i.low:.3f}, {i.high:.3f}] mean held-out {what} of "
                               f"{counted(len(f.runs), 'run')} of {f.C:,} rollouts{limit}"))
        if f.bill is not None:
            out.append(Row("bill", f.bill.totals))
        out += [Row("to beat", f"{n.name} {n.value:.3f} [{n.low:.3f}, {n.high:.3f}]") for n in f.naive]
        return [*out, Row("wrong if", f.falsifier)]


@dataclass(frozen=True)
class TrainResult(Result):
    """The prescription and its comparator were trained: `runs` are their names, under one sealed `forecast`."""

    forecast: ForecastResult
    runs: tuple[str, ...]
    folder: Path | None = folder_field()

    def rows(self) -> list[Row]:
        """None: the sealed forecast is an event, shown before the runs."""
        return []

    def to_dict(self) -> dict[str, Any]:
        """forecast.json."""
        return self.forecast.to_dict()


@changes
def train(
    study: StudyRecord, *, workers: int | None = None, dry_run: bool = False, trainer: str | None = None,
    site: Site = HERE, stops: Stops = NEVER, observer: Observer = SILENT,
) -> TrainResult | PlanResult | StoppedRuns:
    """Seal the forecast, then train the prescription and its comparator, paired by seed; runs that ended are not run
    again. A dry run returns the plan, whose `bill` is the cost.

    `workers` runs go side by side, where `site` says; results do not depend on either. A user's `trainer` is the one
    that the study began with, and `stops` says when a run is ended early: the audit then cannot tell.

    Raises UserError for a source whose runs cannot be launched, before there is a plan, and where a record was changed
    after the seal.
    """
    study.source.require(Can.TRAIN, study.path)
    study = settle(study, trainer, site)
    rules.refuse_other_runs(study.runs_read, study.path)
    stops.require(study)
    planned, plan, at = study.planned, prescription(study), amount_of(stops.at, study)
    if dry_run:
        return plan
    if not study.has("forecast.json"):
        law, files = study.law, study.hashes
        seen = of_limit(study.curves(), planned.at(plan.turns)) if law else []
        sealed = forecasts.seal(
            plan.plan, law, seen, records=files.pop("records"), code=records.code()["sources"], files=files,
            rules={} if study.trainer else rules.now(describe(methods.recipe(study.method))), bill=plan.cost,
        )
        forecasts.write(sealed, study.path / "forecast.json")
    if altered := forecasts.changed(study.forecast.hashes, study.hashes):
        raise UserError(f"{', '.join(altered)} was changed after the forecast was sealed: start another study")
    forecast = ForecastResult(study.forecast, study.metric, study.path)
    observer.on(forecast)
    rule = study.rule if study.has("rate.json") else planned.rate
    with study.phase("train"):
        jobs = shared(at, jobs_of(study, planned, plan.runs, rule, forecast.seal), study)
        ends = run_phase(study, jobs, "training", execution_for(study, Execution(workers, site, observer)), stops)
    if stopped := StoppedRuns.of(at, jobs, ends, study, f"isocost train --plan {word(study.path)} [--stop-at MORE]"):
        return stopped
    return TrainResult(forecast, tuple(r.name for r in plan.runs), study.path)
