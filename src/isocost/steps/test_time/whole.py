"""A whole study of test-time strategies: profile, plan, audit and report in one folder."""

from __future__ import annotations

from pathlib import Path

from isocost.screen.display import write_report
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import writes
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.plan import StrategyAuditResult, StrategyOptions, audit, plan
from isocost.steps.test_time.profile import Compared, StrategyProfile, profile_live
from isocost.worlds.setting import Setting

STRATEGIES = ("best-of", "vote", "weighted-vote", "until-sure", "beam", "particles")
SCORER = "steps:wrong=0.15"     # the built-in step checker, wrong on 15 % of the texts, as a learned scorer may be
BUDGET = "500-tokens/answer"


@writes(new=True)
def whole(
    out: Path, setting: Setting, *, seed: int = 0, budget: str | None = None, observer: Observer = SILENT,
) -> StrategyAuditResult:
    """Profile the strategies, plan for a budget per answer, audit and report in `out`; a profile that was stopped goes
    on. Every step's result goes to the observer. Raises UserError as the steps do."""
    if (out / "profile.json").exists():
        observer.on(StrategyProfile.read(StudyRecord.read(out)))
    else:
        observer.on(profile_live(out, setting, Compared(STRATEGIES, SCORER, seed), observer=observer))
    observer.on(plan(StudyRecord.read(out), StrategyOptions(budget=budget or BUDGET)))
    found = audit(StudyRecord.read(out))
    write_report(out)
    return found
