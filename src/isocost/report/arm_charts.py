"""Charts of arms beside each other: comparisons, answers per problem, test-time rounds."""

from __future__ import annotations

import altair as alt

from isocost.report.theme import (
    CATEGORIES,
    N_SLOTS,
    SHAPES,
    Rows,
    Spec,
    compute_axis,
    data_of,
    finish,
    reward_axis,
    tooltips,
)


def plain_curves(rows: Rows, alt_text: str) -> Spec:
    """rows: run, C, reward. Runs that belong to no study: one line each."""
    runs = sorted({r["run"] for r in rows})
    pick = alt.selection_point(fields=["run"], bind="legend", name="pick")
    color = alt.Color(
        "run:N", title=None, scale=alt.Scale(domain=runs, range=[f"var(--n{i % N_SLOTS})" for i in range(len(runs))])
    )
    tips = ["run:N", alt.Tooltip("C:Q", format=",d", title="rollouts"), alt.Tooltip("reward:Q", format=".3f")]
    data = alt.Chart(data_of(rows)).encode(
        x=compute_axis(), y=reward_axis(), color=color, opacity=alt.condition(pick, alt.value(1.0), alt.value(0.1))
    )
    return finish(
        alt.layer(data.mark_line(), data.mark_point(size=36).encode(tooltip=tooltips(tips)).add_params(pick)),
        alt_text,
        340,
        zoom=True,
    )


def arm_curves(rows: Rows, means: Rows, alt_text: str, unit: str = "rollouts", what: str = "held-out reward") -> Spec:
    """rows: arm, run, C (in `unit`), reward (which is `what`), thin lines; means: arm, C, reward, thick ones. Arms
    differ in colour and in shape."""
    color, shape = _of_arms(rows)
    pick = alt.selection_point(fields=["arm"], bind="legend", name="pick")
    x, y, data = compute_axis(unit), reward_axis(what), alt.Chart(data_of(rows))
    seen, faint = (alt.condition(pick, alt.value(a), alt.value(b)) for a, b in ((1.0, 0.08), (0.4, 0.04)))
    tips = ["arm:N", "run:N", alt.Tooltip("C:Q", format=",d", title=unit), alt.Tooltip("reward:Q", format=".3f")]
    layers = [
        data.mark_line(strokeWidth=1).encode(x=x, y=y, color=color, detail=alt.Detail("run:N"), opacity=faint),
        alt.Chart(data_of(means)).mark_line(strokeWidth=2.6).encode(x=x, y=y, color=color, opacity=seen),
        data.mark_point(size=28)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tooltips(tips))
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
    every = alt.Chart(data_of(rows))
    by = every.transform_aggregate(groupby=["arm", "half", "k"], rate="mean(rate)", low="min(rate)", high="max(rate)")
    tips = ["arm:N", "half:N", "k:Q", *(alt.Tooltip(f"{v}:Q", format=".3f") for v in ("rate", "low", "high"))]
    layers = [
        by.mark_area().encode(x=x, y=alt.Y("low:Q", title=title), y2=alt.Y2("high:Q"), color=color,
                              detail=alt.Detail("half:N"), opacity=faint),
        by.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=color, strokeDash=dash, opacity=seen),
        by.mark_point(size=36).encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tooltips(tips))
        .add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 400, zoom=True)


