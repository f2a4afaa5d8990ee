"""A study from end to end: `isocost quickstart`, for studies of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.can import Can
from isocost.errors import UserError
from isocost.planner.budget import Budget
from isocost.planner.training.builtin import PRESETS
from isocost.screen.display import Result, Row, folder_field, write_report
from isocost.steps.control.fit import fit_control_study
from isocost.steps.control.plan import ControlPlanOptions, plan_control
from isocost.steps.control.profile import profile_control
from isocost.steps.control.train import audit_control_study, pilot_control, train_control
from isocost.steps.events import SILENT, Observer, StudyStart
from isocost.steps.folder import writes
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.plan import StrategyAuditResult, StrategyOptions
from isocost.steps.test_time.plan import audit as audit_strategies
from isocost.steps.test_time.plan import plan as plan_strategies
from isocost.steps.test_time.profile import Compared, StrategyProfile, profile_live
from isocost.steps.training.audit import audit
from isocost.steps.training.fit import fit
from isocost.steps.training.pilot import pilot
from isocost.steps.training.plan import pilot_plan, plan
from isocost.steps.training.plans import PilotPlanResult, PlanOptions
from isocost.steps.training.profile import profile
from isocost.steps.training.train import train
from isocost.worlds.setting import Setting
from isocost.worlds.spec import spec_of


@dataclass(frozen=True)
class QuickstartResult(Result):
    """A study of any kind from end to end, with the result of its audit. `phases` are seconds of wall-clock time by
    phase; `report` is the file of the report."""

    audit: Any
    phases: Mapping[str, float]
    report: Path
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        return "study complete"

    def rows(self) -> list[Row]:
        """Seconds by phase, and the path of the report."""
        seconds = "  ".join(f"{k} {v:.0f} s" for k, v in self.phases.items())
        return [Row("time", f"{seconds}  = {sum(self.phases.values()):.0f} s"),
                Row("report", str(self.report.resolve()), "command")]

    def to_dict(self) -> dict[str, Any]:
        """audit.json."""
        return self.audit.to_dict()


@writes(new=True)
def whole_training(
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


TASK, RETURN = "pendulum", -600.0
SAMPLE = "3e7flop"      # three updates of a batch of 64 at 64 units: more of them pay up to about three a sample
# In FLOP, so that the plan is the same on every machine. Runs at 8 updates per sample have 1,306 samples: half of the
# work of 3,000 everywhere, and the law as often identified.
OPTIONS = ControlPlanOptions(wanted=RETURN, sample_cost=SAMPLE, sigma=(1.0, 2.0, 4.0, 8.0), shorter=0.4)


@writes(new=True)
def whole_control(
    out: Path, *, seed: int = 0, workers: int | None = None, observer: Observer = SILENT
) -> QuickstartResult:
    """Profile, plan, pilot, fit, plan, train, audit and report in `out`; finished steps are not repeated."""
    observer.on(profile_control(out, TASK, seed=seed, observer=observer))
    study = StudyRecord.read(out)
    if not study.has("pilot.json"):
        observer.on(plan_control(study, OPTIONS))
    pilot_control(study.again(), workers=workers, observer=observer)
    if not study.has("law.json"):
        observer.on(fit_control_study(study.again()))
    observer.on(plan_control(study.again(), ControlPlanOptions()))
    train_control(study.again(), workers=workers, observer=observer)
    verdict = audit_control_study(study.again())
    observer.on(verdict)
    file = write_report(out)
    return QuickstartResult(verdict, study.again().asked["phases"], file, out)


STRATEGIES = ("best-of", "vote", "weighted-vote", "until-sure", "beam", "particles")
SCORER = "steps:wrong=0.15"     # the built-in step checker, wrong on 15 % of the texts, as a learned scorer may be
BUDGET = "500-tokens/answer"


@writes(new=True)
def whole_strategies(
    out: Path, setting: Setting, *, seed: int = 0, budget: str | None = None, observer: Observer = SILENT,
) -> StrategyAuditResult:
    """Profile the strategies, plan for a budget per answer, audit and report in `out`; a profile that was stopped goes
    on. Every step's result goes to the observer. Raises UserError as the steps do."""
    if (out / "profile.json").exists():
        observer.on(StrategyProfile.read(StudyRecord.read(out)))
    else:
        observer.on(profile_live(out, setting, Compared(STRATEGIES, SCORER, seed), observer=observer))
    observer.on(plan_strategies(StudyRecord.read(out), StrategyOptions(budget=budget or BUDGET)))
    found = audit_strategies(StudyRecord.read(out))
    write_report(out)
    return found
