"""The fit: a law from the pilot's curves, or the reason why it is not identified."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from isocost.errors import UserError
from isocost.laws import law as laws
from isocost.laws.curves import PASS, Curve, attempts_of, curves
from isocost.laws.fit import fit_law
from isocost.laws.interference import by_n, interferences
from isocost.laws.law import Flag
from isocost.laws.overfit import Overfit, describe, overfitting
from isocost.planner import pilot as pilots
from isocost.runs.launch.local import ended
from isocost.steps import imported
from isocost.steps.folder import Home, opened, writes
from isocost.steps.results import Law, NoLaw
from isocost.words import word


@writes()
def fit(study: Path, *, metric: str | None = None) -> Law | NoLaw:
    """Fit the law to the pilot's curves and write law.json; a law that is there is read.

    `metric` (pass@1, best@4, worst@4) changes what laws are of from here on. Of one imported run the curve is fitted
    and nothing is written.

    Raises:
        UserError: before every run of the pilot has ended, and for a metric that the evaluations do not hold.
    """
    if metric not in (None, PASS):
        imported.refuse_imported(study, "its records hold one number of each evaluation; to fit another, import the "
                                        "logs again with --map held_out=COLUMN")
    if not (study / "study.json").exists() and imported.is_imported_run(study):
        return imported.fit_alone(study)
    home = opened(study)
    if home.has("pilot.json") and (
        planned := pilots.PilotPlan.of(home.read("pilot.json", "plan"))
    ).direct:
        return NoLaw(planned.why, study)
    choose_metric(home, metric)
    if not home.has("law.json"):
        with home.phase("fit"):
            home.write("law.json", _law(home).data() | {"metric": home.metric})
    return Law.beside(
        laws.Law.of(home.read("law.json", "fit")),
        metric=home.metric,
        interference=tuple(by_n(interferences(home.path))),
        extendable=not imported.is_imported(home),
        folder=study,
    )


def _law(home: Home) -> laws.Law:
    """The fitted law, with flags for its metric and for over-fitting."""
    metric = home.metric
    seen = _pilot_curves(home, metric)
    if imported.is_imported(home):
        seen = imported.with_base(home.path, seen)
    law = imported.flagged(home, fit_law(seen, seed=home.asked["seed"]))
    over = overfitted(home)
    flags = [Flag("overfitting", describe(over))] if over else []
    if metric != PASS:
        flags.append(Flag("metric", f"this law is of {metric}: such values were found hard to predict (arXiv "
                                    "2603.12151), so take n, B, M and the rate from it and not the reward"))
    return replace(law, flags=(*law.flags, *flags))


def choose_metric(home: Home, metric: str | None, samples: int | None = None) -> None:
    """Set what laws are of from here on; a law and a plan of another metric are removed.

    `samples` are those per held-out problem of a pilot that is about to be planned; without, they are the planned
    pilot's, or the setting's where none is planned.

    Raises:
        UserError: for an unknown metric, one that the evaluations cannot give, or once a forecast is sealed.
    """
    if metric is None or metric == home.metric:
        return
    k, drawn = attempts_of(metric), samples or home.setting.samples
    if samples is None and home.has("pilot.json"):
        drawn = pilots.PilotPlan.of(home.read("pilot.json", "plan")).evaluation.samples or drawn
    if not home.read("profile.json", "profile")["exact"] and drawn < k:
        raise UserError(f"{metric} needs {k} samples per held-out problem and this study's evaluations draw {drawn}: "
                        f"plan its pilot with `isocost plan --metric {metric} --samples {k}`, before it has runs")
    if home.has("forecast.json"):
        raise UserError(f"{home.path}/forecast.json is sealed for {home.metric}; start another study for {metric}")
    if home.runs.exists():
        curves(home.path, metric)    # raises where the runs do not hold it
    home.write("study.json", home.asked | {"metric": metric})
    for name in ("law.json", "plan.json"):
        (home.path / name).unlink(missing_ok=True)


def overfitted(home: Home) -> list[Overfit]:
    """The pilot's arms at the rule's rate that over-fit, by pass@1 whatever the metric; none without a held-out reward.
    """
    if imported.is_training(home):
        return []
    return overfitting([c for c in curves(home.path) if c.purpose == "pilot" and c.multiplier == 1.0])


def _pilot_curves(home: Home, metric: str) -> list[Curve]:
    """Raises UserError unless every run that the pilot plans has ended."""
    planned = pilots.PilotPlan.of(home.read("pilot.json", "plan")).runs
    over = sum(ended(home.runs / r.name) for r in planned)
    if over < len(planned):
        raise UserError(
            f"the pilot of {home.path} is not done: {over} of {len(planned)} runs have ended; "
            f"run `isocost pilot {word(home.path)}` first"
        )
    return [c for c in curves(home.path, metric) if c.purpose == "pilot"]
