"""What the sections of the page share: numbers in words, intervals, and charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

import pages
from isocost.report import theme

Record = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]
Target = tuple[str, str, str, bool | str | None]     # what, the target, what was measured, whether it holds
HELD = " of commit 21b990aa"     # after the command of a record whose script is no longer here


def picture(key: str, alt_text: str) -> str:
    """A picture of the page."""
    return pages.picture(f"how-sure-{key}", alt_text)


def percent(x: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash for what is not known."""
    return "–" if x is None else f"{100 * x:.{digits}f} %"


def wilson(share: float, count: int, z: float = 1.645) -> tuple[float, float]:
    """Wilson's interval for a share of `count` independent trials (90 % at the given z)."""
    middle, half = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / count) for sign in (-1, 1))
    return min(1.0, max(0.0, low)), min(1.0, max(0.0, high))


def covers(share: float) -> bool | str:
    """Whether the coverage of a 90 % interval is in 85 to 95 %, or on which side it is not."""
    return "intervals too narrow" if share < 0.85 else "intervals wider than necessary" if share > 0.95 else True


def spec(chart: Any, alt_text: str, height: int) -> theme.Spec:
    return theme.finish(chart, alt_text, height)


def dots(
    rows: Rows, title: str, marks: Sequence[tuple[str, float]], alt_text: str, top: float = 1.0, scale: Any = None
) -> theme.Spec:
    """rows: label, what, value, low, high. One line for each label, targets as dashed rules."""
    labels, whats = (list(dict.fromkeys(r[k] for r in rows)) for k in ("label", "what"))
    base = alt.Chart(alt.Data(values=list(rows)))
    values = [v for v in (0, 0.05, 0.15, 0.5, 1, 2, 4, 8, 16) if v <= top] if scale else [k / 10 for k in range(11)]
    scale = scale or alt.Scale(domain=[0, top], nice=False)
    x = alt.X("value:Q", title=title, scale=scale, axis=alt.Axis(format="%", values=values))
    y = alt.Y(
        "label:N",
        title=None,
        sort=labels,
        axis=alt.Axis(
            labelLimit=420,
            labelFontSize=13,
            labelColor="var(--ink)",
            labelPadding=12,
            minExtent=int(7.4 * max(map(len, labels))),
        ),
    )
    colours = ["var(--cancelled)", "var(--accent)", "var(--evaluation)"][: len(whats)]
    color = alt.Color("what:N", title=None, scale=alt.Scale(domain=whats, range=colours))
    shape = alt.Shape("what:N", title=None, scale=alt.Scale(domain=whats, range=list(theme.SHAPES[: len(whats)])))
    rules = alt.Chart(alt.Data(values=[{"at": at, "text": text} for text, at in marks]))
    layers = [
        rules.mark_rule(strokeDash=[3, 3]).encode(x=alt.X("at:Q")),
        *(
            rules.transform_filter(f"{beyond}(datum.at < {0.7 * top})")
            .mark_text(align=align, dx=dx, y=-4, color="var(--soft)")
            .encode(x=alt.X("at:Q"), text="text:N")
            for beyond, align, dx in (("", "left", 5), ("!", "right", -5))
        ),
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=5, opacity=0.35, strokeCap="round")
        .encode(x=alt.X("low:Q", title=title, scale=scale), x2="high:Q", y=y, color=color),
        base.mark_point(size=70).encode(x=x, y=y, color=color, shape=shape),
    ]
    return spec(alt.layer(*layers), alt_text, 30 * len(labels) + 20)
