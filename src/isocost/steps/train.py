"""Training a study's plan: the forecast is sealed first, then the prescription and its comparator are run."""

from __future__ import annotations

from pathlib import Path

from isocost import methods
from isocost.errors import UserError
from isocost.laws.curves import curves
from isocost.laws.law import Law
from isocost.planner import forecast as forecasts
from isocost.planner import pilot as pilots
from isocost.planner.learning_rate import RateRule
from isocost.recipe import describe
from isocost.runs import files as records
from isocost.runs import rules
from isocost.runs.files import read_json
from isocost.runs.launch.site import HERE, Site
from isocost.runs.source import Can
from isocost.steps.early import NEVER, Stops
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import Home, opened, writes
from isocost.steps.jobs import run_phase, workers_for
from isocost.steps.limits import of_limit
from isocost.steps.plan import prescription
from isocost.steps.results import Forecast, Plan, Trained
from isocost.steps.settle import settle


@writes()
def train(
    study: Path, *, workers: int | None = None, dry_run: bool = False, trainer: str | None = None, site: Site = HERE,
    stops: Stops = NEVER, observer: Observer = SILENT,
) -> Trained | Plan:
    """Seal the forecast, then train the prescription and its comparator, paired by seed; runs that ended are not run
    again. A dry run returns the plan, whose `bill` is the cost.

    `workers` runs go side by side, where `site` says; results do not depend on either. A user's `trainer` is the one
    that the study began with, and `stops` says when a run of it is ended early: the audit then cannot tell.

    Raises:
        UserError: for a source whose runs cannot be launched, before there is a plan, and where a record was changed
            after the seal.
    """
    home = opened(study)
    home.source.require(Can.TRAIN, study)
    settle(home, trainer, site)
    rules.refuse_other_runs(home.runs)
    stops.require(home)
    planned = pilots.PilotPlan.of(home.read("pilot.json", "plan"))
    plan = prescription(home)
    if dry_run:
        return plan
    law = Law.of(home.read("law.json", "fit")) if home.has("law.json") else None
    if not home.has("forecast.json"):
        seen = of_limit(curves(home.path, home.metric), planned.at(plan.turns)) if law else []
        files = hashes(home, forecasts.SEAL)
        sealed = forecasts.seal(
            plan, law, seen, records=files.pop("records"), code=records.code()["sources"], files=files,
            rules={} if home.trainer else rules.now(describe(methods.recipe(home.method))),
        )
        forecasts.write(sealed, home.path / "forecast.json")
    read = forecasts.read(home.path / "forecast.json")
    if altered := forecasts.changed(read.hashes, hashes(home, read.seal_version)):
        raise UserError(f"{', '.join(altered)} was changed after the forecast was sealed: start another study")
    forecast = Forecast.beside(read, metric=home.metric, folder=study)
    observer.on(forecast)
    rule = RateRule.of(home.read("rate.json", "pilot")) if home.has("rate.json") else planned.rate
    workers = workers_for(home, workers, observer, site)
    with home.phase("train"):
        run_phase(home, planned, plan.runs, rule, "training", observer, workers, forecast.seal, site,
                  stops)
    return Trained(forecast, tuple(r.name for r in plan.runs), study)


def hashes(home: Home, version: int) -> dict[str, str]:
    """The hashes of what a forecast is made from, as the study's files are now, in this version of the seal; empty for
    a file that is not there."""
    return {"records": forecasts.records_hash(home.path)} | {
        name: forecasts.digest_of(read_json(path), version) if (path := home.path / f"{name}.json").exists() else ""
        for name in ("plan", "law")
    }
