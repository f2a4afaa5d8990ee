"""A section of the page."""

from __future__ import annotations

from dataclasses import dataclass

from isocost.report.html import (
    Safe,
    tag,
)
from isocost.report.records import Study

TRAINS = {  # steps that sample or train, and why there will be none where that was another trainer's work
    "isocost profile": "their logs do not say",
    "isocost pilot": "their logs do not say",
    "isocost train --plan": "the one to come is of a trainer of yours, and its forecast is the plan's",
}


@dataclass(frozen=True)
class Section:
    """One part of the page; without a body it says which step would fill it."""

    key: str
    title: str
    body: Safe


def empty(study: Study, what: str, step: str) -> Safe:
    """What stands where nothing is yet: what is missing, and the step that fills it, if isocost is to take it."""
    if study.imported and step in TRAINS:
        return tag("p", f"{what} The runs were imported: {TRAINS[step]}.", cls="empty")
    return tag("p", f"{what} Filled by ", tag("code", step), ".", cls="empty")
