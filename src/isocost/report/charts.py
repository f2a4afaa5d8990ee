"""The plots, as Vega-Lite specifications. Colours are CSS variables, so one picture serves light, dark and print.

Every function takes rows (plain dicts, also what the CSV download holds) and gives a specification; none reads files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import altair as alt

Rows = Sequence[Mapping[str, Any]]
Spec = dict[str, Any]

# Light and dark values of each variable. n is ordered, so its colours are viridis (safe for every kind of colour
# blindness, monotone in lightness); fates are categories, so theirs are Okabe and Ito's.
PALETTE: Mapping[str, tuple[str, str]] = {
    "ink": ("#1b1f24", "#e9ebee"),
    "soft": ("#5c6670", "#a3adb8"),
    "line": ("#dfe3e8", "#31373e"),
    "paper": ("#ffffff", "#14171a"),
    "wash": ("#f6f7f9", "#1c2024"),
    "accent": ("#0b6a88", "#58c0dc"),
    "unknown": ("#f6efe2", "#2c2820"),
    "mid": ("#9cc3d0", "#2c5f6e"),
    "n0": ("#440154", "#fde725"),
    "n1": ("#46327e", "#b5de2b"),
    "n2": ("#365c8d", "#6ece58"),
    "n3": ("#277f8e", "#35b779"),
    "n4": ("#1fa187", "#26a28a"),
    "n5": ("#4ac16d", "#3a8fa3"),
    "n6": ("#8fca3a", "#6b86c4"),
    "trained": ("#0b6a88", "#58c0dc"),
    "dead": ("#b4bcc4", "#6b747d"),
    "filtered": ("#e69f00", "#e69f00"),
    "stale": ("#cc79a7", "#cc79a7"),
    "surplus": ("#f0e442", "#f0e442"),
    "cancelled": ("#d55e00", "#d55e00"),
    "lost": ("#1b1f24", "#ffffff"),
    "evaluation": ("#009e73", "#2fbf96"),
}
N_SLOTS = 7
STANDINGS = {"best": "accent", "equal to the best": "mid", "worse": "line", "not known": "unknown"}
CATEGORIES = ("accent", "filtered", "evaluation", "stale", "cancelled", "ink", "n6")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")

FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Liberation Sans', Arial, sans-serif"

CONFIG: Spec = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "gridColor": "var(--line)",
        "domain": False,
        "tickColor": "var(--line)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 10,
        "labelPadding": 6,
        "gridOpacity": 1,
        "ticks": False,
    },
    "axisX": {"grid": False, "domain": True, "domainColor": "var(--line)", "ticks": True},
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--soft)",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
        "direction": "horizontal",
        "symbolType": "circle",
        "symbolStrokeWidth": 2,
        "offset": 12,
        "symbolOpacity": 1,
        "columnPadding": 18,
        "titleOrient": "left",
        "titlePadding": 8,
    },
    "rule": {"color": "var(--soft)"},
    "text": {"color": "var(--ink)", "fontSize": 12},
    "bar": {"color": "var(--accent)"},
    "line": {"color": "var(--accent)", "strokeWidth": 2},
    "area": {"color": "var(--accent)"},
    "point": {"color": "var(--accent)", "size": 56, "filled": True, "opacity": 1},
}


def css_variables(dark: bool) -> str:
    return " ".join(f"--{name}: {pair[dark]};" for name, pair in PALETTE.items())


def solid(spec: Any, dark: bool = False) -> Any:
    """The same specification with variables replaced by colours, for renderers that know no CSS."""
    if isinstance(spec, Mapping):
        return {k: solid(v, dark) for k, v in spec.items()}
    if isinstance(spec, list):
        return [solid(v, dark) for v in spec]
    if isinstance(spec, str) and spec.startswith("var(--"):
        return PALETTE[spec[len("var(--") : -1]][dark]
    return spec


@cache
def bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script of about 0.9 MB that needs no network."""
    import vl_convert

    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=_vega_lite())
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


ROOM = {"left": 32, "right": 12, "top": 5, "bottom": 5}  # a reader's font may be wider than the one measured with


def svg(spec: Spec, width: int = 820, dark: bool = False) -> str:
    """A still picture of a plot, for a page that runs no script. One plot gives one text, whatever was drawn before."""
    import vl_convert

    whole = solid({**spec, "width": width, "config": CONFIG, "padding": ROOM}, dark)
    drawn = vl_convert.vegalite_to_svg(whole, vl_version=_vega_lite())
    numbered = {name: f"clip{i}" for i, name in enumerate(dict.fromkeys(re.findall(r"\bclip\d+", drawn)))}
    return re.sub(r"\bclip\d+", lambda found: numbered[found[0]], drawn)  # the library counts on between plots


def _vega_lite() -> str:
    return alt.SCHEMA_VERSION.lstrip("v").rsplit(".", 1)[0]


