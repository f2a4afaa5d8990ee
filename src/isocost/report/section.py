"""A section of the page, and the rows of a study's results, which sections print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from isocost.errors import UserError
from isocost.report.html import Safe, join, p, sentence, table, tag
from isocost.report.records import Data, ReportRecords, law_of
from isocost.screen.display import Row, Table

UNREADABLE = (UserError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
MEASURES = ("isocost profile", "isocost pilot")     # steps that a study of another trainer's runs does not make


@dataclass(frozen=True)
class Section:
    """One section of the page; an empty one names the step that fills it."""

    key: str
    title: str
    body: Safe


def empty(study: ReportRecords, what: str, step: str) -> Safe:
    """The text of an empty section: what is missing, and the step that makes it, if isocost can run that step."""
    if study.imported and step in MEASURES:
        why = ("The runs are of your trainer: its log does not contain this." if study.driven else
               "The runs were imported: their logs do not contain this.")
        return tag("p", f"{what} {why}", cls="empty")
    return tag("p", f"{what} To fill this section, run ", tag("code", step), ".", cls="empty")


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


def result_of(study: ReportRecords, name: str) -> Any:
    """The result that a file of the study holds, by its name in `STUDY_FILES`; None without the file, or if another
    version wrote it."""
    with suppress(*UNREADABLE):
        return _read(study, name)
    return None


def told(study: ReportRecords, name: str, *, flags: bool = False) -> Safe:
    """The rows of the result that a file of the study holds, by its name in `STUDY_FILES`; empty without the file.
    Another version, or a stranger, may have written it in a way that this one cannot read."""
    try:
        if (result := _read(study, name)) is None:
            return join()
        rows = [row for row in result.rows() if getattr(row, "name", "") != "next"]
        return rows_of(rows, sentence(result.heading), flags=flags)
    except UNREADABLE:
        return p(f"{name}.json was written by another version: what it says is not shown in full.", cls="soft")


def of_results(key: str, title: str, step: str, *files: str) -> Callable[[ReportRecords], Section]:
    """A section of the rows of these files, or of the one that is called as it; `step` makes them."""
    def section(study: ReportRecords) -> Section:
        parts = [told(study, name, flags=True) for name in files or (key,) if study[name]]
        return Section(key, title, join(*parts) if parts else empty(study, f"No {(files or (key,))[0]}.", step))

    return section


def _read(study: ReportRecords, name: str) -> Any:
    return READERS[study.kind](study)[name](study[name]) if study[name] else None


Readers = dict[str, Callable[[Data], Any]]


def _of_training(study: ReportRecords) -> Readers:
    from isocost.planner import audit as audits
    from isocost.planner import forecast as forecasts
    from isocost.planner.training.learning_rate import RateRule
    from isocost.steps.training import audit, fit, plans, profile, train

    law = law_of(study)
    return {
        "profile": profile.ProfileResult.of, "rate": RateRule.of, "plan": plans.PlanResult.written,
        "law": lambda _: None if law is None else fit.LawResult(law, study.metric),
        "forecast": lambda d: train.ForecastResult(forecasts.Forecast.of(d), study.metric),
        "audit": lambda d: audit.AuditResult(audits.Audit.of(d)),
    }


def _of_control(study: ReportRecords) -> Readers:
    from isocost.steps.control import fit, plan, profile, train

    return {
        "profile": profile.ControlProfile.of, "pilot": plan.ControlPilotResult.of, "law": fit.ControlLawResult.of,
        "plan": plan.ControlPlanResult.of, "forecast": train.ControlForecastResult.of,
        "audit": train.ControlAuditResult.of,
    }


def _of_strategies(study: ReportRecords) -> Readers:
    from isocost.planner.test_time.outcome import StrategyAudit
    from isocost.planner.test_time.profile import StrategyTable
    from isocost.steps.test_time import plan, profile

    return {
        "profile": lambda d: profile.StrategyProfile(StrategyTable.of(d)),
        "plan": lambda d: plan.StrategyPlanResult.written(d, study["forecast"]),
        "audit": lambda d: plan.StrategyAuditResult(StrategyAudit.of(d)),
    }


READERS: dict[str, Callable[[ReportRecords], Readers]] = {      # by the kind of a page
    **dict.fromkeys(("training", "imported", "comparison"), _of_training), "control": _of_control,
    "test_time": _of_strategies,
}
