"""The sealed forecast and the naive forecasts compared with the outcome, and the comparator's outcome."""

from __future__ import annotations

from typing import Any

from isocost.report import charts
from isocost.report.html import Safe, count, figure, interval, join, names, p, sentence, tag
from isocost.report.records import Data, ReportRecords, as_dict, as_list, number
from isocost.report.section import Section, empty, told
from isocost.screen.words import counted

SPLIT = "eval/audit"  # the test split; `eval/select` is the validation split
SHORT = 12      # hexadecimal digits of a hash that are shown


def prescribed_arm(study: ReportRecords) -> Data:
    """The plan's first arm; empty without a plan."""
    arms = as_list(study["plan"].get("arms"))
    return as_dict(study["plan"].get("arm")) or as_dict(arms[0] if arms else None)


def compared_arms(study: ReportRecords) -> list[Data]:
    """The arms that the prescription is compared with: the comparator, then the best n at the pilot's end if it is
    another."""
    return [a for a in map(as_dict, as_list(study["plan"].get("arms"))) if a.get("role") in ("comparator", "leader")]


def prescribed_n(study: ReportRecords) -> int | None:
    n = number(prescribed_arm(study).get("n"))
    return None if n is None else int(n)


def no_law(study: ReportRecords) -> Safe:
    """The text in place of a law: that none will be fitted, or the step that fits one."""
    if study["plan"].get("direct"):
        return p("No law: the plan fixed n, so no other n was tried.", cls="empty")
    return empty(study, "No law has been fitted.", "isocost fit")


def equal_set(study: ReportRecords) -> list[int]:
    return [int(n) for n in as_list(study["plan"].get("equal")) if number(n)]


def verdict_of(study: ReportRecords) -> str:
    """The audit's verdict; "cannot tell" if a sealed file was changed."""
    verdict = str(study["audit"].get("verdict") or "").replace("_", " ")
    return "cannot tell" if verdict and study.changed else verdict


def reason_of(study: ReportRecords) -> str:
    """The reason for the verdict, as a sentence."""
    if study.changed:
        return sentence(f"changed after the seal: {', '.join(study.changed)}")
    return sentence(study["audit"].get("reason") or "")


def prescribed_C(study: ReportRecords) -> float | None:
    return number(prescribed_arm(study).get("C"))


def reach_of(study: ReportRecords) -> list[Data]:
    """The extrapolated range as at most one row: from C to C2 rollouts, and a label with the ratio."""
    plan = study["plan"]
    end, top, ratio = number(plan.get("pilot_C")), prescribed_C(study), number(plan.get("extrapolation"))
    if not end or not top or top <= end:
        return []
    text = f"extrapolated: up to\n{ratio or top / end:.1f}x the pilot's\nrollouts"      # in short lines, for a phone
    asked, seen = number(prescribed_arm(study).get("epochs")), number(plan.get("pilot_epochs"))
    return [{"C": end, "C2": top, "text": text + (f", {asked / seen:.1f}x its\nepochs" if asked and seen else "")}]


def outcome(study: ReportRecords) -> Section:
    """The sealed forecast, the naive forecasts, the outcome, and the comparator."""
    title, data = "Forecast against outcome", outcome_of(study)
    if not data:
        return Section("outcome", title, empty(study, "There is no forecast yet.", "isocost plan"))
    return Section("outcome", title, join(_verdict_words(study, data), _forest(study, data)))


def outcome_of(study: ReportRecords) -> Data:
    """Forecast, naive forecasts, outcome and difference, from the plan, forecast, audit and runs that exist.

    Keys: C, n, forecast, naive, outcome, runs, values (by run), gain, other_n and difference (of the comparator), and
    others, one per compared arm (`_compared`). Intervals are {value, low, high, ...}; unknown values are None or empty.
    Empty without a forecast and an outcome.
    """
    arm, sealed, audited = prescribed_arm(study), study["forecast"], study["audit"]
    values, others = _finals(study, arm), [_compared(study, a) for a in compared_arms(study)]
    data: Data = {
        "C": number(sealed.get("C")) or number(arm.get("C")),
        "n": arm.get("n"),
        "forecast": _as_interval(sealed) or _as_interval(arm.get("prediction")),
        "naive": as_list(sealed.get("naive")),
        "values": values,
        "runs": len(values),
        "gain": _as_interval(audited.get("gain")),
        "outcome": _as_interval(audited.get("outcome")) or _as_interval({"value": _mean(values.values())}),
        "other_n": others[0]["n"] if others else None,
        "difference": _as_interval(audited.get("difference")),
        "others": others,
    }
    return data if any(data[k] for k in ("forecast", "outcome")) else {}


def _compared(study: ReportRecords, arm: Data) -> Data:
    """Of one compared arm: n, C, forecast, outcome, values (by run), the prescription's difference from it, the pairs
    behind that, and which is better."""
    audited = study["audit"] if arm.get("role") == "comparator" else as_dict(study["audit"].get("leader"))
    values = _finals(study, arm)
    return {
        "n": arm.get("n"),
        "C": number(arm.get("C")),
        "forecast": _as_interval(arm.get("prediction")),
        "values": values,
        "outcome": _as_interval(audited.get("comparison")) or _as_interval({"value": _mean(values.values())}),
        "difference": _as_interval(audited.get("difference")),
        "pairs": as_list(as_dict(audited.get("difference")).get("values")),
        "better": str(audited.get("better") or ""),
    }


