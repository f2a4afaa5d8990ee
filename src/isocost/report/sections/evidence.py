"""The files and code that the page was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isocost.report.html import Safe, brief, details, join, rate, share, table, tag
from isocost.report.records import ReportRecords, Run
from isocost.report.section import Section
from isocost.report.sections.accounts import asked_for
from isocost.screen.words import counted

# provenance -------------------------------------------------------------------------------------------------


def provenance(study: ReportRecords) -> Section:
    """Hashes, machine, versions, budget and seed, to check or repeat the study."""
    about = study["study"]
    run = next(iter(study.of("train") or study.runs), None)
    first = run.about if run else {}
    facts: list[tuple[str, Any]] = [
        ("model", _worded(about.get("model") or first.get("model"))),
        ("problems", _worded(about.get("data") or first.get("problems"))),
        ("verifier", _worded(about.get("verifier"))),
        ("method", _worded(about.get("method") or first.get("method"))),
        asked_for(study),
        ("seed", _worded(about.get("seed", first.get("seed")))),
        ("code", _worded(first.get("code") or about.get("code"))),
        ("machine", _worded(first.get("machine") or about.get("machine"))),
        ("seal", _worded(study["forecast"].get("seal") or study["forecast"].get("hash") or first.get("seal"))),
    ]
    rows = [(k, v) for k, v in facts if v not in ("", "–")]
    hashes = [(name, tag("code", digest)) for name, digest in study.hashes().items()]
    parts = [table(["", ""], rows, "Model, problems, machine and code")]
    if hashes:
        parts.append(details("SHA-256 of the study's files", table(["file", "sha-256"], hashes, "Hashes")))
    if study.runs:
        parts.append(details(f"The {counted(len(study.runs), 'run')}", _runs_table(study.runs)))
    return Section("provenance", "Provenance", join(*parts))


def _worded(value: Any) -> str:
    """Small plain data as a line of text."""
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_worded(v)}" for k, v in value.items() if v not in (None, "", [], {})) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(_worded(v) for v in value if v not in (None, "", [], {})) or "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) and value >= 100_000 else str(value)


def _runs_table(runs: Iterable[Run]) -> Safe:
    head = ["run", "purpose", "n", "B", "learning rate", "seed", "rollouts", "held-out reward", "ended"]
    body = []
    for r in runs:
        last = r.evaluations[-1] if r.evaluations else {}
        body.append([r.name, r.purpose, _worded(r.arm.get("n")), _worded(r.arm.get("B")), rate(r.lr), _worded(r.seed),
                     brief(r.metered), share(last.get("eval/audit", last.get("eval/select"))),
                     r.end.get("reason") or "not finished"])
    return table(head, body, "Runs")
