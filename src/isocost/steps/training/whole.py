"""A study from end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isocost.can import Can
from isocost.errors import UserError
from isocost.planner.budget import Budget
from isocost.planner.training.builtin import PRESETS
from isocost.screen.display import write_report
from isocost.steps.events import SILENT, Observer, StudyStart
from isocost.steps.folder import writes
from isocost.steps.quickstart import QuickstartResult
from isocost.steps.study import StudyRecord
from isocost.steps.training.audit import audit
from isocost.steps.training.fit import fit
from isocost.steps.training.pilot import pilot
from isocost.steps.training.plan import pilot_plan, plan
from isocost.steps.training.plans import PilotPlanResult, PlanOptions
from isocost.steps.training.profile import profile
from isocost.steps.training.train import train
from isocost.worlds.setting import Setting
from isocost.worlds.spec import spec_of


@writes(new=True)
def whole(
    out: Path, setting: Setting, *, seed: int = 0, size: str = "quick", method: str | None = None,
    dry_run: bool = False, observer: Observer = SILENT, **options: Any,
) -> QuickstartResult | PilotPlanResult:
    """Profile, plan, pilot, fit, plan, train, audit and report in `out`; finished steps are not repeated.

    **options: budget, which replaces the size, price, devices and workers, of `PlanOptions`.
    Every step's result goes to the observer when it is there. A dry run profiles and returns the pilot's plan.

    Raises UserError as the steps do, and where `out` already contains a study with a different size or budget.
    """
    asked = PlanOptions(size=None if options.get("budget") else size, **options)
    _refuse_other_size(out, size, asked.budget)
    spec_of(setting.model).require(Can.LEARN)
    observer.on(StudyStart(out, size, seed))
    observer.on(profile(out, setting, seed=seed, method=method, observer=observer))
    study = StudyRecord.read(out)
    if not study.has("pilot.json"):
        plan(study, asked)
    planned = pilot_plan(study.again())
    if dry_run:
        return planned
    observer.on(planned)
    if not planned.direct:
        observer.on(pilot(study, workers=asked.workers, observer=observer))
        observer.on(fit(study))
    observer.on(plan(study))
    train(study, workers=asked.workers, observer=observer)
    verdict = audit(study)
    observer.on(verdict)
    with study.phase("report"):
        write_report(out)
    file = write_report(out)      # again, so that it holds the report's own time
    return QuickstartResult(verdict, study.again().asked["phases"], file, out)


def _refuse_other_size(out: Path, size: str, budget: str | None) -> None:
    """Raises UserError for an unknown size, and where the study in `out` was planned at another size or budget."""
    if size not in PRESETS:
        raise UserError(f"there is no size {size!r}; there are {', '.join(PRESETS)}")
    requested = Budget.parse(budget) if budget else None
    if not (out / "pilot.json").exists():
        return
    there = StudyRecord.read(out).planned
    same = there.preset == size if requested is None else there.budget and there.budget.as_asked == requested
    if (there.budget is None) != (requested is None) or not same:
        asked = there.preset if there.budget is None else str(there.budget)
        raise UserError(f"{out} already contains a study planned at {asked}; choose another --out, or remove it")