def _as_interval(x: Any) -> Data:
    """An interval or a mean with its spread as {value, low, high, level, kind}; empty if it has no value."""
    data = as_dict(x)
    value = number(data.get("value", data.get("mean")))
    if value is None:
        return {}
    return {"value": value, "low": number(data.get("low")), "high": number(data.get("high")),
            "level": number(data.get("level")) or 0.9, "kind": data.get("kind")}


def _mean(values: Any) -> float | None:
    known = list(values)
    return sum(known) / len(known) if known else None


def _finals(study: ReportRecords, arm: Data) -> dict[str, float]:
    """Run name -> last held-out reward on the test split, for the trained runs of an arm that ended."""
    if not arm:
        return {}
    runs = [r for r in study.of("train") if r.finished and r.size("n") == arm.get("n") and r.evaluations]
    found = {r.name: number(r.evaluations[-1].get(SPLIT)) for r in runs}
    return {k: v for k, v in found.items() if v is not None}


def _verdict_words(study: ReportRecords, data: Data) -> Safe:
    sealed, audited = study["forecast"], study["audit"]
    if data["forecast"]:
        text = f"Forecast {interval(data['forecast'])} for the mean of the new runs at {count(data['C'])} rollouts; "
    else:
        text = "There is no forecast; "
    text += f"outcome {interval(data['outcome'])}." if data["outcome"] else "its runs have not ended."
    verdict = tag("b", f"Verdict: {verdict_of(study)}. ") if audited else ""
    changed = reason_of(study) if audited and study.changed else ""
    unsealed = ""
    if data["forecast"] and not sealed:
        own = study.imported and not study.driven
        unsealed = p("This is the plan's forecast for a run with your own trainer. It is not sealed." if own else
                     "This is the plan's forecast; `isocost train --plan` seals it before training.", cls="soft")
    judged = p(verdict, changed) if audited else ""
    return join(p(text, cls="lead"), _sealed(study), told(study, "forecast"), judged, told(study, "audit"), unsealed)


def _sealed(study: ReportRecords) -> Safe:
    """When the forecast was sealed, and which runs carry its seal: each records the seal when it starts."""
    seal, trained = study["forecast"].get("seal"), study.of("train")
    if not seal:
        return join()
    before = counted(sum(r.purpose not in ("train", "run") for r in study.runs), "run")
    lack = [r.name for r in trained if r.about.get("seal") != seal]
    carried = f"without the seal: {names(lack)}" if lack else f"all of {counted(len(trained), 'trained run')} have it"
    return p("Seal ", tag("code", str(seal)[:SHORT], title=str(seal)), ", a hash of the forecast and of all that it is "
             f"made from, after {before}; {carried if trained else 'no run was trained under it yet'}.")


def trained_lines(study: ReportRecords) -> list[Data]:
    """Every evaluation of every trained run, those of the prescribed n first: what, n, run, C, reward."""
    rows = []
    roles = {prescribed_n(study): "prescribed"} | {
        a.get("n"): "best at the pilot's end" if a["role"] == "leader" else "comparator" for a in compared_arms(study)}
    for run in sorted(study.of("train"), key=lambda r: (r.size("n") != prescribed_n(study), r.size("n") or 0, r.name)):
        what = ", ".join(filter(None, (f"n = {run.size('n')}", roles.get(run.size("n")))))
        rows += [
            {"what": what, "n": run.size("n"), "run": run.name, "C": x["rollouts"], "reward": x[SPLIT]}
            for x in run.evaluations
            if number(x.get("rollouts")) and number(x.get(SPLIT)) is not None
        ]
    return rows


def _forest(study: ReportRecords, data: Data) -> Safe:
    """Forecast, naive forecasts and outcome of the prescribed arm, then of those it is compared with, one per row."""
    own = f"n = {data['n']}"
    kind = "sealed forecast" if study["forecast"] else "forecast"
    rows = [_line(f"{kind}, {own}", data["forecast"], "interval")]
    rows += [_line(f"naive: {x.get('name')}", x, "guess") for x in map(as_dict, data["naive"])]
    rows += _outcome_lines(f"outcome, {own}", data["outcome"], data["values"])
    for other in data["others"]:
        rows.append(_line(f"forecast, n = {other['n']}", other["forecast"], "interval"))
        rows += _outcome_lines(f"outcome, n = {other['n']}", other["outcome"], other["values"])
    rows = [r for r in rows if r["value"] is not None]
    said = [r for r in rows if r["role"] != "run"]
    alt_text = "Forecasts and outcomes: " + "; ".join(f"{r['label']} {interval(r)}" for r in said)
    caption = (
        "Bars are 90 % intervals: prediction intervals for forecasts, confidence intervals for outcomes. Hollow points"
        " are naive forecasts, ticks are single runs."
    )
    plot = figure("forecast", charts.forest(rows, "held-out reward", alt_text), alt_text, caption, rows)
    return join(tag("h3", "Forecasts and outcomes"), plot)


def _outcome_lines(label: str, mean: Data, values: Data) -> list[Data]:
    runs = [{"label": label, "value": v, "low": None, "high": None, "role": "run"} for v in values.values()]
    return [_line(label, mean, "outcome"), *runs]


def _line(label: str, x: Any, role: str) -> Data:
    return {"label": label, **{k: number(as_dict(x).get(k)) for k in ("value", "low", "high")}, "role": role}
