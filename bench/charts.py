"""The page's pictures, from records: how many times faster, the roofline, and cost along each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from isocost.report.theme import CONFIG, _numbered, solid

Record = Mapping[str, Any]
DTYPES = {"fp32": "var(--n0)", "bf16": "var(--n4)"}


def svg(chart: Any, dark: bool) -> str:
    """A still picture; the same record gives the same bytes."""
    import vl_convert

    spec = chart.to_dict()
    spec.pop("config", None)
    version = alt.SCHEMA_VERSION.lstrip("v").rsplit(".", 1)[0]
    whole = solid({**_numbered(spec), "config": CONFIG}, dark) | {"background": "#14171a" if dark else "#ffffff"}
    return vl_convert.vegalite_to_svg(whole, vl_version=version)


def ratios(step: Record) -> Any:
    """How many times faster than TRL's best settings, per variant and contender, at equal tokens."""
    rows = [
        {"case": v["name"], "contender": r["name"], "ratio": r["ratio_equal_tokens"]["median"],
         "low": r["ratio_equal_tokens"]["low"], "high": r["ratio_equal_tokens"]["high"]}
        for v in step["variants"] for r in v["rows"] if "ratio_equal_tokens" in r
    ]
    base = alt.Chart(alt.Data(values=rows))
    y = alt.Y("contender:N", title=None, sort=[r["contender"] for r in rows], axis=alt.Axis(labelLimit=220))
    x = alt.X("ratio:Q", title="times TRL's best, seconds per sampled token", scale=alt.Scale(zero=True))
    inside = alt.layer(
        base.mark_rule(strokeWidth=2, color="var(--mid)").encode(x=alt.X("low:Q", title=""), x2="high:Q", y=y),
        base.mark_point().encode(x=x, y=y),
        base.mark_rule(strokeDash=[4, 4], color="var(--soft)").encode(x=alt.datum(1)),
    )
    order = [v["name"] for v in step["variants"]]
    return inside.properties(width=560).facet(row=alt.Row("case:N", title=None, sort=order))


def roofline(scaling: Record) -> Any:
    """Each phase's operations per byte against what it reached, under the peaks measured in the same run."""
    dots = [
        {"intensity": r[what]["flops"] / r[what]["bytes"], "dtype": r["dtype"], "what": name,
         "reached": r[what]["flops"] / r[what]["seconds"]["median"] / 1e9}
        for r in scaling["rows"] if r["device"] == "cpu"
        for what, name in (("sample", "sampling"), ("learn", "learning"))
    ]
    peaks = scaling["peaks"]["cpu"]
    lines = _roofs(peaks, [d["intensity"] for d in dots])
    x = alt.X("intensity:Q", title="operations per byte, counted", scale=alt.Scale(type="log"))
    y = alt.Y("reached:Q", title="GFLOP/s", scale=alt.Scale(type="log"))
    colour = alt.Color("dtype:N", title=None, scale=alt.Scale(domain=list(DTYPES), range=list(DTYPES.values())))
    roof = alt.Chart(alt.Data(values=lines)).mark_line(strokeWidth=1.5)
    dash = alt.StrokeDash("memory:N", title="roof", sort=["main memory", "cache"])
    marks = alt.Chart(alt.Data(values=dots)).mark_point(size=46, opacity=0.8)
    shape = alt.Shape("what:N", title=None, scale=alt.Scale(range=["circle", "triangle-up"]))
    return alt.layer(
        roof.encode(x=x, y=y, color=colour, strokeDash=dash, detail="memory:N"),
        marks.encode(x=x, y=y, color=colour, shape=shape),
    ).properties(width=640, height=360)


def _roofs(peaks: Mapping[str, Any], at: Sequence[float]) -> list[dict[str, Any]]:
    low, high = min(at) / 2, max(at) * 2
    rates = {"main memory": peaks["bytes"], "cache": max([rate for _, rate in peaks["reads"]] or [peaks["bytes"]])}
    return [
        {"dtype": dtype, "memory": name, "intensity": i, "reached": min(peak, rate * i) / 1e9}
        for dtype, peak in peaks["flops"].items() for name, rate in rates.items()
        for i in sorted({low, peak / rate, high})
    ]


def axes(scaling: Record) -> Any:
    """Microseconds per sampled token along each axis, with the floor; float32 and bf16, sampling and learning."""
    panels = []
    for axis in dict.fromkeys(r["axis"] for r in scaling["rows"]):
        rows = [
            {"value": r["value"], "us": r[what][key], "dtype": r["dtype"], "what": name}
            for r in scaling["rows"] if r["axis"] == axis and r["device"] == "cpu"
            for what, key, name in (
                ("sample", "us_per_token", "sampling"), ("learn", "us_per_token", "learning"),
                ("sample", "floor_us_per_token", "floor of sampling"),
                ("learn", "floor_us_per_token", "floor of learning"),
            )
        ]
        base = alt.Chart(alt.Data(values=rows), title=axis)
        panels.append(base.mark_line(point=True, strokeWidth=1.5).encode(
            x=alt.X("value:Q", title=None, scale=alt.Scale(type="log", base=2)),
            y=alt.Y("us:Q", title="µs per sampled token", scale=alt.Scale(type="log")),
            color=alt.Color("what:N", title=None, sort=[r["what"] for r in rows[:4]], scale=alt.Scale(
                domain=["sampling", "floor of sampling", "learning", "floor of learning"],
                range=["var(--accent)", "var(--mid)", "var(--filtered)", "var(--dead)"])),
            strokeDash=alt.StrokeDash("dtype:N", title=None, sort=list(DTYPES)),
        ).properties(width=300, height=200))
    return alt.concat(*panels, columns=2)