def histogram(rows: Rows, alt_text: str, *, graded: bool = False) -> Spec:
    """rows: right, samples, pass1, problems, kind ('mixed' or 'dead at this many samples').

    Of `graded` rewards `right` is the mean reward in parts of `samples`, and all bars are of one kind.
    """
    title = "mean reward of a problem, in parts of its samples" if graded else (
        "right answers among the samples of a problem")
    kinds = ["some right"] if graded else ["some right", "all or none right"]
    base = (
        alt.Chart(_data(rows))
        .mark_bar(binSpacing=1, cornerRadiusTopLeft=2, cornerRadiusTopRight=2)
        .encode(
            x=alt.X("right:O", title=title, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("problems:Q", title="problems", axis=alt.Axis(tickMinStep=1)),
            color=alt.Color(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=kinds, range=_var("accent", "dead")[: len(kinds)]),
                legend=None if graded else alt.Undefined,
            ),
            tooltip=[
                "right:O",
                "samples:O",
                alt.Tooltip("pass1:Q", title="mean reward" if graded else "pass@1", format=".3f"),
                "problems:Q",
                "kind:N",
            ][: 4 if graded else 5],
        )
    )
    return finish(base, alt_text, 240)


def dead_groups(rows: Rows, alt_text: str) -> Spec:
    """rows: n, share, low, high, kind."""
    x = alt.X(
        "n:Q",
        title="n, rollouts per problem",
        scale=alt.Scale(type="log", base=2, nice=False, padding=18),
        axis=alt.Axis(values=[r["n"] for r in rows], format="d"),
    )
    y = alt.Y(
        "share:Q", title="share of groups without a signal", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%")
    )
    tips = ["n:Q", *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("share", "low", "high")), "kind:N"]
    base = alt.Chart(_data(rows))
    line = base.mark_line(opacity=0.5).encode(x=x, y=y)
    bars = base.mark_rule(strokeWidth=2, color="var(--accent)").encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q")
    points = base.mark_point(size=70, strokeWidth=2).encode(
        x=x,
        y=y,
        tooltip=tips,
        shape=alt.Shape(
            "kind:N", title=None, scale=alt.Scale(domain=["unbiased", "beta-binomial"], range=["circle", "diamond"])
        ),
        fill=alt.condition("datum.kind == 'unbiased'", alt.value("var(--accent)"), alt.value("var(--paper)")),
        stroke=alt.value("var(--accent)"),
    )
    return finish(alt.layer(line, bars, points), alt_text, 240)


def rates(rows: Rows, base_reward: float | None, alt_text: str) -> Spec:
    """rows: lr, nB, reward, refused, run."""
    sizes = sorted({r["nB"] for r in rows})
    y = alt.Y("reward:Q", title="held-out reward at the end", scale=alt.Scale(zero=False, nice=True))
    data = alt.Chart(_data(rows))
    color = alt.Color(
        "nB:O", title="rollouts per update, nB", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes)))
    )
    x = alt.X(
        "lr:Q",
        title="learning rate",
        scale=alt.Scale(type="log", nice=False, padding=24),
        axis=alt.Axis(format="~e", values=sorted({r["lr"] for r in rows}), labelOverlap="greedy"),
    )
    tips = ["run:N", alt.Tooltip("lr:Q", format=".2e"), "nB:Q", alt.Tooltip("reward:Q", format=".3f"), "refused:N"]
    lines = data.mark_line(opacity=0.6).encode(x=x, y=y, color=color)
    points = data.mark_point(strokeWidth=2, size=70).encode(
        x=x,
        y=y,
        color=color,
        tooltip=tips,
        shape=alt.Shape(
            "refused:N", title=None, scale=alt.Scale(domain=["kept", "refused"], range=["circle", "cross"])
        ),
    )
    layers: list[Any] = [lines, points]
    if base_reward is not None:
        layers += _level(base_reward, "before training", "reward")
    return finish(alt.layer(*layers), alt_text, 260, zoom=True)


def curves(points: Rows, fits: Rows, alt_text: str, chosen: int | None = None, reach: Rows = ()) -> Spec:
    """points: n, C, reward, runs, low, high; fits: n, C, reward, low, high, beyond (whether past the pilot's end).

    One line for each n. `reach` is at most one row, the region past the pilot: C, C2, text.
    """
    sizes = sorted({r["n"] for r in (*points, *fits)})
    pick = alt.selection_point(fields=["n"], bind="legend", name="pick")
    seen = alt.condition(pick, alt.value(1.0), alt.value(0.12))
    color = alt.Color("n:O", title="n", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes))))
    shape = alt.Shape("n:N", title="n", sort=sizes, scale=alt.Scale(domain=sizes, range=list(SHAPES[: len(sizes)])))
    x, y = _compute(), _reward()
    layers: list[Any] = _beyond(reach)
    if fits:
        data = alt.Chart(_data(fits))
        faint = alt.condition(pick, alt.value(0.16), alt.value(0.03))
        layers.append(
            data.transform_filter("isValid(datum.low)")
            .mark_area()
            .encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q", color=color, opacity=faint)
        )
        width = alt.condition(f"datum.n == {chosen or 0}", alt.value(3.5), alt.value(1.8))
        for dash, where in (([1, 0], "!datum.beyond"), ([5, 4], "datum.beyond")):
            line = data.transform_filter(where).mark_line(strokeDash=dash)
            layers.append(line.encode(x=x, y=y, color=color, opacity=seen, size=width))
    tips = ["n:O", alt.Tooltip("C:Q", format=",d", title="rollouts"), alt.Tooltip("reward:Q", format=".3f"), "runs:Q"]
    dots = alt.Chart(_data(points)).mark_point(size=46)
    layers.append(dots.encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tips).add_params(pick))
    return finish(alt.layer(*layers), alt_text, 380, zoom=True)


