"""Charts of arms beside each other."""

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
    log_axis,
    reward_axis,
    series_colours,
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


def by_cost(rows: Rows, sealed: Rows, unit: str, alt_text: str) -> Spec:
    """rows: arm (a strategy), n, cost (of an answer, in `unit`), accuracy; sealed: cost, value, low, high."""
    color, shape = _of_arms(rows)
    scale = alt.Scale(type="log", nice=False, padding=12)
    x = alt.X("cost:Q", title=f"{unit} per answer (log scale)", scale=scale, axis=log_axis())
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(format=".3~f"))
    tips = ["arm:N", "n:Q", alt.Tooltip("cost:Q", format=",.4~g"), alt.Tooltip("accuracy:Q", format=".3f")]
    data, bar = alt.Chart(data_of(rows)), alt.Chart(data_of(sealed))
    layers: list[alt.Chart] = [
        data.mark_line(opacity=0.5).encode(x=x, y=y, color=color),
        data.mark_point(size=40).encode(x=x, y=y, color=color, shape=shape, tooltip=tooltips(tips)),
    ]
    if sealed:
        layers += [
            bar.mark_rule(strokeWidth=3, color="var(--ink)").encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q")),
            bar.mark_point(size=130, strokeWidth=3, color="var(--ink)").encode(x=x, y=alt.Y("value:Q")),
        ]
    return finish(alt.layer(*layers), alt_text, 340, zoom=True)


def _of_arms(rows: Rows) -> tuple[alt.Color, alt.Shape]:
    """Colours and shapes of arms in the order in which they come."""
    arms = list(dict.fromkeys(r["arm"] for r in rows))
    colours = [f"var(--{CATEGORIES[i % len(CATEGORIES)]})" for i in range(len(arms))]
    marks = [SHAPES[i % len(SHAPES)] for i in range(len(arms))]
    return (alt.Color("arm:N", title=None, scale=alt.Scale(domain=arms, range=colours)),
            alt.Shape("arm:N", title=None, scale=alt.Scale(domain=arms, range=marks)))


def staircases(rows: Rows, alt_text: str, unit: str) -> Spec:
    """rows: answers (a label), C (training and all answers, in `unit`), accuracy, low, high, pair, policy. The pairs of
    a policy and a strategy that no other one beats, a staircase for each number of answers; shapes are policies."""
    labels, policies = (list(dict.fromkeys(r[k] for r in rows)) for k in ("answers", "policy"))
    color = alt.Color("answers:N", title="answers", scale=alt.Scale(domain=labels, range=series_colours(len(labels))))
    shape = alt.Shape("policy:N", title=None, scale=alt.Scale(domain=policies, range=[*SHAPES, *SHAPES]))
    scale = alt.Scale(type="log", nice=False, padding=10)
    x = alt.X("C:Q", title=f"training and answers together, {unit} (log scale)", scale=scale,
              axis=alt.Axis(format=".0e", tickCount=8))
    y, data = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False)), alt.Chart(data_of(rows))
    tips = ["pair:N", alt.Tooltip("C:Q", format=".2e", title=unit),
            *(alt.Tooltip(f"{k}:Q", format=".3f") for k in ("accuracy", "low", "high"))]
    layers = [
        data.mark_line(interpolate="step-after", strokeWidth=1.8).encode(x=x, y=y, color=color),
        data.mark_rule(opacity=0.45).encode(x=x, y=alt.Y("low:Q", title=""), y2=alt.Y2("high:Q"), color=color),
        data.mark_point(size=52, filled=True, opacity=1).encode(
            x=x, y=y, color=color, shape=shape, tooltip=tooltips(tips)),
    ]
    return finish(alt.layer(*layers), alt_text, 380, zoom=True)
