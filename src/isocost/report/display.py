"""One result in a notebook: the charts of the report's sections on it, as SVG pictures, and its rows.

A result names its sections (`isocost.screen.display.Result`). They are drawn from the files and runs of the study's
folder, with the result's own record in place of the file; without a folder, from that record alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import altair as alt

from isocost.errors import UserError
from isocost.report import charts, page, theme
from isocost.report.html import Safe, join, sentence, tag
from isocost.report.records import ReportRecords, load
from isocost.report.section import Section, rows_of
from isocost.report.sections import fit, headline, outcome, problems, reach
from isocost.screen.display import Result

WIDTH = 640     # pixels of a still picture
_FIGURE = re.compile(
    r'<div [^>]*data-spec="spec-([^"]+)"[^>]*></div><script type="application/json" id="spec-\1">(.*?)</script>', re.S
)

_ID = re.compile(r'(?<=\bid=")[^"]+|(?<=url\(#)[^)]+|(?<=href="#)[^"]+')      # in SVG, and what refers to it
_INTERACTION = re.compile(r" (?:Click|Hover)\b[^.<]*\.(?=</span>)")      # at the end of a caption


def html(result: Result) -> Safe:
    """The charts of the sections on a result, as HTML without scripts, and its rows; of one without rows, the sections.
    """
    study = _study(result) if result.sections else ReportRecords(Path("."), {}, ())
    made = [page.as_measured(study, _drawn(key, study)) for key in result.sections]
    drawn = [Safe(_INTERACTION.sub("", _FIGURE.sub(_still, part))) for part in made]
    rows = result.rows()
    if rows:
        drawn = [Safe(figure) for part in drawn for figure in re.findall(r"<figure.*?</figure>", part, re.S)]
    told = [tag("h3", sentence(result.heading))] if result.heading else []
    return tag("div", *told, *drawn, rows_of(rows, sentence(result.heading)), cls="isocost")


def chart(result: Result) -> Any:
    """The first chart of a result's sections. Raises UserError where there is none."""
    study = _study(result)
    for key in result.sections:
        for _, spec in _figures(_drawn(key, study)):
            return _altair({k: v for k, v in spec.items() if k not in ("autosize", "$schema")} | {"width": WIDTH})
    raise UserError(f"the report has no chart of a {type(result).__name__}")


def _altair(spec: charts.Spec) -> Any:
    """A specification as an Altair chart. Rows are added last, because Altair's check of each row takes seconds."""
    bare = theme.solid(_without_rows(spec))
    made = (alt.LayerChart if "layer" in spec else alt.Chart).from_dict(bare)
    _add_rows(made, spec)
    return made


def _without_rows(spec: charts.Spec) -> charts.Spec:
    data: charts.Spec = {"data": {"values": []}} if "data" in spec else {}
    layers: charts.Spec = {"layer": [_without_rows(x) for x in spec["layer"]]} if "layer" in spec else {}
    return {**spec, **data, **layers}


def _add_rows(made: Any, spec: charts.Spec) -> None:
    if "data" in spec:
        made.data = alt.Data(values=spec["data"]["values"])
    for part, own in zip(made.layer if "layer" in spec else (), spec.get("layer", ()), strict=True):
        _add_rows(part, own)


def _study(result: Result) -> ReportRecords:
    """The study that a result is of, its own record as the result holds it."""
    folder = result.place
    recorded = load(folder) if folder is not None and folder.is_dir() else ReportRecords(Path("."), {}, ())
    own = {result.record: result.to_dict()} if result.record else {}
    return ReportRecords(recorded.folder, {**recorded.files, **own}, recorded.runs, recorded.broken)


def _drawn(key: str, study: ReportRecords) -> Safe:
    section = SECTIONS[key](study)
    return section if isinstance(section, Safe) else join(tag("h3", section.title), section.body)


def _figures(body: str) -> Iterator[tuple[str, charts.Spec]]:
    for found in _FIGURE.finditer(body):
        yield found[1], json.loads(found[2])


def _still(found: re.Match[str]) -> str:
    """A figure as SVG. A notebook is one document, so ids that other plots have too get a prefix of this one's."""
    drawn = theme.svg(json.loads(found[2]), WIDTH)
    own = hashlib.sha256(drawn.encode()).hexdigest()[:8]
    return _ID.sub(rf"plot-{own}-\g<0>", drawn)


SECTIONS: dict[str, Callable[[ReportRecords], Section | Safe]] = {
    "answer": headline.answer,
    "profile": problems.profile,
    "rate": problems.learning_rate,
    "curves": reach.curves,
    "fit": fit.fit,
    "frontier": reach.frontier,
    "outcome": outcome.outcome,
    "flags": headline.flags,
}
