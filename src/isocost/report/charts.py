"""The plots, as Vega-Lite specifications. Colours are CSS variables, so one picture serves light, dark and print.

Every function takes rows (plain dicts, which the CSV download contains) and returns a specification; none reads files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import altair as alt

from isocost.report.theme import (
    SHAPES,
    STANDINGS,
    Rows,
    Spec,
    compute_axis,
    data_of,
    finish,
    kilo_axis,
    level_line,
    log_axis,
    reward_axis,
    series_colours,
    tooltips,
    variables,
)


def histogram(rows: Rows, alt_text: str, *, graded: bool = False) -> Spec:
    """rows: right, samples, pass1, problems, kind ('mixed' or 'dead at this many samples').

    Of `graded` rewards `right` is the mean reward in parts of `samples`, and all bars are of one kind.
    """
    title = "mean reward of a problem, in parts of its samples" if graded else (
        "right answers among the samples of a problem")
    kinds = ["some right"] if graded else ["some right", "all or none right"]
    base = (
        alt.Chart(data_of(rows))
        .mark_bar(binSpacing=1, cornerRadiusTopLeft=2, cornerRadiusTopRight=2)
        .encode(
            x=alt.X("right:O", title=title, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("problems:Q", title="problems", axis=alt.Axis(tickMinStep=1)),
            color=alt.Color(
                "kind:N",
                title=None,
                scale=alt.Scale(domain=kinds, range=variables("accent", "dead")[: len(kinds)]),
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
    y = alt.Y("share:Q", title="share of dead groups", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    tips = ["n:Q", *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("share", "low", "high")), "kind:N"]
    base = alt.Chart(data_of(rows))
    line = base.mark_line(opacity=0.5).encode(x=x, y=y)
    bars = base.mark_rule(strokeWidth=2, color="var(--accent)").encode(
        x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"))
    points = base.mark_point(size=70, strokeWidth=2).encode(
        x=x,
        y=y,
        tooltip=tooltips(tips),
        shape=alt.Shape(
            "kind:N", title=None, scale=alt.Scale(domain=["unbiased", "beta-binomial"], range=["circle", "diamond"])
        ),
        fill=alt.condition("datum.kind == 'unbiased'", alt.value("var(--accent)"), alt.value("var(--paper)")),
        stroke=alt.value("var(--accent)"),
    )
    return finish(alt.layer(line, bars, points), alt_text, 240)


def rates(rows: Rows, base_reward: float | None, alt_text: str) -> Spec:
    """rows: lr, nB, reward, probe ('kept' or 'rejected'), run."""
    sizes = sorted({r["nB"] for r in rows})
    y = alt.Y("reward:Q", title="held-out reward at the end", scale=alt.Scale(zero=False, nice=True))
    data = alt.Chart(data_of(rows))
    color = alt.Color("nB:O", title="nB", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes))))
    x = alt.X(
        "lr:Q",
        title="learning rate",
        scale=alt.Scale(type="log", nice=False, padding=24),
        axis=alt.Axis(format=".1e", values=sorted({r["lr"] for r in rows}), labelOverlap="greedy"),
    )
    tips = ["run:N", alt.Tooltip("lr:Q", format=".2e"), "nB:Q", alt.Tooltip("reward:Q", format=".3f"), "probe:N"]
    lines = data.mark_line(opacity=0.6).encode(x=x, y=y, color=color)
    points = data.mark_point(strokeWidth=2, size=70).encode(
        x=x,
        y=y,
        color=color,
        tooltip=tooltips(tips),
        shape=alt.Shape("probe:N", title=None, scale=alt.Scale(domain=["kept", "rejected"], range=["circle", "cross"])),
    )
    layers: list[Any] = [lines, points]
    if base_reward is not None:
        layers += level_line(base_reward, "before training", "reward")
    return finish(alt.layer(*layers), alt_text, 260, zoom=True)


def curves(points: Rows, fits: Rows, alt_text: str, chosen: int | None = None, reach: Rows = ()) -> Spec:
    """points: n, C, reward, runs, low, high; fits: n, C, reward, low, high, beyond (whether extrapolated).

    One line for each n. `reach` is at most one row, the region beyond the pilot: C, C2, text.
    """
    sizes = sorted({r["n"] for r in (*points, *fits)})
    pick = alt.selection_point(fields=["n"], bind="legend", name="pick")
    seen = alt.condition(pick, alt.value(1.0), alt.value(0.12))
    color = alt.Color("n:O", title="n", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes))))
    shape = alt.Shape("n:N", title="n", sort=sizes, scale=alt.Scale(domain=sizes, range=list(SHAPES[: len(sizes)])))
    x, y = compute_axis(), reward_axis()
    layers: list[Any] = _beyond(reach)
    if fits:
        data = alt.Chart(data_of(fits))
        faint = alt.condition(pick, alt.value(0.16), alt.value(0.03))
        layers.append(
            data.transform_filter("isValid(datum.low)")
            .mark_area()
            .encode(x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"), color=color, opacity=faint)
        )
        width = alt.condition(f"datum.n == {chosen or 0}", alt.value(3.5), alt.value(1.8))
        for dash, where in (([1, 0], "!datum.beyond"), ([5, 4], "datum.beyond")):
            line = data.transform_filter(where).mark_line(strokeDash=dash)
            layers.append(line.encode(x=x, y=y, color=color, opacity=seen, size=width))
    tips = ["n:O", alt.Tooltip("C:Q", format=",d", title="rollouts"), alt.Tooltip("reward:Q", format=".3f"), "runs:Q"]
    dots = alt.Chart(data_of(points)).mark_point(size=46)
    dots = dots.encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tooltips(tips))
    layers.append(dots.add_params(pick))
    return finish(alt.layer(*layers), alt_text, 380, zoom=True)


@dataclass(frozen=True)
class AfterPilot:
    """What training showed. lines: n, run, C, reward; sealed (at most one forecast): C, value, low, high; ends: n, C,
    reward, the means at the end; words: C, reward, text, right of the end."""

    lines: Rows
    sealed: Rows
    ends: Rows
    words: Rows


def overview(points: Rows, fits: Rows, reach: Rows, outcome: AfterPilot, alt_text: str, chosen: int) -> Spec:
    """Pilot, forecast and outcome. points, fits and reach as in `curves`."""
    lines, sealed, ends, words = outcome.lines, outcome.sealed, outcome.ends, outcome.words
    sizes = sorted({r["n"] for r in (*points, *fits, *lines)})
    color = alt.Color("n:O", title="n", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes))))
    first, last = (f(r["C"] for r in (*points, *lines, *sealed, *ends)) for f in (min, max))
    room = alt.Scale(type="log", nice=False, domain=[first, last * (last / first) ** 0.3])      # for the words
    x, y = compute_axis().scale(room), reward_axis()
    layers: list[Any] = _fence(reach[0]["C"], "the pilot ends here", "center") if reach else []
    if fits:
        layers.append(alt.Chart(data_of(fits)).transform_filter("isValid(datum.low)").mark_area(opacity=0.13).encode(
            x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"), color=color))
        width = alt.condition(f"datum.n == {chosen}", alt.value(3.2), alt.value(1.4))
        for dash, where in (([1, 0], "!datum.beyond"), ([5, 4], f"datum.beyond && datum.n == {chosen}")):
            layers.append(alt.Chart(data_of(fits)).transform_filter(where).mark_line(strokeDash=dash).encode(
                x=x, y=y, color=color, size=width))
    if lines:
        layers.append(alt.Chart(data_of(lines)).mark_line(strokeWidth=1.1, opacity=0.6).encode(
            x=x, y=y, color=color, detail=alt.Detail("run:N")))
    tips = ["n:O", alt.Tooltip("C:Q", format=",d", title="rollouts"), alt.Tooltip("reward:Q", format=".3f")]
    layers.append(alt.Chart(data_of(points)).mark_point(size=34).encode(x=x, y=y, color=color, tooltip=tooltips(tips)))
    for row in sealed:
        bar = alt.Chart(data_of([{**row, "C": row["C"] * 1.1}]))
        layers.append(bar.mark_rule(strokeWidth=10, opacity=0.45, color="var(--accent)").encode(
            x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q")))
        layers.append(bar.mark_tick(orient="horizontal", thickness=3, size=24, color="var(--accent)").encode(
            x=x, y=alt.Y("value:Q", title="")))
    if ends:
        marks = alt.Chart(data_of([{**r, "C": r["C"] * 1.24} for r in ends]))
        layers.append(marks.mark_point(shape="diamond", size=110, filled=True, opacity=1).encode(
            x=x, y=y, color=color, tooltip=tooltips(tips)))
    if words:
        text = alt.Chart(data_of([{**r, "C": r["C"] * 1.42} for r in words]))
        layers.append(text.mark_text(align="left", fontSize=12.5).encode(x=x, y=y, text=alt.Text("text:N")))
    return finish(alt.layer(*layers), alt_text, 400)


def frontier(rows: Rows, observed: Rows, reach: Rows, alt_text: str) -> Spec:
    """rows: C, reward, low, high, n; observed (record-breaking points, for display): C, reward, n; reach as above."""
    x, y = compute_axis(), reward_axis()
    data = alt.Chart(data_of(rows))
    band = data.mark_area(opacity=0.16).encode(x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"))
    tips = [
        alt.Tooltip("C:Q", format=",d", title="rollouts"),
        "n:O",
        *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("reward", "low", "high")),
    ]
    line = data.mark_line(strokeWidth=2.5).encode(x=x, y=y, tooltip=tooltips(tips))
    layers: list[Any] = [*_beyond(reach), band, line]
    if observed:
        marks = alt.Chart(data_of(observed)).mark_point(filled=False, stroke="var(--ink)", size=50, strokeWidth=1.5)
        layers.append(marks.encode(x=x, y=y, tooltip=[*tips[:2], alt.Tooltip("reward:Q", format=".3f")]))
    return finish(alt.layer(*layers), alt_text, 280, zoom=True)


def equals(rows: Rows, optimum: Rows, pilot_end: float | None, alt_text: str) -> Spec:
    """rows: C, C2, n, standing (of STANDINGS), behind; optimum, where n* is identified: C, n, low, high."""
    sizes = sorted({r["n"] for r in rows}, reverse=True)
    data = alt.Chart(data_of(rows))
    x = alt.X("C:Q", title="C, training rollouts per run", scale=alt.Scale(type="log", nice=False), axis=log_axis())
    fill = alt.Color(
        "standing:N",
        scale=alt.Scale(domain=list(STANDINGS), range=variables(*STANDINGS.values())),
        legend=alt.Legend(title=None, offset=24 if pilot_end else 12),      # room for the label of the pilot's end
    )
    tips = [
        alt.Tooltip("C:Q", format=",.0f", title="rollouts"),
        "n:O",
        "standing:N",
        alt.Tooltip("behind:Q", format=".3f", title="below the best"),
    ]
    y = alt.Y("n:O", title="n", sort=sizes, scale=alt.Scale(paddingInner=0.15))
    cells = data.mark_rect(cornerRadius=1).encode(x=x, x2=alt.X2("C2:Q"), y=y, color=fill, tooltip=tooltips(tips))
    layers: list[Any] = [cells, *(_fence(pilot_end, "end of the pilot") if pilot_end else [])]
    return (
        finish(alt.layer(*layers), alt_text, 34 * len(sizes) + 40)
        if not optimum
        else _optimum(optimum, pilot_end, alt_text)
    )


def _optimum(rows: Rows, pilot_end: float | None, alt_text: str) -> Spec:
    data = alt.Chart(data_of(rows))
    x = compute_axis()
    y = alt.Y(
        "n:Q",
        title="n*, the best rollouts per problem",
        scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(format="d"),
    )
    band = data.mark_area(opacity=0.16).encode(x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"))
    tips = [
        alt.Tooltip("C:Q", format=",d", title="rollouts"),
        *(alt.Tooltip(f"{k}:Q", format=".2f") for k in ("n", "low", "high")),
    ]
    line = data.mark_line(strokeWidth=2.5).encode(x=x, y=y, tooltip=tooltips(tips))
    return finish(
        alt.layer(band, line, *(_fence(pilot_end, "end of the pilot") if pilot_end else [])), alt_text, 240, zoom=True
    )


def forecast_path(path: Rows, naive: Rows, lines: Rows, sealed: Rows, reach: Rows, alt_text: str) -> Spec:
    """The sealed law's prediction over compute, and the trained runs.

    path: C, value, low, high; naive: name, C, reward, side (of its label); lines: what, run, C, reward; sealed: C,
    value, low, high, label (the forecast is a bar at its C); reach as in `curves`.
    """
    whats = list(dict.fromkeys(r["what"] for r in lines))
    colours = dict(zip(whats, variables("ink", "filtered"), strict=False))
    color = alt.Color(
        "what:N",
        legend=alt.Legend(title=None, symbolType="stroke", symbolSize=320),
        scale=alt.Scale(domain=list(colours), range=list(colours.values())),
    )
    x, y = compute_axis(), reward_axis()
    layers: list[Any] = _beyond(reach)
    if path:
        predicted = alt.Chart(data_of(path))
        tips: list[Any] = [
            alt.Tooltip("C:Q", format=",d", title="rollouts"),
            *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("value", "low", "high")),
        ]
        layers.append(predicted.mark_area(opacity=0.2).encode(x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q")))
        layers.append(
            predicted.mark_line(strokeWidth=2, strokeDash=[6, 3])
            .encode(x=x, y=alt.Y("value:Q", title=""), tooltip=tooltips(tips))
        )
    if naive:
        guess = alt.Chart(data_of(naive))
        layers.append(
            guess.mark_line(strokeWidth=1.4, strokeDash=[2, 3], color="var(--soft)").encode(
                x=x, y=y, detail=alt.Detail("name:N"))
        )
        for side, dy in (("above", -9), ("below", 11)):
            words = guess.transform_filter(f"datum.side == '{side}'").mark_text(align="right", dx=-12, dy=dy)
            layers.append(words.encode(x=x, y=y, text=alt.Text("name:N"), color=alt.value("var(--soft)")))
    if lines:
        data = alt.Chart(data_of(lines))
        tips = [
            "what:N",
            "run:N",
            alt.Tooltip("C:Q", format=",d", title="rollouts"),
            alt.Tooltip("reward:Q", format=".3f"),
        ]
        layers.append(data.mark_line(strokeWidth=1.2, opacity=0.6).encode(
            x=x, y=y, color=color, detail=alt.Detail("run:N")))
        layers.append(data.mark_point(size=24).encode(x=x, y=y, color=color, tooltip=tooltips(tips)))
    if sealed:
        bar = alt.Chart(data_of(sealed))
        tips = ["label:N", *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("value", "low", "high"))]
        layers.append(
            bar.mark_rule(strokeWidth=9, opacity=0.45).encode(
                x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"), tooltip=tooltips(tips),
                color=alt.value("var(--accent)")
            )
        )
        layers.append(
            bar.mark_tick(orient="horizontal", thickness=3, size=26, color="var(--accent)").encode(
                x=x, y=alt.Y("value:Q", title="")
            )
        )
    return finish(alt.layer(*layers), alt_text, 360, zoom=True)


LANE = 4.0  # half the height of a lane of `residuals`, in standard errors


def residuals(rows: Rows, alt_text: str) -> Spec:
    """rows: n, C, residual (in standard errors), within. One lane for each n, its curve in the middle."""
    sizes = sorted({r["n"] for r in rows}, reverse=True)
    place = {n: i for i, n in enumerate(sizes)}
    far, order = LANE - 0.2, ["within 2 standard errors", "beyond 2", f"beyond {LANE:g}, off scale"]
    data = [
        {
            **r,
            "lane": place[r["n"]],
            "y": place[r["n"]] + max(-far, min(far, r["residual"])) / (2 * LANE),
            "kind": order[2] if abs(r["residual"]) > far else order[0] if r["within"] else order[1],
        }
        for r in rows
    ]
    x = compute_axis()
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
        data_of([{"C": ends[0], "C2": ends[1], "low": i - half, "high": i + half} for i in range(len(sizes))])
    ).mark_rect(color="var(--line)", opacity=0.55, cornerRadius=2)
    marks = {
        "color": alt.Color(
            "kind:N", title=None, scale=alt.Scale(domain=order, range=variables("accent", "cancelled", "cancelled"))
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
    base = alt.Chart(data_of(data))
    stems = base.mark_rule(strokeWidth=1.6, opacity=0.55).encode(x=x, y=y, y2=alt.Y2("lane:Q"), color=marks["color"])
    dots = base.mark_point(size=46).encode(x=x, y=y, tooltip=tooltips(tips), **marks)
    stripes = stripes.encode(x=x, x2=alt.X2("C2:Q"), y=alt.Y("low:Q", title=None), y2=alt.Y2("high:Q"))
    whole = alt.layer(stripes, stems, dots)
    return finish(whole, alt_text, 64 * len(sizes) + 20)


def left_out(rows: Rows, alt_text: str) -> Spec:
    """rows: n, run, C, place (0 at the band's lower end, 1 at its upper), held. Every evaluation in its band."""
    sizes, places = sorted({r["n"] for r in rows}), [r["place"] for r in rows]
    x = compute_axis()
    y = alt.Y(
        "place:Q",
        title="position in the 90 % band of the other runs",
        scale=alt.Scale(domain=[min(-0.25, *places) - 0.08, max(1.25, *places) + 0.08], nice=False),
        axis=alt.Axis(values=[0, 0.5, 1], labelExpr="['lower end', 'middle', 'upper end'][2 * datum.value]"),
    )
    ends = {"C": min(r["C"] for r in rows), "C2": max(r["C"] for r in rows), "low": 0, "high": 1}
    stripe = alt.Chart(data_of([ends])).mark_rect(color="var(--line)", opacity=0.55)
    color = alt.Color("n:O", title="n", scale=alt.Scale(domain=sizes, range=series_colours(len(sizes))))
    shape = alt.Shape("n:N", title="n", sort=sizes, scale=alt.Scale(domain=sizes, range=list(SHAPES[: len(sizes)])))
    pick = alt.selection_point(fields=["n"], bind="legend", name="pick")
    seen = alt.condition(pick, alt.value(1.0), alt.value(0.08))
    tips = ["n:O", "run:N", alt.Tooltip("C:Q", format=",d", title="rollouts"), "held:N",
            *(alt.Tooltip(f"{k}:Q", format=".4f") for k in ("reward", "low", "high"))]
    base = alt.Chart(data_of(rows))
    faint = alt.condition(pick, alt.value(0.35), alt.value(0.04))
    layers = [
        stripe.encode(x=x, x2=alt.X2("C2:Q"), y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q")),
        base.mark_line(strokeWidth=1).encode(x=x, y=y, color=color, detail=alt.Detail("run:N"), opacity=faint),
        base.mark_point(size=34)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tooltips(tips))
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
    cells = alt.Chart(data_of(rows)).mark_rect(color="var(--accent)", cornerRadius=1)
    return finish(cells.encode(x=x, y=y, opacity=depth, tooltip=tooltips(tips)), alt_text, 300)


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
    same = alt.Chart(data_of([{"began": 0, "ended": 0}, {"began": 1, "ended": 1}]))
    base = alt.Chart(data_of(rows))
    layers = [
        same.mark_line(strokeDash=[3, 3], strokeWidth=1, color="var(--soft)").encode(x=x, y=y),
        base.mark_line(strokeWidth=1.8).encode(x=x, y=y, color=color, opacity=seen),
        base.mark_point(size=40)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tooltips(tips))
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
    base = alt.Chart(data_of(rows))
    bars = base.transform_filter("isValid(datum.low)").mark_rule(
        strokeWidth=6, opacity=0.35, strokeCap="round", color="var(--accent)"
    )
    points = (
        base.transform_filter("datum.role != 'run'")
        .mark_point(size=95, strokeWidth=2)
        .encode(
            x=x,
            y=y,
            tooltip=tooltips(tips),
            stroke=alt.value("var(--accent)"),
            fill=alt.condition("datum.role == 'guess'", alt.value("var(--paper)"), alt.value("var(--accent)")),
        )
    )
    runs = base.transform_filter("datum.role == 'run'").mark_tick(thickness=2, size=16, color="var(--ink)", opacity=0.8)
    layers: list[Any] = [
        bars.encode(x=alt.X("low:Q", title=title), x2=alt.X2("high:Q"), y=y, tooltip=tooltips(tips)),
        runs.encode(x=x, y=y, tooltip=tooltips(tips)),
        points,
    ]
    if zero:
        layers.insert(0, alt.Chart(data_of([{"value": 0}])).mark_rule(strokeDash=[3, 3]).encode(x=alt.X("value:Q")))
    return finish(alt.layer(*layers), alt_text, 38 * len(labels) + 20)


def fates(rows: Rows, order: Sequence[str], alt_text: str) -> Spec:
    """rows: what, fate, rollouts, share. Stacked, one bar for each kind of run."""
    present = [f for f in order if any(r["fate"] == f and r["rollouts"] for r in rows)]
    whats = list(dict.fromkeys(r["what"] for r in rows))
    pick = alt.selection_point(fields=["fate"], bind="legend", name="pick")
    base = alt.Chart(data_of([{**r, "rank": order.index(r["fate"])} for r in rows if r["rollouts"]])).mark_bar(
        height={"band": 0.62}, cornerRadius=1
    )
    chart = base.encode(
        x=alt.X("sum(rollouts):Q", title="rollouts started", axis=kilo_axis(), scale=alt.Scale(nice=True)),
        y=alt.Y(
            "what:N", title=None, sort=whats, axis=alt.Axis(labelLimit=260, labelFontSize=13, labelColor="var(--ink)")
        ),
        color=alt.Color("fate:N", title=None, sort=present, scale=alt.Scale(domain=present, range=variables(*present))),
        order=alt.Order("rank:Q"),
        opacity=alt.condition(pick, alt.value(1.0), alt.value(0.15)),
        tooltip=["what:N", "fate:N", alt.Tooltip("rollouts:Q", format=",d"), alt.Tooltip("share:Q", format=".1%")],
    )
    return finish(chart.add_params(pick), alt_text, 32 * len(whats) + 40)


def phases(rows: Rows, alt_text: str) -> Spec:
    """rows: phase, seconds, label."""
    order = [r["phase"] for r in rows]
    base = alt.Chart(data_of(rows)).encode(
        x=alt.X("seconds:Q", title="seconds", axis=alt.Axis(tickCount=6)),
        y=alt.Y("phase:N", title=None, sort=order, axis=alt.Axis(labelFontSize=13, labelColor="var(--ink)")),
        tooltip=["phase:N", alt.Tooltip("seconds:Q", format=",.1f")],
    )
    words = base.mark_text(align="left", dx=6, color="var(--soft)").encode(text=alt.Text("label:N"))
    return finish(alt.layer(base.mark_bar(height={"band": 0.6}, cornerRadius=1), words), alt_text, 30 * len(order) + 20)


def _fence(c: float, text: str, align: Literal["right", "center"] = "right") -> list[alt.Chart]:
    """A dashed line at C with a text above it."""
    data = alt.Chart(data_of([{"C": c, "text": text}]))
    rule = data.mark_rule(strokeDash=[3, 3]).encode(x=alt.X("C:Q"))
    words = data.mark_text(align=align, dx=-5 if align == "right" else 0, y=-6, color="var(--soft)")
    return [rule, words.encode(x=alt.X("C:Q"), text=alt.Text("text:N"))]


def _beyond(reach: Rows) -> list[alt.Chart]:
    """The extrapolated range, shaded from the pilot's end to the prescribed rollouts, with a label."""
    if not reach:
        return []
    data = alt.Chart(data_of(reach))
    shade = data.mark_rect(color="var(--unknown)").encode(x=alt.X("C:Q"), x2=alt.X2("C2:Q"))
    rule = data.mark_rule(strokeDash=[3, 3]).encode(x=alt.X("C:Q"))
    words = data.mark_text(align="right", baseline="top", dx=-6, y=4, color="var(--soft)", lineBreak="\n")
    return [shade, rule, words.encode(x=alt.X("C:Q"), text=alt.Text("text:N"))]
