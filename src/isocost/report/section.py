"""A section of the page, and the rows of a study's results, which sections print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from isocost.errors import UserError
from isocost.report.html import Safe, join, p, sentence, table, tag
from isocost.report.records import Data, ReportRecords, law_of
from isocost.screen.display import Result, Row, Table

TRAINS = {  # steps that sample or train, and why a study of a trainer's runs has nothing of them: imported, driven
    "isocost profile": ("their logs do not contain this", "its log does not contain this"),
    "isocost pilot": ("their logs do not contain this", "its log does not contain this"),
    "isocost train --plan": ("the next run is for your own trainer, and its forecast is the plan's", ""),
}


@dataclass(frozen=True)
class Section:
    """One section of the page; an empty one names the step that fills it."""

    key: str
    title: str
    body: Safe


def empty(study: ReportRecords, what: str, step: str) -> Safe:
    """The text of an empty section: what is missing, and the step that makes it, if isocost can run that step."""
    whose = "The runs are of your trainer" if study.driven else "The runs were imported"
    why = TRAINS.get(step, ("", ""))[study.driven] if study.imported else ""
    if why:
        return tag("p", f"{what} {whose}: {why}.", cls="empty")
    return tag("p", f"{what} To fill this section, run ", tag("code", step), ".", cls="empty")


# rows ---------------------------------------------------------------------------------------------------------


def rows_of(rows: Iterable[Row | Table], caption: str, *, flags: bool = True) -> Safe:
    """Rows as lists of names with texts, and tables. Without `flags` cautions are left out: the page has a section of
    them."""
    parts: list[Safe] = []
    lines: list[Row] = []
    for row in rows:
        if isinstance(row, Table):
            parts += [_list(lines), table(row.heads, row.cells, caption, "quiet")]
            lines = []
        elif flags or row.kind != "flag":
            lines.append(row)
    return join(*parts, _list(lines))


def _list(rows: Sequence[Row]) -> Safe:
    """Names at the left, each once in a row of equal ones. A row without a name has the whole width, or continues the
    one above if it is indented."""
    items, above = [], ""
    for row in rows:
        place = "" if row.name or (above and row.text[:1] == " ") else "whole"
        if row.name:
            items.append(tag("dt", row.name if row.name != above else ""))
        text = tag("code", row.text) if row.kind == "command" else row.text.strip()
        items.append(tag("dd", text, cls=" ".join(filter(None, (place, row.kind))) or None))
        above = row.name or (above if not place else "")
    return tag("dl", *items, cls="rows") if items else join()


def told(study: ReportRecords, name: str) -> Safe:
    """The rows of the result that a file of the study holds, by its name in `STUDY_FILES`, without cautions; empty
    without the file. Another version, or a stranger, may have written it in a way that this one cannot read."""
    try:
        result = RESULTS[name](study, study[name]) if study[name] else None
        return join() if result is None else rows_of(result.rows(), sentence(result.heading), flags=False)
    except (UserError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return p(f"{name}.json was written by another version: what it says is not shown in full.", cls="soft")


def _profile(study: ReportRecords, data: Data) -> Result:
    from isocost.steps.training.profile import ProfileResult

    return ProfileResult.of(data)


def _rate(study: ReportRecords, data: Data) -> Any:
    from isocost.planner.training.learning_rate import RateRule

    return RateRule.of(data)


def _law(study: ReportRecords, data: Data) -> Result | None:
    from isocost.steps.training.fit import LawResult

    law = law_of(study)
    return None if law is None else LawResult(law, study.metric)


def _plan(study: ReportRecords, data: Data) -> Result:
    from isocost.steps.training.plans import PlanResult

    return PlanResult.written(data)


def _forecast(study: ReportRecords, data: Data) -> Result:
    from isocost.planner import forecast as forecasts
    from isocost.steps.training.train import ForecastResult

    return ForecastResult(forecasts.Forecast.of(data), study.metric)


def _audit(study: ReportRecords, data: Data) -> Result:
    from isocost.planner import audit as audits
    from isocost.steps.training.audit import AuditResult

    return AuditResult(audits.Audit.of(data))


RESULTS: dict[str, Callable[[ReportRecords, Data], Any]] = {
    "profile": _profile, "rate": _rate, "law": _law, "plan": _plan, "forecast": _forecast, "audit": _audit,
}


def control_result(study: ReportRecords, name: str) -> Any:
    """The result that a file of a study of control holds; None without it, or if another version wrote it."""
    from isocost.steps.control import fit, plan, profile, train

    of: dict[str, Any] = {
        "profile": profile.ControlProfile, "pilot": plan.ControlPilotResult, "law": fit.ControlLawResult,
        "plan": plan.ControlPlanResult, "forecast": train.ControlForecastResult, "audit": train.ControlAuditResult,
    }
    return _read(of[name].of, study[name])


def strategies_result(study: ReportRecords, name: str) -> Result | None:
    """The result that a file of a study of strategies holds; None without it, or if another version wrote it."""
    from isocost.planner.test_time.outcome import StrategyAudit
    from isocost.planner.test_time.profile import StrategyTable
    from isocost.steps.test_time import plan, profile

    of: dict[str, Callable[[Data], Result]] = {
        "profile": lambda d: profile.StrategyProfile(StrategyTable.of(d)),
        "plan": lambda d: plan.StrategyPlanResult.written(d, study["forecast"]),
        "audit": lambda d: plan.StrategyAuditResult(StrategyAudit.of(d)),
    }
    return _read(of[name], study[name])


def _read(of: Callable[[Data], Result], data: Data) -> Result | None:
    try:
        return of(data) if data else None
    except (UserError, LookupError, TypeError, ValueError, AttributeError):
        return None
