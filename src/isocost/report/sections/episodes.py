"""The picture of a profile's dialogues: at which turn rollouts end, and how."""

from __future__ import annotations

from isocost.report import charts
from isocost.report.html import Safe, figure, join, percent, tag
from isocost.report.records import Data, as_dict, as_list, number
from isocost.report.theme import variables
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
    order = ends_in_order({r["end"]: sum(x["rollouts"] for x in rows if x["end"] == r["end"]) for r in rows})
    colours = variables(*(COLOURS.get(end, "n6") for end in order))
    spec = charts.ended(rows, order, colours, alt_text)
    return join(tag("h3", "Episodes"), figure("ended", spec, alt_text, caption, rows))