def by_rounds(rows: Rows, trained: int | None, alt_text: str, before: str = "before training",
              title: str = "rounds of thinking and summing up before the answer") -> Spec:
    """rows: arm, run, rounds, reward. For each arm its mean over the rounds before an answer, or what `title` says, and
    as a band what lies between its runs; a line marks the rounds `trained` on, if given. `before` is an arm."""
    color, shape = _of_arms(rows, before)
    pick = alt.selection_point(fields=["arm"], bind="legend", name="pick")
    x = alt.X("rounds:Q", title=title,
              axis=alt.Axis(values=sorted({r["rounds"] for r in rows}), format="d"))
    seen, faint = (alt.condition(pick, alt.value(a), alt.value(b)) for a, b in ((1.0, 0.08), (0.16, 0.02)))
    by = alt.Chart(data_of(rows)).transform_aggregate(
        groupby=["arm", "rounds"], reward="mean(reward)", low="min(reward)", high="max(reward)")
    tips = ["arm:N", "rounds:Q", *(alt.Tooltip(f"{v}:Q", format=".3f") for v in ("reward", "low", "high"))]
    y, mark = reward_axis(), alt.Chart(data_of([{"rounds": trained, "text": "trained on up to here"}]))
    marks = [
        mark.mark_rule(strokeDash=[3, 3], color="var(--soft)").encode(x=x),
        mark.mark_text(align="left", dx=6, color="var(--soft)").encode(x=x, y=alt.value(10), text=alt.Text("text:N")),
    ]
    layers = [
        *(marks if trained is not None else ()),
        by.mark_area().encode(x=x, y=alt.Y("low:Q", title="held-out reward"), y2=alt.Y2("high:Q"), color=color,
                              opacity=faint),
        by.mark_line(strokeWidth=2.2).encode(x=x, y=y, color=color, opacity=seen),
        by.mark_point(size=36).encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tooltips(tips))
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
    base = alt.Chart(data_of(rows))
    layers = [
        base.mark_point(size=36).encode(x=x, y=y, color=color, shape=shape, opacity=faint, tooltip=tooltips(tips)),
        base.transform_aggregate(groupby=["arm"], x="mean(x)", y="mean(y)").mark_point(size=170, strokeWidth=3)
        .encode(x=x, y=y, color=color, shape=shape, opacity=seen, tooltip=tooltips(tips)).add_params(pick),
    ]
    return finish(alt.layer(*layers), alt_text, 360, zoom=True)


def _of_arms(rows: Rows, before: str = "", its_mark: str = "stroke") -> tuple[alt.Color, alt.Shape]:
    """Colours and shapes of arms in the order in which they come; `before`, the state before training, is grey."""
    arms = list(dict.fromkeys(r["arm"] for r in rows))
    own = [a for a in arms if a != before]
    colours = {a: f"var(--{CATEGORIES[i % len(CATEGORIES)]})" for i, a in enumerate(own)} | {before: "var(--soft)"}
    marks = {a: SHAPES[i % len(SHAPES)] for i, a in enumerate(own)} | {before: its_mark}
    return (alt.Color("arm:N", title=None, scale=alt.Scale(domain=arms, range=[colours[a] for a in arms])),
            alt.Shape("arm:N", title=None, scale=alt.Scale(domain=arms, range=[marks[a] for a in arms])))


def plane(rows: Rows, x_title: str, y_title: str, alt_text: str) -> Spec:
    """rows: name, x, x_low, x_high (factors above 0), y, y_low, y_high, told (bool: labelled). One cross each."""
    x = alt.X("x:Q", title=x_title, scale=alt.Scale(type="log", nice=False, padding=16), axis=alt.Axis(format="~g"))
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(format="+.2f"))
    pick = alt.selection_point(fields=["name"], name="pick", empty=False)
    color = alt.condition("datum.told", alt.value("var(--accent)"), alt.value("var(--soft)"))
    faint = alt.condition(pick, alt.value(0.9), alt.value(0.18))
    tips = ["name:N", *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("x", "x_low", "x_high", "y", "y_low", "y_high"))]
    base = alt.Chart(data_of(rows))
    layers = [
        alt.Chart(data_of([{"x": 1.0}])).mark_rule(strokeDash=[3, 3]).encode(x=alt.X("x:Q", title=x_title)),
        alt.Chart(data_of([{"y": 0.0}])).mark_rule(strokeDash=[3, 3]).encode(y=alt.Y("y:Q", title=y_title)),
        base.mark_rule(strokeWidth=1.5).encode(
            x=alt.X("x_low:Q", title=x_title), x2=alt.X2("x_high:Q"), y=y, color=color, opacity=faint),
        base.mark_rule(strokeWidth=1.5).encode(
            x=x, y=alt.Y("y_low:Q", title=y_title), y2=alt.Y2("y_high:Q"), color=color, opacity=faint),
        base.mark_point(size=48, filled=True, opacity=1)
        .encode(x=x, y=y, color=color, tooltip=tooltips(tips)).add_params(pick),
        base.transform_filter("datum.told")     # the others overlap around no effect
        .mark_text(align="left", dx=7, dy=-6, fontSize=12).encode(x=x, y=y, text=alt.Text("name:N"), color=color),
    ]
    return finish(alt.layer(*layers), alt_text, 520, zoom=True)
