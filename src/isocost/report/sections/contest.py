"""A comparison of arms at equal cost: which is better, with its confidence intervals, and the curves of all arms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from isocost.compare import results
from isocost.compare.judge import Comparison
from isocost.report import charts
from isocost.report.html import Safe, brief, figure, interval, join, names, p, share
from isocost.report.records import Data, ReportRecords, Run, as_dict, as_list, number, read_run
from isocost.report.section import Section, empty, rows_of
from isocost.report.sections.outcome import SPLIT
from isocost.screen.words import counted


def headline(study: ReportRecords) -> str:
    """The answer in a sentence."""
    data = study["comparison"]
    if not data:
        arms = list(as_dict(as_dict(study["compare"].get("design")).get("arms")))
        return f"{names(arms)} are being compared; there is no answer yet."
    judged = _judged(study)
    return "The arms were judged." if judged is None else f"{results.headline(judged, data.get('counted_in'))}."


def _judged(study: ReportRecords) -> Comparison | None:
    """The answer of a comparison; None if another version, or a stranger, wrote it in another way."""
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        return Comparison.of(study["comparison"])
    return None


def answers(study: ReportRecords) -> Section:
    """Each arm at the common cost, and each pair by question: at equal cost, efficiency, asymptote."""
    title, data = "Which is better", study["comparison"]
    if not data:
        return Section("answers", title, empty(study, "The arms have not been judged yet.", "isocost compare"))
    judged = _judged(study)
    rows = join() if judged is None else rows_of(results.judged(judged, data.get("rates")), "The arms")
    return Section("answers", title, join(_forest(data), rows))


def _forest(data: Data) -> Safe:
    rows: list[Data] = []
    for arm in map(as_dict, as_list(data.get("arms"))):
        values = {k: number(arm.get(f)) for k, f in (("value", "mean"), ("low", "low"), ("high", "high"))}
        rows.append({"label": str(arm.get("name")), **values, "role": "outcome"})
        rows += [
            {"label": str(arm.get("name")), "value": v, "low": None, "high": None, "role": "run"}
            for v in map(number, as_list(arm.get("values")))
            if v is not None
        ]
    rows = [r for r in rows if r["value"] is not None]
    if not rows:
        return Safe("")
    alt_text = "Mean held-out reward of each arm at the common cost: " + "; ".join(
        f"{r['label']} {interval(r)}" for r in rows if r["role"] == "outcome"
    )
    caption = "Means at the common cost with 90 % confidence intervals; ticks are single runs."
    return figure("arms", charts.forest(rows, "held-out reward", alt_text), alt_text, caption, rows)


def curves(study: ReportRecords) -> Section:
    """Held-out reward of every run of every arm against training rollouts."""
    title, rows = "Curves of all arms", list[Data]()
    for name, runs in _arms(study).items():
        for run in runs:
            for line in run.evaluations:
                c, y = number(line.get("rollouts")), number(line.get(SPLIT, line.get("eval/select")))
                if c and y is not None:
                    rows.append({"arm": name, "run": run.name, "C": c, "reward": y})
    if not rows:
        return Section("curves", title, empty(study, "No run of an arm has been evaluated here.", "isocost compare"))
    arms = list(dict.fromkeys(r["arm"] for r in rows))
    ends = {a: max((r for r in rows if r["arm"] == a), key=lambda r: r["C"]) for a in arms}
    alt_text = "Held-out reward against training rollouts, one line for each run, coloured by arm: " + "; ".join(
        f"{a} to {share(r['reward'])} at {brief(r['C'])}" for a, r in ends.items()
    )
    caption = "Thin lines are runs, thick lines the mean of each arm. Click a legend entry to highlight an arm."
    plot = figure("reward", charts.arm_curves(rows, means(rows), alt_text), alt_text, caption, rows)
    lead = f"{counted(len({r['run'] for r in rows}), 'run')} of {names(arms)}."
    return Section("curves", title, join(p(lead, cls="lead"), plot))


def means(rows: Sequence[Data]) -> list[Data]:
    """The mean of an arm's runs at their k-th evaluation, if all have the same number; C is the geometric mean."""
    out = []
    for arm in dict.fromkeys(r["arm"] for r in rows):
        runs = list(dict.fromkeys(r["run"] for r in rows if r["arm"] == arm))
        own = [sorted((r["C"], r["reward"]) for r in rows if r["arm"] == arm and r["run"] == run) for run in runs]
        if len({len(x) for x in own}) == 1:
            for at in zip(*own, strict=True):
                C = math.exp(sum(math.log(c) for c, _ in at) / len(at))
                out.append({"arm": arm, "C": round(C, 1), "reward": round(sum(y for _, y in at) / len(at), 6)})
    return out


def _arms(study: ReportRecords) -> dict[str, list[Run]]:
    """Arm -> its runs: those in this folder by name, those of other folders by the path in the record."""
    data = {str(a.get("name")): as_list(a.get("runs")) for a in map(as_dict, as_list(study["comparison"].get("arms")))}
    here = {r.name: r for r in study.of("train", "run")}
    if not data:
        return _by_name(study, list(here.values()))
    found = {
        arm: [here.get(Path(str(x)).name) or read_run(Path(str(x)), study.metric) for x in runs]
        for arm, runs in data.items()
    }
    return {arm: [r for r in runs if r is not None] for arm, runs in found.items()}


def _by_name(study: ReportRecords, runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of a comparison that has no answer yet, named train-ARM-sINDEX."""
    arms = list(as_dict(as_dict(study["compare"].get("design")).get("arms")))
    return {a: [r for r in runs if r.name.startswith(f"train-{a}-s")] for a in arms}
