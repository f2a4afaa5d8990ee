"""What a study is planned and audited by: a table by the kind that its study.json names. A new planner is a row.

A study names its kind by its source (`isocost.runs.source.Source.kind`). Files of kinds other than training have the
names of those of training (profile.json, plan.json, forecast.json, audit.json) and a key "kind"; their shapes are
registered with it (`isocost.runs.schema.register`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.steps.control.fit import fit_control_study
from isocost.steps.control.plan import ControlPlanOptions, plan_control
from isocost.steps.control.train import audit_control_study, pilot_control, train_control
from isocost.steps.events import Observer
from isocost.steps.outside import imported
from isocost.steps.quickstart import whole_control, whole_strategies, whole_training
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.plan import StrategyOptions, no_law
from isocost.steps.test_time.plan import audit as audit_strategies
from isocost.steps.test_time.plan import plan as plan_strategies
from isocost.steps.training.audit import audit as audit_training
from isocost.steps.training.plan import plan as plan_training
from isocost.steps.training.plans import PlanOptions
from isocost.worlds.setting import Setting

TRAINED = ("seed", "budget", "size", "method", "dry_run", "price", "devices", "workers", "setting")


@dataclass(frozen=True)
class Planner:
    """The planner of one kind of study.

    options: the frozen dataclass of what `isocost plan` takes for it; what is None was not given.
    plan, audit: steps, which return a result (`isocost.screen.display.Result`); that of an audit has an `exit_code`.
    whole: every step in a new folder, for `isocost quickstart`; it takes an observer and the options `takes`.
    fit, pilot, train: steps of its own; None: those of training. `pilot` and `train` take workers, dry_run and an
    observer.
    """

    options: type[Any]
    plan: Callable[[StudyRecord, Any], Any]
    audit: Callable[[StudyRecord], Any]
    whole: Callable[..., Any]
    takes: tuple[str, ...]
    fit: Callable[[StudyRecord], Any] | None = None
    pilot: Callable[..., Any] | None = None
    train: Callable[..., Any] | None = None


PLANNERS: Mapping[str, Planner] = {
    "training": Planner(PlanOptions, plan_training, audit_training, whole_training, TRAINED),
    "imported": Planner(PlanOptions, imported.planned, audit_training, whole_training, TRAINED),
    "test_time": Planner(StrategyOptions, plan_strategies, audit_strategies, whole_strategies,
                         ("seed", "budget", "setting"), no_law),
    "control": Planner(ControlPlanOptions, plan_control, audit_control_study, whole_control, ("seed", "workers"),
                       fit_control_study, pilot_control, train_control),
}


def whole(kind: str, out: Path, setting: Setting, asked: Mapping[str, Any], observer: Observer) -> Any:
    """Every step of a study of this kind in `out`, with the options `asked`, of which None was not given. Raises
    UserError for an option that such studies do not have, and as the steps do."""
    planner = PLANNERS[kind]
    if other := next((k for k, v in asked.items() if v not in (None, False) and k not in planner.takes), None):
        raise UserError(f"--{other.replace('_', '-')} has no use with this world: its study takes "
                        f"{', '.join(f'--{k}' for k in planner.takes if k != 'setting')}")
    own = {k: v for k, v in {"setting": setting, **asked}.items() if k in planner.takes}
    return planner.whole(out, observer=observer, **own)


def plan(study: StudyRecord, asked: Mapping[str, Any]) -> Any:
    """The plan of a study by the planner of its kind, with the options `asked`, of which None was not given. Raises
    UserError for an option that studies of this kind do not have, and as the planner does."""
    planner = PLANNERS[study.kind]
    own = {f.name for f in fields(planner.options)}
    if other := next((name for name, value in asked.items() if value is not None and name not in own), None):
        takes = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(own))
        raise UserError(f"--{other.replace('_', '-')} has no use here: {study.path} {study.source.described}, and its "
                        f"plan takes {takes}")
    return planner.plan(study, planner.options(**{k: v for k, v in asked.items() if k in own}))


def audit(study: StudyRecord) -> Any:
    """The audit of a study by the planner of its kind. Raises UserError as that does."""
    return PLANNERS[study.kind].audit(study)


def own_step(
    study: StudyRecord, name: str, given: Mapping[str, str], takes: tuple[str, ...]
) -> Callable[..., Any] | None:
    """The step `name` (fit, pilot or train) that this kind of study has for itself; None: that of training. Raises
    UserError for an option that was `given` and is none of those that it `takes`."""
    step: Callable[..., Any] | None = getattr(PLANNERS[study.kind], name)
    if step is not None and (wrong := next((option for own, option in given.items() if own not in takes), None)):
        raise UserError(f"{wrong} has no use here: {study.path} {study.source.described}")
    return step
