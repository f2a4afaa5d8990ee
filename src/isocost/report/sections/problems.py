"""Pass rates of the problems for this model before training, and the learning rate."""

from __future__ import annotations

from typing import Any

from isocost.report import charts
from isocost.report.html import Safe, brief, count, figure, join, p, rate, sentence, share, table, tag
from isocost.report.records import Data, ReportRecords, as_dict, as_list, number
from isocost.report.section import Section, empty, told


def profile(study: ReportRecords) -> Section:
    """pass@1 over problems, lengths, and which methods' preconditions hold."""
    data, title = study["profile"], "Problems"
    if not data:
        return Section("profile", title, empty(study, "Pass rates have not been measured.", "isocost profile"))
    samples, counts = int(data.get("samples") or 16), as_list(data.get("histogram"))
    graded = bool(data.get("graded"))
    alike = (0, samples) if not graded else ()
    rows: list[Data] = [{"right": k, "samples": samples, "pass1": k / samples, "problems": c,
                         "kind": "all or none right" if k in alike else "some right"} for k, c in enumerate(counts)]
    by = f"mean reward of {samples} samples, in {samples}ths" if graded else f"right answers out of {samples}"
    alt_text = f"Histogram of problems by {by}: " + ", ".join(f"{k}: {c}" for k, c in enumerate(counts))
    caption = (
        f"Problems by the number of right answers in {samples} samples. Pale bars: all {samples} samples have the same"
        " reward."
    )
    if graded:
        caption = f"Problems by the mean reward of their {samples} samples, each in the bar of the nearest {samples}th."
    spec = charts.histogram(rows, alt_text, graded=graded)
    plot = figure("pass-rates", spec, alt_text, caption, rows) if rows else ""
    return Section("profile", title, join(
        told(study, "profile"), _lengths(data), plot, _bands(data), _methods(data)))


def _bands(data: Data) -> Safe:
    body = [
        [b.get("band"), count(b.get("problems")), share(b.get("assigned")), share(b.get("reported"))]
        for b in map(as_dict, as_list(data.get("bands")))
    ]
    if not body:
        return Safe("")
    note = "Problems are sorted into bands by one half of their samples. The pass rate in the other half is unbiased."
    head = ["band", "problems", "pass rate, sorting half", "pass rate, other half"]
    return join(tag("h3", "Difficulty"), p(note), table(head, body, "Difficulty bands", "quiet"))


def _lengths(data: Data) -> Safe:
    """What the profile's row of answers leaves out."""
    lengths, speed = as_dict(data.get("lengths")), as_dict(data.get("rate"))
    if not lengths:
        return Safe("")
    most = ", ".join(f"{what} {brief(lengths.get(k))}" for k, what in (("p50", "median"), ("p99", "99 % at most"),
                                                                     ("max", "longest")))
    fast = f"; {brief(speed['tokens_per_second'])} per second" if number(speed.get("tokens_per_second")) else ""
    return p(f"Tokens of an answer: {most}{fast}.")


def _methods(data: Data) -> Safe:
    """One row for all methods with the same result: most inherit their parent's preconditions."""
    alike: dict[tuple[Any, Any], list[str]] = {}
    for m in map(as_dict, as_list(data.get("methods"))):
        alike.setdefault((m.get("state"), m.get("why")), []).append(str(m.get("name")))
    if not alike:
        return Safe("")
    body = [[state, why, ", ".join(names)] for (state, why), names in alike.items()]
    found = table(["precondition", "why", "methods"], body, "Methods", "quiet")
    return join(tag("h3", "Preconditions of the methods"), found)


def learning_rate(study: ReportRecords) -> Section:
    """The probe: final reward against learning rate, by batch size; the fitted rule; whether n* depends on it."""
    data, title = study["rate"], "Learning rate"
    rows = _probe_rows(study)
    if not data and not rows:
        return Section("rate", title, empty(study, "The learning rate has not been measured.", "isocost pilot"))
    lead = told(study, "rate") or p("The rule is not fitted yet.")
    plot: Any = ""
    if rows:
        base = [r["base"] for r in rows if r["base"] is not None]
        alt_text = "Held-out reward after each probe run: " + "; ".join(
            f"rate {rate(r['lr'])} at {r['nB']} rollouts per update gives {share(r['reward'])}" for r in rows
        )
        caption = (
            "Each point is one probe run; nB are the rollouts per update. A cross is a run that fell below the base:"
            " its rate is rejected, and no higher rate is selected."
        )
        spec = charts.rates(rows, sum(base) / len(base) if base else None, alt_text)
        plot = figure("learning-rate", spec, alt_text, caption, rows)
    return Section("rate", title, join(lead, plot, _shift(study)))


def _probe_rows(study: ReportRecords) -> list[Data]:
    rejected = {as_dict(t).get("run") for t in as_list(study["rate"].get("refused"))}
    rows = []
    for run in study.of("probe"):
        if not run.evaluations or not run.lr or not (size := run.size("n")):
            continue
        first, last = run.evaluations[0], run.evaluations[-1]
        rows.append({"run": run.name, "lr": run.lr, "nB": size * int(run.arm.get("B") or 0),
                     "reward": last.get("eval/select"), "base": number(first.get("eval/select")),
                     "probe": "rejected" if run.name in rejected or run.diverged else "kept"})
    return sorted(rows, key=lambda r: (r["nB"], r["lr"]))


def _shift(study: ReportRecords) -> Safe:
    found = study["shift"]
    if not found:
        return Safe("")
    text = str(found.get("text", ""))
    title, _, data = text.partition(": ")
    return tag("div", tag("b", title), p(sentence(data)), cls="flag") if found.get("moved") else p(sentence(text))
