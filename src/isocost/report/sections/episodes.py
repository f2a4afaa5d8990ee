"""The picture of a profile's dialogues: at which turn rollouts end, and how."""

from __future__ import annotations

import altair as alt

from isocost.report.html import Safe, figure, join, percent, tag
from isocost.report.records import Data, as_dict, as_list, number
from isocost.report.theme import Rows, Spec, data_of, finish, variables
from isocost.runs.kept_rollouts import Outcome, ends_in_order

COLOURS = {
    str(Outcome.SUCCESS): "accent", "out of turns": "dead", "turn cut at its token limit": "filtered",
    "ended without success": "cancelled", "stopped early": "surplus", "no score": "stale", "environment failed": "lost",
}


def episodes(profile: Data) -> Safe:
    """The chart of a profile's dialogues: rollouts by the turn at which they ended, stacked by how; empty for single
    answers. The profile's rows have the numbers."""
    data = as_dict(profile.get("dialogues"))
    found = [as_dict(x) for x in as_list(data.get("ended"))]
    every = sum(number(x.get("rollouts")) or 0 for x in found)
    if not every:
        return Safe("")
    rows = [{"turn": x["turn"], "end": x["end"], "rollouts": x["rollouts"], "share": x["rollouts"] / every}
            for x in found]
    alt_text = "Rollouts by the turn at which they ended, and how. " + ", ".join(
        f"{end} {percent(part)}" for end, part in as_dict(data.get("ends")).items())
    caption = "The turn at which rollouts ended, and how. Click a legend entry to highlight it; hover for numbers."
    return join(tag("h3", "Episodes"), figure("ended", ended(rows, alt_text), alt_text, caption, rows))


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