def frontier(rows: Rows, observed: Rows, reach: Rows, alt_text: str) -> Spec:
    """rows: C, reward, low, high, n; observed (record-breaking points, for display): C, reward, n; reach as above."""
    x, y = _compute(), _reward()
    data = alt.Chart(_data(rows))
    band = data.mark_area(opacity=0.16).encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q")
    tips = [
        alt.Tooltip("C:Q", format=",d", title="rollouts"),
        "n:O",
        *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("reward", "low", "high")),
    ]
    line = data.mark_line(strokeWidth=2.5).encode(x=x, y=y, tooltip=tips)
    layers: list[Any] = [*_beyond(reach), band, line]
    if observed:
        marks = alt.Chart(_data(observed)).mark_point(filled=False, stroke="var(--ink)", size=50, strokeWidth=1.5)
        layers.append(marks.encode(x=x, y=y, tooltip=[*tips[:2], alt.Tooltip("reward:Q", format=".3f")]))
    return finish(alt.layer(*layers), alt_text, 280, zoom=True)


def equals(rows: Rows, optimum: Rows, pilot_end: float | None, alt_text: str) -> Spec:
    """rows: C, C2, n, standing (of STANDINGS), behind; optimum, where n* is identified: C, n, low, high."""
    sizes = sorted({r["n"] for r in rows}, reverse=True)
    data = alt.Chart(_data(rows))
    x = alt.X("C:Q", title="C, training rollouts per run", scale=alt.Scale(type="log", nice=False), axis=_log_axis())
    fill = alt.Color(
        "standing:N", title=None, scale=alt.Scale(domain=list(STANDINGS), range=_var(*STANDINGS.values()))
    )
    tips = [
        alt.Tooltip("C:Q", format=",.0f", title="rollouts"),
        "n:O",
        "standing:N",
        alt.Tooltip("behind:Q", format=".3f", title="behind the best"),
    ]
    y = alt.Y("n:O", title="n", sort=sizes, scale=alt.Scale(paddingInner=0.15))
    cells = data.mark_rect(cornerRadius=1).encode(x=x, x2="C2:Q", y=y, color=fill, tooltip=tips)
    layers: list[Any] = [cells, *(_fence(pilot_end, "the pilot ends") if pilot_end else [])]
    return (
        finish(alt.layer(*layers), alt_text, 34 * len(sizes) + 40)
        if not optimum
        else _optimum(optimum, pilot_end, alt_text)
    )


def _optimum(rows: Rows, pilot_end: float | None, alt_text: str) -> Spec:
    data = alt.Chart(_data(rows))
    x = _compute()
    y = alt.Y(
        "n:Q",
        title="n*, the best rollouts per problem",
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(format="d"),
    )
    band = data.mark_area(opacity=0.16).encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q")
    tips = [
        alt.Tooltip("C:Q", format=",d", title="rollouts"),
        *(alt.Tooltip(f"{k}:Q", format=".2f") for k in ("n", "low", "high")),
    ]
    line = data.mark_line(strokeWidth=2.5).encode(x=x, y=y, tooltip=tips)
    return finish(
        alt.layer(band, line, *(_fence(pilot_end, "the pilot ends") if pilot_end else [])), alt_text, 240, zoom=True
    )


def forecast_path(
    path: Rows, naive: Rows, lines: Rows, sealed: Rows, reach: Rows, alt_text: str
) -> Spec:
    """The sealed law's path over compute, and what the trained runs did.

    path: C, value, low, high; naive: name, C, reward, side (of its label); lines: what, run, C, reward; sealed: C,
    value, low, high, label (the forecast is a bar at its C); reach as in `curves`.
    """
    whats = list(dict.fromkeys(r["what"] for r in lines))
    colours = dict(zip(whats, _var("ink", "filtered"), strict=False))
    color = alt.Color(
        "what:N",
        legend=alt.Legend(title=None, symbolType="stroke", symbolSize=320),
        scale=alt.Scale(domain=list(colours), range=list(colours.values())),
    )
    x, y = _compute(), _reward()
    layers: list[Any] = _beyond(reach)
    if path:
        told = alt.Chart(_data(path))
        tips: list[Any] = [
            alt.Tooltip("C:Q", format=",d", title="rollouts"),
            *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("value", "low", "high")),
        ]
        layers.append(told.mark_area(opacity=0.2).encode(x=x, y=alt.Y("low:Q", title=""), y2="high:Q"))
        layers.append(
            told.mark_line(strokeWidth=2, strokeDash=[6, 3]).encode(x=x, y=alt.Y("value:Q", title=""), tooltip=tips)
        )
    if naive:
        guess = alt.Chart(_data(naive))
        layers.append(
            guess.mark_line(strokeWidth=1.4, strokeDash=[2, 3], color="var(--soft)").encode(x=x, y=y, detail="name:N")
        )
        for side, dy in (("above", -9), ("below", 11)):
            words = guess.transform_filter(f"datum.side == '{side}'").mark_text(align="right", dx=-12, dy=dy)
            layers.append(words.encode(x=x, y=y, text="name:N", color=alt.value("var(--soft)")))
    if lines:
        data = alt.Chart(_data(lines))
        tips = [
            "what:N",
            "run:N",
            alt.Tooltip("C:Q", format=",d", title="rollouts"),
            alt.Tooltip("reward:Q", format=".3f"),
        ]
        layers.append(data.mark_line(strokeWidth=1.2, opacity=0.6).encode(x=x, y=y, color=color, detail="run:N"))
        layers.append(data.mark_point(size=24).encode(x=x, y=y, color=color, tooltip=tips))
    if sealed:
        bar = alt.Chart(_data(sealed))
        tips = ["label:N", *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("value", "low", "high"))]
        layers.append(
            bar.mark_rule(strokeWidth=9, opacity=0.45).encode(
                x=x, y=alt.Y("low:Q", title=""), y2="high:Q", tooltip=tips, color=alt.value("var(--accent)")
            )
        )
        layers.append(
            bar.mark_tick(orient="horizontal", thickness=3, size=26, color="var(--accent)").encode(
                x=x, y=alt.Y("value:Q", title="")
            )
        )
    return finish(alt.layer(*layers), alt_text, 360, zoom=True)


