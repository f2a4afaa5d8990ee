"""The page of a study of value-based control: learning curves, the law of samples, the plan and its outcome."""

from __future__ import annotations

from isocost.errors import UserError
from isocost.laws.value_fit import OFFLINE, SIGMA, ReturnCurve
from isocost.planner.control.curves import arm_of, return_curves
from isocost.planner.control.prescribe import WORDS
from isocost.report import charts
from isocost.report.html import Safe, details, figure, join, p, sentence, table
from isocost.report.records import ReportRecords
from isocost.report.section import Section, empty, of_results, result_of
from isocost.report.theme import N_SLOTS
from isocost.runs.files import RunFiles
from isocost.screen.display import Row

MOST = 60       # points of a curve in the picture


def answer(study: ReportRecords) -> Safe:
    """What the study says, in a sentence, and what it prescribes and measured."""
    found = {name: result_of(study, name) for name in ("audit", "plan", "law", "pilot", "profile")}
    last = next((x for x in found.values() if x is not None), None)
    if last is None:
        return p("No step has a result yet.", cls="answer")
    said = [[row for row in x.rows() if isinstance(row, Row) and row.text and row.kind != "flag"]
            for x in (found["plan"], found["audit"]) if x is not None]
    return join(p(sentence(last.heading), cls="answer"),
                *(p(sentence(": ".join(filter(None, rows[0][:2])))) for rows in said if rows))


measured = of_results("profile", "The task", "isocost profile --control TASK")
plan = of_results("plan", "The plan", "isocost plan")
outcome = of_results("outcome", "Forecast and outcome", "isocost train --plan", "forecast", "audit")


def curves(study: ReportRecords) -> Section:
    """The learning curves of the pilot, or of the logs."""
    found = _curves(study)
    if not found:
        return Section("curves", "Learning curves", empty(study, "No runs.", "isocost pilot"))
    over = OFFLINE if OFFLINE in found[0].arm else SIGMA
    rows = [{"arm": f"{over} {c.arm[over]:g}", "run": c.run, "samples": float(s), "return": float(r)}
            for c in found for s, r in list(zip(c.samples, c.returns, strict=True))[:: max(1, len(c.samples) // MOST)]]
    alt_text = f"Return over samples of every run, coloured by {WORDS[over][1]}."
    body = figure("curves", charts.returns(rows, alt_text), alt_text, "Return over samples, a line per run.", rows)
    return Section("curves", "Learning curves", join(body))


def law(study: ReportRecords) -> Section:
    """The law of samples, with its picture."""
    section = of_results("law", "Samples to a return", "isocost fit")(study)
    found = result_of(study, "law")
    laws = found.laws if found else ()
    drawn = laws[::-1][:: -(-len(laws) // N_SLOTS) or 1][::-1]      # one colour each, the highest return among them
    rows = [{"return": f"{x.wanted:.4g}", "sigma": s, "samples": i.value, "low": i.low, "high": i.high}
            for x in drawn for s, i in zip(x.sigmas, x.samples, strict=True)]
    if not rows:
        return section
    name = WORDS[next(iter(laws)).over][1]
    alt_text = f"Samples to each return over {name}, with 90 % intervals."
    caption = f"Samples to a return over {name}, with the plan's batch and rate; the table has all returns."
    picture = figure("samples", charts.samples_to(rows, alt_text, name), alt_text, caption, rows)
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
