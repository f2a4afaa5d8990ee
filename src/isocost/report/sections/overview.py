"""The study in one picture: the pilot's curves, the sealed forecast, its outcome, and those it is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from isocost.report import charts, theme
from isocost.report.html import Safe, count, figure, names, share
from isocost.report.records import Data, ReportRecords, law_of
from isocost.report.sections.outcome import outcome_of, prescribed_n, reach_of, trained_lines
from isocost.report.sections.reach import reward_rows

NEAR = 0.055    # the least distance between two labels, as a share of the rewards' range


def overview(study: ReportRecords) -> Safe:
    """The picture at the top of the page; empty without a forecast or an outcome."""
    spec, alt_text, rows = overview_plot(study)
    if not rows:
        return Safe("")
    caption = (
        "Left of the dashed line: the pilot, means over seeds, and for each n a fitted curve with its 90 % confidence"
        " band. Right: the bar is the sealed forecast with its 90 % prediction interval, thin lines are the runs"
        " trained afterwards, and diamonds are their means."
    )
    return figure("overview", spec, alt_text, caption, rows)


def overview_plot(study: ReportRecords) -> tuple[theme.Spec, str, list[Data]]:
    """(specification, alternative text, the rows behind it); no rows without a forecast or an outcome. Rows have a
    kind: "pilot" (n, C, reward, low, high), "run" (n, run, C, reward), "forecast" (C, value, low, high) and "mean at
    the end" (n, C, reward). C is in rollouts per run."""
    data, n = outcome_of(study), prescribed_n(study)
    if not data or not n or not data["C"]:
        return {}, "", []
    points, fits = ([{"kind": kind, **r} for r in rows]
                    for kind, rows in zip(("observed", "fitted"), reward_rows(study, law_of(study)), strict=True))
    lines = trained_lines(study)
    top = float(data["C"])
    bounds = {k: data["forecast"].get(k) for k in ("value", "low", "high")}
    sealed = [] if None in bounds.values() else [{"C": top, **bounds}]
    ends = [{"n": a["n"], "C": a["C"] or top, "reward": a["outcome"]["value"]}
            for a in ({"n": n, "C": top, "outcome": data["outcome"]}, *data["others"]) if a["outcome"]]
    what = {a["n"]: f"n = {a['n']}:" for a in data["others"]} | {n: "outcome"}
    labels = [*((x["value"], f"forecast {share(x['value'])}") for x in sealed),
              *((x["reward"], f"{what[x['n']]} {share(x['reward'])}") for x in ends)]
    rewards = [r["reward"] for r in (*points, *lines, *ends)] + [x[k] for x in sealed for k in ("low", "high")]
    placed = apart(labels, max(rewards) - min(rewards))
    words = [{"C": max([top, *(r["C"] for r in ends)]), "reward": at, "text": text} for at, text in placed]
    alt_text = f"Held-out reward against training rollouts. The pilot of n = {names(sorted({r['n'] for r in points}))}"
    if sealed:
        alt_text += (f", the sealed forecast {share(sealed[0]['value'])} ({share(sealed[0]['low'])} to"
                     f" {share(sealed[0]['high'])}) at {count(top)} rollouts")
    alt_text += "".join(f", {text}" for _, text in placed if not text.startswith("forecast"))
    spec = charts.overview(points, fits, reach_of(study), charts.AfterPilot(lines, sealed, ends, words), alt_text, n)
    rows = [*(r | {"kind": "pilot"} for r in points), *({"kind": "run", **r} for r in lines),
            *({"kind": "forecast", **r} for r in sealed), *({"kind": "mean at the end", **r} for r in ends)]
    return spec, alt_text, rows


def apart(labels: Sequence[tuple[float, str]], extent: float) -> list[tuple[float, str]]:
    """(height, text) of labels, lowest first, moved as little as keeps `NEAR` of the extent between neighbours."""
    placed = sorted(labels)
    step = NEAR * extent
    for _ in placed:
        for i, (low, high) in enumerate(pairwise(placed)):
            if (lack := step - (high[0] - low[0])) > 1e-12:
                placed[i], placed[i + 1] = (low[0] - lack / 2, low[1]), (high[0] + lack / 2, high[1])
    return placed