LANE = 4.0  # standard errors that half a lane of `residuals` is high


def residuals(rows: Rows, alt_text: str) -> Spec:
    """rows: n, C, residual (in standard errors), within. One lane for each n, its curve in the middle."""
    sizes = sorted({r["n"] for r in rows}, reverse=True)
    place = {n: i for i, n in enumerate(sizes)}
    far, order = LANE - 0.2, ["within 2 standard errors", "beyond 2", f"beyond {LANE:g}, off the lane"]
    data = [
        {
            **r,
            "lane": place[r["n"]],
            "y": place[r["n"]] + max(-far, min(far, r["residual"])) / (2 * LANE),
            "kind": order[2] if abs(r["residual"]) > far else order[0] if r["within"] else order[1],
        }
        for r in rows
    ]
    x = _compute()
    labels = "[" + ", ".join(f"'n = {n}'" for n in sizes) + "]"
    axis = alt.Axis(
        values=list(range(len(sizes))),
        labelExpr=f"{labels}[datum.value]",
        labelColor="var(--ink)",
        labelFontSize=13,
        grid=True,
        gridDash=[3, 3],
        gridColor="var(--soft)",
    )
    scale = alt.Scale(domain=[-0.55, len(sizes) - 0.45], nice=False, zero=False)
    y = alt.Y("y:Q", title=None, axis=axis, scale=scale)
    ends = [min(r["C"] for r in rows), max(r["C"] for r in rows)]
    half = 2 / (2 * LANE)
    stripes = alt.Chart(
        _data([{"C": ends[0], "C2": ends[1], "low": i - half, "high": i + half} for i in range(len(sizes))])
    ).mark_rect(color="var(--line)", opacity=0.55, cornerRadius=2)
    marks = {
        "color": alt.Color(
            "kind:N", title=None, scale=alt.Scale(domain=order, range=_var("accent", "cancelled", "cancelled"))
        ),
        "shape": alt.Shape(
            "kind:N", title=None, scale=alt.Scale(domain=order, range=["circle", "diamond", "triangle-up"])
        ),
    }
    tips = [
        "n:O",
        alt.Tooltip("C:Q", format=",d", title="rollouts"),
        alt.Tooltip("residual:Q", format="+.2f", title="standard errors"),
        alt.Tooltip("seen:Q", format=".4f"),
        alt.Tooltip("curve:Q", format=".4f"),
    ]
    base = alt.Chart(_data(data))
    stems = base.mark_rule(strokeWidth=1.6, opacity=0.55).encode(x=x, y=y, y2="lane:Q", color=marks["color"])
    dots = base.mark_point(size=46).encode(x=x, y=y, tooltip=tips, **marks)
    whole = alt.layer(stripes.encode(x=x, x2="C2:Q", y=alt.Y("low:Q", title=None), y2="high:Q"), stems, dots)
    return finish(whole, alt_text, 64 * len(sizes) + 20)


def left_out(rows: Rows, alt_text: str) -> Spec:
    """rows: n, run, C, place (0 at the band's lower end, 1 at its upper), held. Every evaluation in its band."""
    sizes, places = sorted({r["n"] for r in rows}), [r["place"] for r in rows]
    x = _compute()
    y = alt.Y(
        "place:Q",
        title="place in the 90 % band of the other runs",
        scale=alt.Scale(domain=[min(-0.25, *places) - 0.08, max(1.25, *places) + 0.08], nice=False),
        axis=alt.Axis(values=[0, 0.5, 1], labelExpr="['lower end', 'middle', 'upper end'][2 * datum.value]"),
    )
    ends = {"C": min(r["C"] for r in rows), "C2": max(r["C"] for r in rows), "low": 0, "high": 1}
    stripe = alt.Chart(_data([ends])).mark_rect(color="var(--line)", opacity=0.55)
    color = alt.Color("n:O", title="n", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes))))
    shape = alt.Shape("n:N", title="n", sort=sizes, scale=alt.Scale(domain=sizes, range=list(SHAPES[: len(sizes)])))
    pick = alt.selection_point(fields=["n"], bind="legend", name="pick")
    seen = alt.condition(pick, alt.value(1.0), alt.value(0.08))
    tips = ["n:O", "run:N", alt.Tooltip("C:Q", format=",d", title="rollouts"), "held:N",
            *(alt.Tooltip(f"{k}:Q", format=".4f") for k in ("reward", "low", "high"))]
    base = alt.Chart(_data(rows))
    faint = alt.condition(pick, alt.value(0.35), alt.value(0.04))
    layers = [
        stripe.encode(x=x, x2="C2:Q", y=alt.Y("low:Q", title=""), y2="high:Q"),
        base.mark_line(strokeWidth=1).encode(x=x, y=y, color=color, detail="run:N", opacity=faint),
        base.mark_point(size=34)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tips)
        .add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 280, zoom=True)


