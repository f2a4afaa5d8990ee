"""The page of a study of value-based control: learning curves, the law of samples, the plan and its outcome."""

from __future__ import annotations

from collections.abc import Callable

import altair as alt

from isocost.errors import UserError
from isocost.laws.value_fit import ReturnCurve
from isocost.planner.control.curves import arm_of, return_curves
from isocost.report.html import Safe, details, figure, join, p, sentence, table
from isocost.report.records import ReportRecords
from isocost.report.section import Section, control_result, empty, rows_of
from isocost.report.theme import Rows, Spec, data_of, finish, kilo_axis, series_colours, tooltips
from isocost.runs.files import RunFiles

MOST = 60       # points of a curve in the picture


def answer(study: ReportRecords) -> Safe:
    """What the study says, in a sentence."""
    for name in ("audit", "plan", "law", "pilot", "profile"):
        if (found := control_result(study, name)) is not None:
            return p(sentence(found.heading), cls="answer")
    return p("No step has a result yet.", cls="answer")


def _told(key: str, title: str, step: str, *files: str) -> Callable[[ReportRecords], Section]:
    """A section of the rows of these files."""
    def section(study: ReportRecords) -> Section:
        parts = [rows_of([r for r in found.rows() if getattr(r, "name", "") != "next"], sentence(found.heading))
                 for name in files or (key,) if (found := control_result(study, name)) is not None]
        return Section(key, title, join(*parts) if parts else empty(study, f"No {(files or (key,))[0]}.", step))

    return section


measured = _told("profile", "The task", "isocost profile --control TASK")
plan = _told("plan", "The plan", "isocost plan")
outcome = _told("outcome", "Forecast and outcome", "isocost train --plan", "forecast", "audit")


def curves(study: ReportRecords) -> Section:
    """The learning curves of the pilot, or of the logs."""
    found = _curves(study)
    if not found:
        return Section("curves", "Learning curves", empty(study, "No runs.", "isocost pilot"))
    rows = [{"arm": f"sigma {c.arm['sigma']:g}", "run": c.run, "samples": float(s), "return": float(r)}
            for c in found for s, r in list(zip(c.samples, c.returns, strict=True))[:: max(1, len(c.samples) // MOST)]]
    alt_text = "Return over samples of every run, coloured by updates per sample."
    body = figure("curves", _lines(rows, alt_text), alt_text, "Return over samples, a line per run.", rows)
    return Section("curves", "Learning curves", join(body))


def law(study: ReportRecords) -> Section:
    """The law of samples, with its picture."""
    section = _told("law", "Samples to a return", "isocost fit")(study)
    found = control_result(study, "law")
    rows = [{"return": f"{x.wanted:.4g}", "sigma": s, "samples": i.value, "low": i.low, "high": i.high}
            for x in (found.laws if found else ()) for s, i in zip(x.sigmas, x.samples, strict=True)]
    if not rows:
        return section
    alt_text = "Samples to each return over updates per sample, with 90 % intervals."
    picture = figure("samples", _trade(rows, alt_text), alt_text, "Samples to a return over updates per sample, with "
                     "batch and rate as the plan sets them.", rows)
    return Section(section.key, section.title, join(picture, section.body))


def provenance(study: ReportRecords) -> Section:
    """The runs, and the hashes of the study's files."""
    cells = [(r.folder.name, str(r.about.get("purpose") or ""), *(f"{v:g}" for v in arm_of(r.about).values()),
              str(r.about.get("seed")), str(r.end.get("reason") or "runs")) for r in study.runs]
    heads = ("run", "purpose", *(arm_of(study.runs[0].about) if study.runs else ()), "seed", "ended")
    files = table(("file", "sha-256"), list(study.hashes().items()), "Hashes of the study's files")
    runs = details(f"The {len(cells)} runs", table(heads, cells, "Runs"))
    return Section("provenance", "Provenance", join(files, runs))


def _curves(study: ReportRecords) -> list[ReturnCurve]:
    try:
        return return_curves([RunFiles(r.folder) for r in study.runs], ("pilot",))
    except UserError:
        return []


def _lines(rows: Rows, alt_text: str) -> Spec:
    arms = sorted({str(r["arm"]) for r in rows}, key=lambda a: float(a.split()[1]))
    pick = alt.selection_point(fields=["arm"], bind="legend", name="pick")
    color = alt.Color("arm:N", title=None, scale=alt.Scale(domain=arms, range=series_colours(len(arms))))
    line = alt.Chart(data_of(rows)).mark_line(strokeWidth=1.2).encode(
        x=alt.X("samples:Q", title="samples", axis=kilo_axis()),
        y=alt.Y("return:Q", title="return", scale=alt.Scale(zero=False)), color=color, detail=alt.Detail("run:N"),
        opacity=alt.condition(pick, alt.value(0.7), alt.value(0.06)),
        tooltip=tooltips(["run:N", "samples:Q", "return:Q"]))
    return finish(alt.layer(line.add_params(pick)), alt_text, 340, zoom=True)


def _trade(rows: Rows, alt_text: str) -> Spec:
    returns = list(dict.fromkeys(str(r["return"]) for r in rows))
    color = alt.Color("return:N", title="return", scale=alt.Scale(domain=returns, range=series_colours(len(returns))))
    x = alt.X("sigma:Q", title="updates per sample (log scale)", scale=alt.Scale(type="log", base=2, padding=18),
              axis=alt.Axis(values=sorted({r["sigma"] for r in rows}), format="~g"))
    scale = alt.Scale(type="log", zero=False, nice=False, padding=10)
    base = alt.Chart(data_of(rows))
    y = alt.Y("samples:Q", title="samples (log scale)", scale=scale)
    bars = base.mark_rule().encode(x=x, y=alt.Y("low:Q", scale=scale, title=""), y2=alt.Y2("high:Q"), color=color)
    line = base.mark_line(point=True).encode(
        x=x, y=y, color=color, tooltip=tooltips(["return:N", "sigma:Q", "samples:Q", "low:Q", "high:Q"]))
    return finish(alt.layer(bars, line), alt_text, 320)
