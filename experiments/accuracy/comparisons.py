"""Comparisons of two arms: wrong verdicts, and differences found."""

from __future__ import annotations

from collections.abc import Iterable

from accuracy.pieces import Record, Target, dots, percent, picture, wilson
from isocost.report import theme
from isocost.screen.words import markdown_table

PAIRS = {
    "none": "no difference in truth",
    "lower": "a lower asymptote",
    "slower": "slower to the same asymptote",
    "crossing": "faster, to a lower asymptote",
}


def section(r: Record) -> str:
    head = ["truth", "arms", "kinds of noise", "studies", "verdict wrong", "anything wrong", "right at equal cost"]
    cells: dict[tuple[str, int], list[Record]] = {}
    for c in r["cells"]:
        cells.setdefault((c["pair"], c["arms"]), []).append(c)
    rows = [
        [
            PAIRS[pair],
            arms,
            len(of),
            sum(c["studies"] for c in of),
            percent(max(c["verdict"].get("wrong", 0.0) for c in of)),
            percent(max(c["any"].get("wrong", 0.0) for c in of)),
            percent(min(c["equal cost"].get("right", 0.0) for c in of)) if pair in ("lower", "slower") else "",
        ]
        for (pair, arms), of in cells.items()
    ]
    own = r["summary"]["right at equal cost at twice what the comparison states itself"]
    return (
        "## Comparisons\n\n"
        + picture("compare", "Shares of comparisons that were wrong, and of those that found a true difference")
        + f"\nThis is `isocost compare` on {r['summary']['studies']:,} pairs of arms with a known truth. A true"
          " difference"
        " is twice the minimum detectable difference, computed from the true noise. With the minimum detectable"
        f" difference that the comparison states, from the noise it measured, {percent(own)} are right. Shares are"
        " those of the worst kind of noise; the record has each.\n\n"
        + markdown_table(head, rows)
        + f"\n`python experiments/compare.py --out experiments/results/compare.json`, key {r['key']}\n"
    )


def pictures(r: Record) -> Iterable[tuple[str, theme.Spec]]:
    rows = []
    for c in (c for c in r["cells"] if c["arms"] == 2):
        label = f"{PAIRS[c['pair']]}, noise {c['noise']}"
        for what, share in (
            ("wrong arm named", c["verdict"].get("wrong", 0.0)),
            ("right at equal cost", c["equal cost"].get("right", 0.0)),
        ):
            if what.startswith("right") and c["pair"] not in ("lower", "slower"):
                continue
            low, high = wilson(share, c["studies"])
            rows.append({"label": label, "what": what, "value": share, "low": low, "high": high})
    marks = [("at most 5 % wrong", 0.05), ("at least 80 % right", 0.8)]
    yield "compare", dots(rows, "share of comparisons", marks, "Comparisons that were wrong, and right")


def targets(r: Record) -> list[Target]:
    s = r["summary"]
    wrong, worst = s["wrong verdicts"], s["wrong verdicts, worst cell"]
    right, least = s["right at equal cost at twice the detectable"], s["the same, worst cell"]
    return [
        (
            "comparison: names a worse arm as better",
            "at most 5 %",
            f"{percent(wrong)} (worst case {percent(worst)})",
            wrong <= 0.05 and worst <= 0.05,
        ),
        (
            "comparison: correct at twice the minimum detectable difference",
            "at least 80 %",
            f"{percent(right)} (worst case {percent(least)})",
            right >= 0.8 and least >= 0.8,
        ),
    ]