def heat(rows: Rows, alt_text: str) -> Spec:
    """rows, in order: when, rate, share, problems. Darker is more; opacity carries it, so that it follows the theme."""
    whens = list(dict.fromkeys(r["when"] for r in rows))
    rates = sorted({r["rate"] for r in rows}, reverse=True)
    most = max(r["share"] for r in rows)
    x = alt.X(
        "when:O",
        title="training rollouts per run",
        sort=whens,
        axis=alt.Axis(labelAngle=0, labelOverlap="greedy", domain=False, ticks=False),
        scale=alt.Scale(paddingInner=0.04),
    )
    y = alt.Y(
        "rate:O",
        title="pass rate of a problem",
        sort=rates,
        axis=alt.Axis(format=".2f", values=[r for r in rates if 4 * r == int(4 * r)]),
        scale=alt.Scale(paddingInner=0.06),
    )
    tips = [
        alt.Tooltip("when:N", title="rollouts"),
        alt.Tooltip("rate:Q", title="pass rate", format=".3f"),
        alt.Tooltip("problems:Q", format=".1f"),
        alt.Tooltip("share:Q", format=".1%"),
    ]
    depth = alt.Opacity("share:Q", legend=None, scale=alt.Scale(domain=[0, most], range=[0.03, 1]))
    cells = alt.Chart(_data(rows)).mark_rect(color="var(--accent)", cornerRadius=1)
    return finish(cells.encode(x=x, y=y, opacity=depth, tooltip=tips), alt_text, 300)


def by_start(rows: Rows, alt_text: str) -> Spec:
    """rows: n, began, ended, problems. One line for each n over a dashed diagonal; larger points hold more problems."""
    sizes = sorted({r["n"] for r in rows})
    pick = alt.selection_point(fields=["n"], bind="legend", name="pick")
    seen = alt.condition(pick, alt.value(1.0), alt.value(0.1))
    scale, axis = alt.Scale(domain=[0, 1], nice=False, padding=8), alt.Axis(format=".2f", tickCount=5)
    x = alt.X("began:Q", title="pass rate before training", scale=scale, axis=axis)
    y = alt.Y("ended:Q", title="pass rate at the end", scale=alt.Scale(domain=[0, 1], nice=False), axis=axis)
    color = alt.Color("n:O", title="n", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes))))
    shape = alt.Shape("n:N", title="n", sort=sizes, scale=alt.Scale(domain=sizes, range=list(SHAPES[: len(sizes)])))
    tips = ["n:O", *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("began", "ended")), alt.Tooltip("problems:Q")]
    same = alt.Chart(_data([{"began": 0, "ended": 0}, {"began": 1, "ended": 1}]))
    base = alt.Chart(_data(rows))
    layers = [
        same.mark_line(strokeDash=[3, 3], strokeWidth=1, color="var(--soft)").encode(x=x, y=y),
        base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color, opacity=seen),
        base.mark_point(size=40)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tips)
        .add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 340)


def forest(rows: Rows, title: str, alt_text: str, zero: bool = False) -> Spec:
    """rows, in order: label, value, low, high, role ('interval', 'guess', 'outcome' or 'run')."""
    labels = list(dict.fromkeys(r["label"] for r in rows))
    x = alt.X(
        "value:Q",
        title=title,
        scale=alt.Scale(zero=False, nice=True, padding=12),
        axis=alt.Axis(labelFlush=False, tickCount=8),
    )
    y = alt.Y(
        "label:N", title=None, sort=labels, axis=alt.Axis(labelLimit=320, labelFontSize=13, labelColor="var(--ink)")
    )
    tips = ["label:N", *(alt.Tooltip(f"{k}:Q", format=".4f") for k in ("value", "low", "high"))]
    base = alt.Chart(_data(rows))
    bars = base.transform_filter("isValid(datum.low)").mark_rule(
        strokeWidth=6, opacity=0.35, strokeCap="round", color="var(--accent)"
    )
    points = (
        base.transform_filter("datum.role != 'run'")
        .mark_point(size=95, strokeWidth=2)
        .encode(
            x=x,
            y=y,
            tooltip=tips,
            stroke=alt.value("var(--accent)"),
            fill=alt.condition("datum.role == 'guess'", alt.value("var(--paper)"), alt.value("var(--accent)")),
        )
    )
    runs = base.transform_filter("datum.role == 'run'").mark_tick(
        thickness=2, size=16, color="var(--ink)", opacity=0.8
    )
    layers: list[Any] = [
        bars.encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y, tooltip=tips),
        runs.encode(x=x, y=y, tooltip=tips),
        points,
    ]
    if zero:
        layers.insert(0, alt.Chart(_data([{"value": 0}])).mark_rule(strokeDash=[3, 3]).encode(x="value:Q"))
    return finish(alt.layer(*layers), alt_text, 38 * len(labels) + 20)


