"""What a study is planned and audited by: a table by the kind that its study.json names. A new planner is a row.

A study names its kind by its source (`isocost.runs.source.Source.kind`). Files of kinds other than training have the
names of those of training (profile.json, plan.json, forecast.json, audit.json) and a key "kind"; their shapes are
registered with it (`isocost.runs.schema.register`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from isocost.errors import UserError
from isocost.steps.outside import imported
from isocost.steps.study import StudyRecord
from isocost.steps.training.audit import audit as audit_training
from isocost.steps.training.plan import plan as plan_training
from isocost.steps.training.plans import PlanOptions


@dataclass(frozen=True)
class Planner:
    """The planner of one kind of study.

    options: the frozen dataclass of what `isocost plan` takes for it; what is None was not given.
    plan, audit: steps, which return a result (`isocost.screen.display.Result`); that of an audit has an `exit_code`.
    """

    options: type[Any]
    plan: Callable[[StudyRecord, Any], Any]
    audit: Callable[[StudyRecord], Any]


PLANNERS: Mapping[str, Planner] = {
    "training": Planner(PlanOptions, plan_training, audit_training),
    "imported": Planner(PlanOptions, imported.planned, audit_training),
}


def plan(study: StudyRecord, asked: Mapping[str, Any]) -> Any:
    """The plan of a study by the planner of its kind, with the options `asked`, of which None was not given.

    Raises:
        UserError: for an option that studies of this kind do not have, and as the planner does.
    """
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
