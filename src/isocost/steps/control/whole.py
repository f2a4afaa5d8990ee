"""A study of control from end to end, on the built-in pendulum."""

from __future__ import annotations

from pathlib import Path

from isocost.screen.display import write_report
from isocost.steps.control.fit import fit_control_study
from isocost.steps.control.plan import ControlPlanOptions, plan_control
from isocost.steps.control.profile import profile_control
from isocost.steps.control.train import audit_control_study, pilot_control, train_control
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import writes
from isocost.steps.quickstart import QuickstartResult
from isocost.steps.study import StudyRecord

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
