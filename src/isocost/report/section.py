"""A section of the page."""

from __future__ import annotations

from dataclasses import dataclass

from isocost.report.html import Safe, tag
from isocost.report.records import ReportRecords

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
