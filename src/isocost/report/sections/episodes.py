"""What a profile says of dialogues: at which turn rollouts end and how, faults, dead groups, the cost of a success."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from isocost.report.html import Safe, brief, count, figure, join, p, percent, share, table, tag
from isocost.report.records import Data, as_dict, as_list, number
from isocost.report.theme import Rows, Spec, data_of, finish, variables
from isocost.runs.kept_rollouts import Outcome, ends_in_order

LIMITS = 8      # turn limits that are listed, at most
COLOURS = {
    str(Outcome.SUCCESS): "accent", "out of turns": "dead", "turn cut at its token limit": "filtered",
    "ended without success": "cancelled", "stopped early": "surplus", "no score": "stale", "environment failed": "lost",
}


def episodes(profile: Data) -> Safe:
    """The dialogues of a profile; empty for single answers. Records of older versions lack some of it."""
    data = as_dict(profile.get("dialogues"))
    if not data:
        return Safe("")
    limits = _limits([as_dict(x) for x in as_list(profile.get("by_limit"))])
    return join(tag("h3", "Episodes"), _lead(data), _ended(data), _ends(data), limits, _faults(data), _dead(data))


def _lead(data: Data) -> Safe:
    turns, cost = as_dict(data.get("turns")), as_dict(data.get("success_costs"))
    text = f"A rollout takes {share(turns.get('mean'), 1)} turns on average, of at most {count(turns.get('limit'))}. "
    if not cost:
        return p(text + "No rollout succeeded, so the cost of a success is not known.")
    text += (
        f"A success costs {brief(cost.get('rollouts'))} rollouts: {brief(cost.get('env_steps'))} environment steps, "
        f"{brief(cost.get('written'))} tokens written, {brief(cost.get('read'))} read for the first time"
    )
    text += f" and {brief(cost['reread'])} read again." if "reread" in cost else "."
    if "failed_steps" in data:
        text += f" Rollouts that failed took {percent(data['failed_steps'])} of all environment steps."
    return p(text)


def _limits(rows: Sequence[Data]) -> Safe:
    """What each turn limit gives and costs; at most `LIMITS` of them, the last one always."""
    if len(rows) < 2:
        return Safe("")
    step = -(-len(rows) // LIMITS)
    read = ("read", "reread") if number(rows[-1].get("read")) else ()      # a server does not say what it read
    body = []
    for r in rows[::-1][::step][::-1]:
        passed, dead = ({x.get(k): x.get(v) for x in map(as_dict, as_list(r.get(of)))} for of, k, v in
                        (("pass_at", "k", "value"), ("dead", "n", "share")))
        cost = as_dict(r.get("cost"))
        body.append([count(r.get("turns")), *(share(passed.get(k)) for k in (1, 4)), percent(dead.get(8)),
                     *(share(r.get(k), 1) for k in ("env_steps", "written", *read)),
                     share(cost.get("env_steps"), 1) if cost else "no success"])
    head = ["turn limit", "pass@1", "pass@4", "dead, n = 8", "steps", "written",
            *(("read first", "read again") if read else ()), "steps per success"]
    caption = "The same rollouts cut at lower turn limits: environment steps and tokens per rollout"
    return table(head, body, caption)


def _ended(data: Data) -> Safe:
    """The chart: rollouts by the turn at which they ended, stacked by how."""
    found = [as_dict(x) for x in as_list(data.get("ended"))]
    every = sum(number(x.get("rollouts")) or 0 for x in found)
    if not every:
        return Safe("")
    rows = [{"turn": x["turn"], "end": x["end"], "rollouts": x["rollouts"], "share": x["rollouts"] / every}
            for x in found]
    alt_text = "Rollouts by the turn at which they ended, and how. " + ", ".join(
        f"{end} {percent(part)}" for end, part in as_dict(data.get("ends")).items())
    caption = "The turn at which rollouts ended, and how. Click a legend entry to highlight it; hover for numbers."
    return figure("ended", ended(rows, alt_text), alt_text, caption, rows)


def ended(rows: Rows, alt_text: str) -> Spec:
    """rows: turn, end, rollouts, share. A bar for each turn, stacked by how rollouts ended."""
    order = ends_in_order({r["end"]: sum(x["rollouts"] for x in rows if x["end"] == r["end"]) for r in rows})
    every = [r["turn"] for r in rows]
    colours = variables(*(COLOURS.get(end, "n6") for end in order))
    pick = alt.selection_point(fields=["end"], bind="legend", name="pick")
    base = alt.Chart(data_of([{**r, "rank": order.index(r["end"])} for r in rows])).mark_bar(cornerRadius=1)
    chart = base.encode(
        x=alt.X("turn:O", title="turn at which the rollout ended", axis=alt.Axis(labelAngle=0, labelOverlap=True),
                scale=alt.Scale(domain=list(range(min(every, default=1), max(every, default=1) + 1)))),
        y=alt.Y("sum(share):Q", title="share of rollouts", axis=alt.Axis(format="%")),
        color=alt.Color("end:N", title=None, sort=order, scale=alt.Scale(domain=order, range=colours),
                        legend=alt.Legend(columns=3)),
        order=alt.Order("rank:Q"),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.15)),
        tooltip=["turn:O", "end:N", alt.Tooltip("rollouts:Q", format=",d"), alt.Tooltip("share:Q", format=".1%")],
    )
    return finish(chart.add_params(pick), alt_text, 240)


def _ends(data: Data) -> Safe:
    steps = {x.get("end"): x.get("env_steps") for x in map(as_dict, as_list(data.get("by_end")))}
    at = {x.get("end"): x for x in map(as_dict, as_list(data.get("failures")))}
    body = [[end, percent(part), percent(steps.get(end)), _turns(at.get(end))]
            for end, part in as_dict(data.get("ends")).items()]
    head = ["how rollouts end", "of rollouts", "of environment steps", "failed at turn, 10 % to 90 % (median)"]
    return table(head, body, "How rollouts end") if body else Safe("")


def _turns(x: Data | None) -> str:
    if x is None:
        return ""
    low, middle, high = (count(x.get(k)) for k in ("p10", "p50", "p90"))
    return low if low == high else f"{low} to {high} ({middle})"


def _faults(data: Data) -> Safe:
    rates = as_dict(data.get("faults"))
    sources = ", ".join(f"{source} {percent(rate)}" for source, rate in rates.items())
    clean = as_dict(data.get("faultless"))
    body: list[list[Any]] = [
        [x.get("fault"), percent(x.get("per_turn")), percent(x.get("rollouts")), share(x.get("success"))]
        for x in map(as_dict, as_list(data.get("listed")))
    ]
    if not body:
        return p("No turn had a fault.")
    if clean:
        body.append(["without a fault", "", percent(clean.get("rollouts")), share(clean.get("success"))])
    head = ["fault", "of turns", "of rollouts", "mean reward of these"]
    return join(p(f"Share of turns with a fault, by source: {sources}."), table(head, body, "Faults"))


def _dead(data: Data) -> Safe:
    rows = [as_dict(x) for x in as_list(data.get("dead"))]
    body = [[count(d.get("n")), percent(d.get("failed")), percent(d.get("succeeded"))] for d in rows]
    caption = "Dead groups by what their rollouts have in common"
    return table(["n", "all failed", "all succeeded"], body, caption) if body else Safe("")
