"""Samples of completions, and the files and code that the page was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isocost.report.accounts import SHOWN_ATTEMPTS, SHOWN_PROBLEMS, asked_for
from isocost.report.html import (
    Safe,
    brief,
    count,
    details,
    join,
    p,
    rate,
    share,
    table,
    tag,
)
from isocost.report.records import Data, Run, Study, as_dict, as_list, number
from isocost.report.section import Section, empty
from isocost.words import counted

# samples ----------------------------------------------------------------------------------------------------


def samples(study: Study) -> Section:
    """Completions at the first and at the last recorded step, escaped and unedited."""
    source, lines = _samples_of(study)
    if not lines:
        return Section("samples", "Samples", empty(study, "No sample has been recorded yet.", "isocost profile"))
    steps = sorted({number(x.get("step")) or 0 for x in lines})
    ends = list(dict.fromkeys([steps[0], steps[-1]]))
    lead = f"From {source}, at its first and last recorded step; the first attempts, unedited."
    parts = []
    for step in ends:
        chosen = [x for x in lines if (number(x.get("step")) or 0) == step][:SHOWN_PROBLEMS]
        parts.append(join(tag("h3", f"Step {count(step)}"), *map(_sample, chosen)))
    return Section("samples", "Samples", join(p(lead, cls="lead"), *parts))


def _samples_of(study: Study) -> tuple[str, list[Data]]:
    """(their source, samples): a trained run's, else any run's, else the profile's."""
    for run in (*study.of("train"), *study.of("run"), *study.of("pilot"), *study.runs):
        if lines := run.samples():
            return f"run {run.name}", lines
    return "the profile", [as_dict(x) for x in as_list(study["profile"].get("examples"))]


def _sample(line: Data) -> Safe:
    prompt = line.get("prompt")
    if isinstance(prompt, list):
        prompt = "\n".join(f"{as_dict(m).get('role', '')}: {as_dict(m).get('content', '')}" for m in prompt)
    attempts = as_list(line.get("attempts"))
    rows = [_line("prompt", str(line.get("id") or ""), prompt)]
    for attempt in map(as_dict, attempts[:SHOWN_ATTEMPTS]):
        reward = number(attempt.get("reward"))
        rows.append(
            _line(
                "verifier failed" if reward is None else f"reward {reward:g}",
                str(attempt.get("stop") or ""),
                attempt.get("text"),
            )
        )
    more = len(attempts) - SHOWN_ATTEMPTS
    return tag("div", *rows, p(f"{more} more attempts", cls="soft") if more > 0 else "", cls="sample")


def _line(head: str, note: str, text: Any) -> Safe:
    return tag(
        "div",
        tag("span", tag("b", head), Safe("<br>"), note),
        tag("pre", "" if text is None else text, dir="auto"),
        cls="attempt",
    )


# provenance -------------------------------------------------------------------------------------------------


def provenance(study: Study) -> Section:
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
    def last(run: Run) -> Any:
        return (
            run.evaluations[-1].get("eval/audit", run.evaluations[-1].get("eval/select")) if run.evaluations else None
        )

    body = [
        [
            r.name,
            r.purpose,
            _worded(r.arm.get("n")),
            _worded(r.arm.get("B")),
            rate(r.lr),
            _worded(r.seed),
            brief(r.metered),
            share(last(r)),
            r.end.get("reason") or "not finished",
        ]
        for r in runs
    ]
    return table(
        ["run", "purpose", "n", "B", "learning rate", "seed", "rollouts", "held-out reward", "ended"], body, "Runs"
    )
