"""A section of the page."""

from __future__ import annotations

from dataclasses import dataclass

from isocost.report.html import Safe, tag
from isocost.report.records import Study

TRAINS = {  # steps that sample or train, and why an imported study has no such step
    "isocost profile": "their logs do not contain this",
    "isocost pilot": "their logs do not contain this",
    "isocost train --plan": "the next run is for your own trainer, and its forecast is the plan's",
}


@dataclass(frozen=True)
class Section:
    """One section of the page; an empty one names the step that fills it."""

    key: str
    title: str
    body: Safe


def empty(study: Study, what: str, step: str) -> Safe:
    """The text of an empty section: what is missing, and the step that makes it, if isocost can run that step."""
    if study.imported and step in TRAINS:
        return tag("p", f"{what} The runs were imported: {TRAINS[step]}.", cls="empty")
    return tag("p", f"{what} To fill this section, run ", tag("code", step), ".", cls="empty")
