"""The page: sections in a fixed order, in one self-contained file."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from isocost.disk.jsonfile import write_text
from isocost.laws.curves import PASS
from isocost.report import theme
from isocost.report.html import Safe, esc, join, json_in_html, p, tag
from isocost.report.records import ReportRecords, as_dict, load
from isocost.report.section import Section
from isocost.report.sections import (
    accounts,
    contest,
    control,
    evidence,
    fit,
    headline,
    outcome,
    parted,
    problems,
    reach,
    recipe,
    test_time,
)
from isocost.report.sections import turns as rollouts
from isocost.runs.measure import UNNAMED
from isocost.runs.source import RunLog

HERE = Path(__file__).parent
TRAINING = (
    problems.profile,
    problems.learning_rate,
    reach.curves,
    parted.parted,
    fit.fit,
    reach.frontier,
    outcome.outcome,
    accounts.spent,
    accounts.time,
    recipe.recipe,
    rollouts.rollouts,
    headline.flags,
    evidence.provenance,
)
COMPARISON = (
    contest.answers,
    contest.curves,
    parted.parted,
    accounts.spent,
    accounts.time,
    recipe.recipe,
    rollouts.rollouts,
    headline.flags,
    evidence.provenance,
)


class ReportPage(NamedTuple):
    """What stands on top of a page, as a function of its records, and the functions that make its sections."""

    answer: Callable[[ReportRecords], Safe]
    sections: Sequence[Callable[[ReportRecords], Section | None]]     # None: the page has no such section


PAGES: Mapping[str, ReportPage] = {      # by `ReportRecords.kind`: a new kind of study is a row
    "training": ReportPage(headline.answer, TRAINING),
    "imported": ReportPage(headline.answer, TRAINING),
    "comparison": ReportPage(headline.answer, COMPARISON),
    "test_time": ReportPage(test_time.answer, (test_time.strategies, test_time.outcome, evidence.provenance)),
    "control": ReportPage(control.answer, (
        control.measured, control.curves, control.law, control.plan, control.outcome, control.provenance)),
}


def write(study_dir: Path, out: Path | None = None) -> Path:
    """Write the report of a study, of a directory of runs, or of one run, and return its path.

    The same records give the same bytes. A section whose file is missing names the step that writes it.

    Args:
        study_dir: the study's directory; only read, unless `out` is left out.
        out: the file to write; `study_dir/report.html` if left out.

    Raises UserError if there is no such directory, or it holds neither a study nor a run.
    """
    study_dir = Path(study_dir)
    text = render(load(study_dir))
    out = study_dir / "report.html" if out is None else Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_text(out, text, several=True)
    return out


def render(study: ReportRecords) -> str:
    """The whole page as text."""
    sections = [s for make in PAGES[study.kind].sections if (s := make(study)) is not None]
    drawing = (HERE / "draw.js").read_text(encoding="utf-8")
    bundle = theme.bundle()
    template = Template((HERE / "template.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=esc(f"{study.name}: isocost report"),
        light=theme.css_variables(False),
        dark=theme.css_variables(True),
        script_hashes=f"{_source_hash(bundle)} {_source_hash(drawing)}",
        bundle=bundle,
        drawing=drawing,
        body=_body(study, sections),
    )


def _body(study: ReportRecords, sections: list[Section]) -> Safe:
    menu = tag(
        "nav", tag("ol", *(tag("li", tag("a", s.title, href=f"#{s.key}")) for s in sections)), aria_label="Sections"
    )
    config = Safe(f'<script type="application/json" id="plot-config">{json_in_html(theme.CONFIG)}</script>')
    parts = [_section(study, s) for s in sections]
    note = "This page is self-contained and makes no network requests. Intervals are 90 % unless stated otherwise."
    return join(
        as_measured(study, tag("header", _study_line(study), PAGES[study.kind].answer(study))),
        as_measured(study, menu),
        tag("main", *parts),
        config,
        tag("footer", p(note)),
    )


def _section(study: ReportRecords, section: Section) -> Safe:
    """A section of the page. Texts of rollouts are shown as they are."""
    whole = tag("section", tag("h2", section.title), section.body, id=section.key)
    return whole if section.key == "rollouts" else as_measured(study, whole)


def as_measured(study: ReportRecords, body: Safe) -> Safe:
    """The page with the name of the measured reward: another metric, or training reward of imported logs."""
    kinds: set[str | None] = {log.kind if (log := RunLog.of(r.about)) else None for r in study.runs}
    kinds = kinds or {study["comparison"].get("kind")}  # of folders, whose runs lie elsewhere
    words = ("training", "reward") if kinds == {"training"} else ("held-out", "reward")
    if study.metric != PASS:
        words = (words[0], study.metric)
    said = esc(" ".join(words))
    return Safe(body.replace("held-out reward", said).replace("Held-out reward", said[0].upper() + said[1:]))


def _study_line(study: ReportRecords) -> Safe:
    setting = study["study"].get("setting") or {}
    first = study.runs[0].about if study.runs else {}
    model = setting.get("model") or (first.get("model") or {}).get("name")
    data = setting.get("data") or (first.get("problems") or {}).get("spec")
    facts = [
        ("model", "" if model == UNNAMED else model),
        ("problems", "" if data == UNNAMED else data),
        ("trained by", as_dict(study["study"].get("trainer")).get("command")),
        ("method", headline.method(study)),
        accounts.asked_for(study),
        ("seed", study["study"].get("seed")),
    ]
    return tag(
        "p", tag("b", study.name), *(tag("span", f"{k} {v}") for k, v in facts if v not in (None, "")), cls="study"
    )


def _source_hash(script: str) -> str:
    """A Content-Security-Policy source: only scripts with exactly these bytes may run, so no text of a sample can."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"'sha256-{digest}'"