def fates(rows: Rows, order: Sequence[str], alt_text: str) -> Spec:
    """rows: what, fate, rollouts, share. Stacked, one bar for each kind of run."""
    present = [f for f in order if any(r["fate"] == f and r["rollouts"] for r in rows)]
    whats = list(dict.fromkeys(r["what"] for r in rows))
    pick = alt.selection_point(fields=["fate"], bind="legend", name="pick")
    base = alt.Chart(_data([{**r, "rank": order.index(r["fate"])} for r in rows if r["rollouts"]])).mark_bar(
        height={"band": 0.62}, cornerRadius=1
    )
    chart = base.encode(
        x=alt.X("sum(rollouts):Q", title="rollouts begun", axis=_kilo(), scale=alt.Scale(nice=True)),
        y=alt.Y(
            "what:N", title=None, sort=whats, axis=alt.Axis(labelLimit=260, labelFontSize=13, labelColor="var(--ink)")
        ),
        color=alt.Color("fate:N", title=None, sort=present, scale=alt.Scale(domain=present, range=_var(*present))),
        order=alt.Order("rank:Q"),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.15)),
        tooltip=["what:N", "fate:N", alt.Tooltip("rollouts:Q", format=",d"), alt.Tooltip("share:Q", format=".1%")],
    )
    return finish(chart.add_params(pick), alt_text, 32 * len(whats) + 40)


def phases(rows: Rows, alt_text: str) -> Spec:
    """rows: phase, seconds, label."""
    order = [r["phase"] for r in rows]
    base = alt.Chart(_data(rows)).encode(
        x=alt.X("seconds:Q", title="seconds", axis=alt.Axis(tickCount=6)),
        y=alt.Y("phase:N", title=None, sort=order, axis=alt.Axis(labelFontSize=13, labelColor="var(--ink)")),
        tooltip=["phase:N", alt.Tooltip("seconds:Q", format=",.1f")],
    )
    words = base.mark_text(align="left", dx=6, color="var(--soft)").encode(text="label:N")
    return finish(
        alt.layer(base.mark_bar(height={"band": 0.6}, cornerRadius=1), words), alt_text, 30 * len(order) + 20
    )


def plain_curves(rows: Rows, alt_text: str) -> Spec:
    """rows: run, C, reward. Runs that belong to no study: one line each."""
    runs = sorted({r["run"] for r in rows})
    pick = alt.selection_point(fields=["run"], bind="legend", name="pick")
    color = alt.Color(
        "run:N", title=None, scale=alt.Scale(domain=runs, range=[f"var(--n{i % N_SLOTS})" for i in range(len(runs))])
    )
    tips = ["run:N", alt.Tooltip("C:Q", format=",d", title="rollouts"), alt.Tooltip("reward:Q", format=".3f")]
    data = alt.Chart(_data(rows)).encode(
        x=_compute(), y=_reward(), color=color, opacity=alt.condition(pick, alt.value(1.0), alt.value(0.1))
    )
    return finish(
        alt.layer(data.mark_line(), data.mark_point(size=36).encode(tooltip=tips).add_params(pick)),
        alt_text,
        340,
        zoom=True,
    )


def arm_curves(rows: Rows, means: Rows, alt_text: str, unit: str = "rollouts", what: str = "held-out reward") -> Spec:
    """rows: arm, run, C (in `unit`), reward (which is `what`), thin lines; means: arm, C, reward, thick ones. Arms
    differ in colour and in shape."""
    color, shape = _of_arms(rows)
    pick = alt.selection_point(fields=["arm"], bind="legend", name="pick")
    x, y, data = _compute(unit), _reward(what), alt.Chart(_data(rows))
    seen, faint = (alt.condition(pick, alt.value(a), alt.value(b)) for a, b in ((1.0, 0.08), (0.4, 0.04)))
    tips = ["arm:N", "run:N", alt.Tooltip("C:Q", format=",d", title=unit), alt.Tooltip("reward:Q", format=".3f")]
    layers = [
        data.mark_line(strokeWidth=1).encode(x=x, y=y, color=color, detail="run:N", opacity=faint),
        alt.Chart(_data(means)).mark_line(strokeWidth=2.6).encode(x=x, y=y, color=color, opacity=seen),
        data.mark_point(size=28)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tips)
        .add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 360, zoom=True)


def pass_at_k(rows: Rows, alt_text: str, before: str = "before training") -> Spec:
    """rows: arm, half, run, k, rate. Chance that one of k attempts is right, over k: for each arm and half its mean,
    and as a band what lies between its runs. Arms differ in colour and shape, halves in dashes; `before` is an arm."""
    halves, ks = (list(dict.fromkeys(r[of] for r in rows)) for of in ("half", "k"))
    color, shape = _of_arms(rows, before)
    pick = alt.selection_point(fields=["arm"], bind="legend", name="pick")
    stroke = alt.Legend(symbolType="stroke", symbolSize=320, symbolOffset=12) if len(halves) > 1 else None
    dash = alt.StrokeDash("half:N", title=None, legend=stroke,
                          scale=alt.Scale(domain=halves, range=[[1, 0], [5, 4], [2, 3]][: len(halves)]))
    x = alt.X("k:Q", title="k, attempts (log scale)", scale=alt.Scale(type="log", base=2, nice=False, padding=10),
              axis=alt.Axis(values=ks, format="d"))
    title = "pass@k: one of k attempts is right"
    y = alt.Y("rate:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format=".1f"))
    seen, faint = (alt.condition(pick, alt.value(a), alt.value(b)) for a, b in ((1.0, 0.08), (0.16, 0.02)))
    every = alt.Chart(_data(rows))
    by = every.transform_aggregate(groupby=["arm", "half", "k"], rate="mean(rate)", low="min(rate)", high="max(rate)")
    tips = ["arm:N", "half:N", "k:Q", *(alt.Tooltip(f"{v}:Q", format=".3f") for v in ("rate", "low", "high"))]
    layers = [
        by.mark_area().encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=color, detail="half:N",
                              opacity=faint),
        by.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=color, strokeDash=dash, opacity=seen),
        by.mark_point(size=36).encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tips)
        .add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 400, zoom=True)


