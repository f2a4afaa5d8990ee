"""How the jobs of a step are executed."""

from __future__ import annotations

from dataclasses import dataclass

from isocost.runs.launch.site import HERE, Site
from isocost.steps.events import SILENT, Observer


@dataclass(frozen=True)
class Execution:
    """`workers` jobs side by side, where `site` says, reported to `observer`; results do not depend on it. Without a
    number of workers there are as many as the cores have room for, or as the site fits."""

    workers: int | None = None
    site: Site = HERE
    observer: Observer = SILENT