def by_rounds(rows: Rows, trained: int, alt_text: str, before: str = "before training") -> Spec:
    """rows: arm, run, rounds, reward. For each arm its mean over the rounds before an answer, and as a band what lies
    between its runs; a line marks the rounds `trained` on. `before` is an arm."""
    color, shape = _of_arms(rows, before)
    pick = alt.selection_point(fields=["arm"], bind="legend", name="pick")
    x = alt.X("rounds:Q", title="rounds of thinking and summing up before the answer",
              axis=alt.Axis(values=sorted({r["rounds"] for r in rows}), format="d"))
    seen, faint = (alt.condition(pick, alt.value(a), alt.value(b)) for a, b in ((1.0, 0.08), (0.16, 0.02)))
    by = alt.Chart(_data(rows)).transform_aggregate(
        groupby=["arm", "rounds"], reward="mean(reward)", low="min(reward)", high="max(reward)")
    tips = ["arm:N", "rounds:Q", *(alt.Tooltip(f"{v}:Q", format=".3f") for v in ("reward", "low", "high"))]
    y, mark = _reward(), alt.Chart(_data([{"rounds": trained, "text": "trained on up to here"}]))
    layers = [
        mark.mark_rule(strokeDash=[3, 3], color="var(--soft)").encode(x=x),
        mark.mark_text(align="left", dx=6, color="var(--soft)").encode(x=x, y=alt.value(10), text="text:N"),
        by.mark_area().encode(x=x, y=alt.Y("low:Q", title="held-out reward"), y2="high:Q", color=color,
                              opacity=faint),
        by.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=color, opacity=seen),
        by.mark_point(size=36).encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tips)
        .add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 360, zoom=True)


def ends(rows: Rows, x_title: str, y_title: str, alt_text: str, before: str = "before training") -> Spec:
    """rows: arm, x, y. A small mark for each run's end, a large one for the mean of each arm. `before` is an arm."""
    color, shape = _of_arms(rows, before, "cross")
    pick = alt.selection_point(fields=["arm"], bind="legend", name="pick")
    scale, axis = alt.Scale(zero=False, nice=True, padding=10), alt.Axis(tickCount=6)
    x, y = alt.X("x:Q", title=x_title, scale=scale, axis=axis), alt.Y("y:Q", title=y_title, scale=scale, axis=axis)
    seen, faint = (alt.condition(pick, alt.value(a), alt.value(b)) for a, b in ((1.0, 0.08), (0.5, 0.04)))
    tips = ["arm:N", *(alt.Tooltip(f"{v}:Q", format=".3f", title=t) for v, t in (("x", x_title), ("y", y_title)))]
    base = alt.Chart(_data(rows))
    layers = [
        base.mark_point(size=36).encode(x=x, y=y, color=color, shape=shape, opacity=faint, tooltip=tips),
        base.transform_aggregate(groupby=["arm"], x="mean(x)", y="mean(y)").mark_point(size=170, strokeWidth=3)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tips).add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 360, zoom=True)


def _of_arms(rows: Rows, before: str = "", its_mark: str = "stroke") -> tuple[alt.Color, alt.Shape]:
    """Colours and shapes of arms in the order in which they come; what was there `before` is drawn back."""
    arms = list(dict.fromkeys(r["arm"] for r in rows))
    own = [a for a in arms if a != before]
    colours = {a: f"var(--{CATEGORIES[i % len(CATEGORIES)]})" for i, a in enumerate(own)} | {before: "var(--soft)"}
    marks = {a: SHAPES[i % len(SHAPES)] for i, a in enumerate(own)} | {before: its_mark}
    return (alt.Color("arm:N", title=None, scale=alt.Scale(domain=arms, range=[colours[a] for a in arms])),
            alt.Shape("arm:N", title=None, scale=alt.Scale(domain=arms, range=[marks[a] for a in arms])))


def plane(rows: Rows, x_title: str, y_title: str, alt_text: str) -> Spec:
    """rows: name, x, x_low, x_high (factors above 0), y, y_low, y_high, told (bool). A cross of intervals for each."""
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(type="log", nice=False, padding=16), axis=alt.Axis(format="~g"))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(format="+.2f"))
    pick = alt.selection_point(fields=["name"], name="pick", empty=False)
    color = alt.condition("datum.told", alt.value("var(--accent)"), alt.value("var(--soft)"))
    faint = alt.condition(pick, alt.value(0.9), alt.value(0.18))
    tips = ["name:N", *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("x", "x_low", "x_high", "y", "y_low", "y_high"))]
    base = alt.Chart(_data(rows))
    layers = [
        alt.Chart(_data([{"x": 1.0}])).mark_rule(strokeDash=[3, 3]).encode(x=alt.X("x:Q", title=x_title)),
        alt.Chart(_data([{"y": 0.0}])).mark_rule(strokeDash=[3, 3]).encode(y=alt.Y("y:Q", title=y_title)),
        base.mark_rule(strokeWidth=1.5).encode(x=alt.X("x_low:Q", title=x_title), x2="x_high:Q", y=y, color=color,
                                               opacity=faint),
        base.mark_rule(strokeWidth=1.5).encode(x=x, y=alt.Y("y_low:Q", title=y_title), y2="y_high:Q", color=color,
                                               opacity=faint),
        base.mark_point(size=48, filled=True, opacity=1).encode(x=x, y=y, color=color, tooltip=tips).add_params(pick),
        base.transform_filter("datum.told")     # the others lie on one another around no effect
        .mark_text(align="left", dx=7, dy=-6, fontSize=12).encode(x=x, y=y, text="name:N", color=color),
    ]
    return finish(alt.layer(*layers), alt_text, 520, zoom=True)


def series_colours(count: int) -> list[str]:
    """`count` of the ordered colours, as far apart as they go."""
    if count <= 1:
        return ["var(--n2)"]
    slots = [round(i * (N_SLOTS - 1) / (min(count, N_SLOTS) - 1)) for i in range(min(count, N_SLOTS))]
    return [f"var(--n{slots[i % len(slots)]})" for i in range(count)]


def _var(*names: str) -> list[str]:
    return [f"var(--{n})" for n in names]


def _data(rows: Rows) -> alt.Data:
    return alt.Data(values=[dict(r) for r in rows])


def _kilo() -> alt.Axis:
    return alt.Axis(labelExpr="format(datum.value, '~s')", tickCount=6)


def _log_axis() -> alt.Axis:
    """Labels at 1, 2 and 5 times powers of ten, however far one zooms."""
    return alt.Axis(
        labelExpr="indexof('125', slice(toString(datum.value), 0, 1)) >= 0 ? format(datum.value, '~s') : ''"
    )


def _compute(unit: str = "rollouts") -> alt.X:
    scale = alt.Scale(type="log", nice=False, padding=10)
    return alt.X("C:Q", title=f"C, training {unit} per run (log scale)", scale=scale, axis=_log_axis())


def _reward(what: str = "held-out reward") -> alt.Y:
    return alt.Y(
        "reward:Q", title=what, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(format=".2f")
    )


def _level(value: float, text: str, channel: str) -> list[alt.Chart]:
    data = alt.Chart(_data([{channel: value, "text": text}]))
    rule = data.mark_rule(strokeDash=[3, 3]).encode(y=alt.Y(f"{channel}:Q"))
    return [
        rule,
        data.mark_text(align="left", x=4, dy=-7, color="var(--soft)").encode(y=alt.Y(f"{channel}:Q"), text="text:N"),
    ]


def _fence(c: float, text: str) -> list[alt.Chart]:
    data = alt.Chart(_data([{"C": c, "text": text}]))
    rule = data.mark_rule(strokeDash=[3, 3]).encode(x="C:Q")
    return [rule, data.mark_text(align="right", dx=-5, y=8, color="var(--soft)").encode(x="C:Q", text="text:N")]


def _beyond(reach: Rows) -> list[alt.Chart]:
    """What was not seen: shaded from the pilot's end to the rollouts asked about, with a word on how far that is."""
    if not reach:
        return []
    data = alt.Chart(_data(reach))
    shade = data.mark_rect(color="var(--unknown)").encode(x=alt.X("C:Q"), x2="C2:Q")
    rule = data.mark_rule(strokeDash=[3, 3]).encode(x=alt.X("C:Q"))
    words = data.mark_text(align="right", baseline="top", dx=-6, y=4, color="var(--soft)", lineBreak="\n")
    return [shade, rule, words.encode(x=alt.X("C:Q"), text="text:N")]


def finish(chart: Any, alt_text: str, height: int, zoom: bool = False) -> Spec:
    """Sizes, description and, where there is something to look into, pan by dragging, zoom by ctrl + wheel."""
    if zoom:
        axes = [(x.encoding.x, x.encoding.y) for x in chart.layer]
        place = next(i for i, (x, y) in enumerate(axes) if isinstance(x, alt.X) and isinstance(y, alt.Y))
        # a layer that lacks an axis cannot carry the selection that moves both
        params = alt.selection_interval(bind="scales", name="zoom", zoom="wheel![event.ctrlKey]")
        chart.layer[place] = chart.layer[place].add_params(params)
    # altair's own check of every row against the grammar takes longer than all the rest of a page
    spec = chart.properties(width="container", height=height, description=alt_text).to_dict(validate=False)
    spec.pop("config", None)
    return _numbered({**spec, "autosize": {"type": "fit-x", "contains": "padding"}})


def _numbered(spec: Spec) -> Spec:
    """Views renamed in order: altair counts them over the life of a process, and bytes must not depend on it."""
    text = json.dumps(spec)
    found = dict.fromkeys(re.findall(r'"(view_\d+)"', text))
    for i, name in enumerate(found):
        text = text.replace(f'"{name}"', f'"plot_{i}"')
    renamed: Spec = json.loads(text)
    return renamed
