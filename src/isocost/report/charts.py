"""The plots, as Vega-Lite specifications. Colours are CSS variables, so one picture serves light, dark and print.

Every function takes rows (plain dicts, which the CSV download contains) and returns a specification; none reads files.
A chart is a list of marks: its rows, a kind of mark with its style, and the channels that differ from those of the
whole chart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

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
    kilo_axis,
    log_axis,
    reward_axis,
    series_colours,
    variables,
)

BAND: Mapping[str, Any] = {"y": alt.Y("low:Q", title=""), "y2": alt.Y2("high:Q")}
NAMED: Mapping[str, Any] = {"labelFontSize": 13, "labelColor": "var(--ink)"}     # an axis whose labels are names
KNOWN = "isValid(datum.low)"
DASHED = {"strokeDash": [3, 3]}
CURVE = "n:O; C:,d:rollouts; reward:.3f"


class Mark(NamedTuple):
    """One layer of a chart: `rows` as marks of a kind in a style, those `where` an expression holds. `own` are channels
    in place of the chart's. `tips` are the fields of a tooltip: `field:T` of a type, else `field:format:title`."""

    kind: str
    rows: Rows
    style: Mapping[str, Any] = {}
    own: Mapping[str, Any] = {}
    tips: str = ""
    where: str = ""


def drawn(
    alt_text: str, height: int, channels: Mapping[str, Any], marks: Sequence[Mark], *, pick: Any = None,
    zoom: bool = False,
) -> Spec:
    """A chart of these marks, those without rows left out. The last one takes the clicks that `pick` a series."""
    layers: list[Any] = []
    data: dict[int, alt.Data] = {}
    for mark in [m for m in marks if m.rows or (pick is not None and m is marks[-1])] or marks[-1:]:
        chart = alt.Chart(data.setdefault(id(mark.rows), data_of(mark.rows)))
        chart = chart.transform_filter(mark.where) if mark.where else chart
        tips = {"tooltip": [_tip(*t.strip().split(":")) for t in mark.tips.split(";")]} if mark.tips else {}
        layers.append(getattr(chart, f"mark_{mark.kind}")(**mark.style).encode(**{**channels, **mark.own, **tips}))
    if pick is not None:
        layers[-1] = layers[-1].add_params(pick)
    return finish(layers[0] if len(layers) == 1 and not zoom else alt.layer(*layers), alt_text, height, zoom=zoom)


def _tip(field: str, how: str, title: str = "") -> alt.Tooltip:
    if how in "NOQ":
        return alt.Tooltip(f"{field}:{how}")
    return alt.Tooltip(f"{field}:Q", format=how, title=title or alt.Undefined)


def picked(field: str) -> Any:
    """A series that is chosen in the legend."""
    return alt.selection_point(fields=[field], bind="legend", name="pick")


def fading(pick: Any, seen: float, faint: float) -> Any:
    """The opacity of the chosen series, and of the others."""
    return alt.condition(pick, alt.value(seen), alt.value(faint))


def _scale(domain: Sequence[Any], colours: Sequence[str]) -> alt.Scale:
    return alt.Scale(domain=list(domain), range=list(colours))


def _sizes(*parts: Rows) -> tuple[alt.Color, alt.Shape]:
    """Colours and shapes of the n in these rows."""
    sizes = sorted({r["n"] for rows in parts for r in rows})
    return (alt.Color("n:O", title="n", scale=_scale(sizes, series_colours(len(sizes)))),
            alt.Shape("n:N", title="n", sort=sizes, scale=_scale(sizes, SHAPES[: len(sizes)])))


def _arms(rows: Rows) -> tuple[alt.Color, alt.Shape]:
    """Colours and shapes of arms in the order in which they come."""
    arms = list(dict.fromkeys(r["arm"] for r in rows))
    colours = [f"var(--{CATEGORIES[i % len(CATEGORIES)]})" for i in range(len(arms))]
    marks = [SHAPES[i % len(SHAPES)] for i in range(len(arms))]
    return (alt.Color("arm:N", title=None, scale=_scale(arms, colours)),
            alt.Shape("arm:N", title=None, scale=_scale(arms, marks)))


# a profile ----------------------------------------------------------------------------------------------------


def histogram(rows: Rows, alt_text: str, *, graded: bool = False) -> Spec:
    """rows: right, samples, pass1, problems, kind ('mixed' or 'dead at this many samples').

    Of `graded` rewards `right` is the mean reward in parts of `samples`, and all bars are of one kind.
    """
    title, rate, more = ("right answers among the samples of a problem", "pass@1", "; kind:N")
    if graded:
        title, rate, more = "mean reward of a problem, in parts of its samples", "mean reward", ""
    kinds = ["some right"] if graded else ["some right", "all or none right"]
    return drawn(alt_text, 240, {
        "x": alt.X("right:O", title=title, axis=alt.Axis(labelAngle=0)),
        "y": alt.Y("problems:Q", title="problems", axis=alt.Axis(tickMinStep=1)),
        "color": alt.Color("kind:N", title=None, scale=_scale(kinds, variables("accent", "dead")[: len(kinds)]),
                           legend=None if graded else alt.Undefined),
    }, [Mark("bar", rows, {"binSpacing": 1, "cornerRadiusTopLeft": 2, "cornerRadiusTopRight": 2},
             tips=f"right:O; samples:O; pass1:.3f:{rate}; problems:Q{more}")])


def rates(rows: Rows, base_reward: float | None, alt_text: str) -> Spec:
    """rows: lr, nB, reward, probe ('kept' or 'rejected'), run. Where all rewards are equal the axis begins at 0."""
    sizes = sorted({r["nB"] for r in rows})
    axis = alt.Axis(format=".1e", values=sorted({r["lr"] for r in rows}), labelOverlap="greedy")
    level = len({round(y, 6) for y in (base_reward, *(r["reward"] for r in rows)) if y is not None}) == 1
    channels = {
        "x": alt.X("lr:Q", title="learning rate", scale=alt.Scale(type="log", nice=False, padding=24), axis=axis),
        "y": alt.Y("reward:Q", title="held-out reward at the end", scale=alt.Scale(zero=level, nice=True)),
        "color": alt.Color("nB:O", title="nB", scale=_scale(sizes, series_colours(len(sizes)))),
    }
    probe = alt.Shape("probe:N", title=None, scale=_scale(["kept", "rejected"], ["circle", "cross"]))
    base = [] if base_reward is None else [{"reward": base_reward, "text": "before training"}]
    across = {"y": alt.Y("reward:Q"), "color": alt.Undefined}
    return drawn(alt_text, 260, channels, [
        Mark("line", rows, {"opacity": 0.6}),
        Mark("point", rows, {"strokeWidth": 2, "size": 70}, {"shape": probe},
             "run:N; lr:.2e; nB:Q; reward:.3f; probe:N"),
        Mark("rule", base, DASHED, {**across, "x": alt.Undefined}),
        Mark("text", base, {"align": "right", "dx": -4, "dy": -7, "color": "var(--soft)"},
             {**across, "x": alt.value("width"), "text": alt.Text("text:N")}),
    ], zoom=True)


# reward over compute ------------------------------------------------------------------------------------------


def curves(points: Rows, fits: Rows, alt_text: str, chosen: int | None = None, reach: Rows = ()) -> Spec:
    """points: n, C, reward, runs, low, high; fits: n, C, reward, low, high, beyond (whether extrapolated).

    One line for each n. `reach` is at most one row, the region beyond the pilot: C, C2, text.
    """
    pick = picked("n")
    (color, shape), seen = _sizes(points, fits), fading(pick, 1.0, 0.12)
    width = alt.condition(f"datum.n == {chosen or 0}", alt.value(3.5), alt.value(1.8))
    line = {"color": color, "opacity": seen, "size": width}
    return drawn(alt_text, 380, {"x": compute_axis(), "y": reward_axis()}, [
        *_beyond(reach),
        Mark("area", fits, {}, {**BAND, "color": color, "opacity": fading(pick, 0.16, 0.03)}, where=KNOWN),
        Mark("line", fits, {"strokeDash": [1, 0]}, line, where="!datum.beyond"),
        Mark("line", fits, {"strokeDash": [5, 4]}, line, where="datum.beyond"),
        Mark("point", points, {"size": 46}, {"color": color, "shape": shape, "opacity": seen}, f"{CURVE}; runs:Q"),
    ], pick=pick, zoom=True)


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
    color, _ = _sizes(points, fits, lines)
    first, last = (f(r["C"] for r in (*points, *lines, *sealed, *ends)) for f in (min, max))
    room = alt.Scale(type="log", nice=False, domain=[first, last * (last / first) ** 0.3])      # for the words
    own = {"color": color}
    fit = {**own, "size": alt.condition(f"datum.n == {chosen}", alt.value(3.2), alt.value(1.4))}

    def right(rows: Rows, times: float) -> Rows:
        return [{**r, "C": r["C"] * times} for r in rows]

    return drawn(alt_text, 400, {"x": compute_axis().scale(room), "y": reward_axis()}, [
        *(_fence(reach[0]["C"], "the pilot ends here", "center") if reach else ()),
        Mark("area", fits, {"opacity": 0.13}, {**BAND, **own}, where=KNOWN),
        Mark("line", fits, {"strokeDash": [1, 0]}, fit, where="!datum.beyond"),
        Mark("line", fits, {"strokeDash": [5, 4]}, fit, where=f"datum.beyond && datum.n == {chosen}"),
        Mark("line", lines, {"strokeWidth": 1.1, "opacity": 0.6}, {**own, "detail": alt.Detail("run:N")}),
        Mark("point", points, {"size": 34}, own, CURVE),
        *_sealed(right(sealed, 1.1), 10, 24),
        Mark("point", right(ends, 1.24), {"shape": "diamond", "size": 110, "filled": True, "opacity": 1}, own, CURVE),
        Mark("text", right(words, 1.42), {"align": "left", "fontSize": 12.5}, {"text": alt.Text("text:N")}),
    ])


def _sealed(rows: Rows, width: float, size: float, tips: str = "") -> list[Mark]:
    """A forecast: a bar of its interval, and a tick at its value."""
    tick = {"orient": "horizontal", "thickness": 3, "size": size, "color": "var(--accent)"}
    return [Mark("rule", rows, {"strokeWidth": width, "opacity": 0.45, "color": "var(--accent)"}, BAND, tips),
            Mark("tick", rows, tick, {"y": alt.Y("value:Q", title="")})]


def growth(rows: Rows, pilot_end: float | None, alt_text: str) -> Spec:
    """rows: C, n, low, high: the best n as compute grows."""
    fence = _fence(pilot_end, "end of the pilot") if pilot_end else []
    y = alt.Y("n:Q", title="n*, the best rollouts per problem", scale=alt.Scale(type="log", base=2),
              axis=alt.Axis(format="d"))
    return drawn(alt_text, 240, {"x": compute_axis(), "y": y}, [
        Mark("area", rows, {"opacity": 0.16}, BAND),
        Mark("line", rows, {"strokeWidth": 2.5}, {}, "C:,d:rollouts; n:.2f; low:.2f; high:.2f"), *fence,
    ], zoom=True)


# arms beside each other ---------------------------------------------------------------------------------------


def plain_curves(rows: Rows, alt_text: str) -> Spec:
    """rows: run, C, reward. Runs that belong to no study: one line each."""
    runs, pick = sorted({r["run"] for r in rows}), picked("run")
    colours = [f"var(--n{i % N_SLOTS})" for i in range(len(runs))]
    return drawn(alt_text, 340, {
        "x": compute_axis(), "y": reward_axis(), "color": alt.Color("run:N", title=None, scale=_scale(runs, colours)),
        "opacity": fading(pick, 1.0, 0.1),
    }, [Mark("line", rows), Mark("point", rows, {"size": 36}, {}, "run:N; C:,d:rollouts; reward:.3f")],
        pick=pick, zoom=True)


def arm_curves(rows: Rows, means: Rows, alt_text: str, unit: str = "rollouts", what: str = "held-out reward") -> Spec:
    """rows: arm, run, C (in `unit`), reward (which is `what`), thin lines; means: arm, C, reward, thick ones. Arms
    differ in colour and in shape."""
    (color, shape), pick = _arms(rows), picked("arm")
    seen = fading(pick, 1.0, 0.08)
    return drawn(alt_text, 360, {"x": compute_axis(unit), "y": reward_axis(what), "color": color}, [
        Mark("line", rows, {"strokeWidth": 1}, {"detail": alt.Detail("run:N"), "opacity": fading(pick, 0.4, 0.04)}),
        Mark("line", means, {"strokeWidth": 2.6}, {"opacity": seen}),
        Mark("point", rows, {"size": 28}, {"shape": shape, "opacity": seen}, f"arm:N; run:N; C:,d:{unit}; reward:.3f"),
    ], pick=pick, zoom=True)


def by_cost(rows: Rows, sealed: Rows, unit: str, alt_text: str) -> Spec:
    """rows: arm (a strategy), n, cost (of an answer, in `unit`), accuracy; sealed: cost, value, low, high."""
    color, shape = _arms(rows)
    scale, fits = alt.Scale(type="log", nice=False, padding=12), alt.Scale(zero=False, nice=True)
    return drawn(alt_text, 340, {
        "x": alt.X("cost:Q", title=f"{unit} per answer (log scale)", scale=scale, axis=log_axis()),
        "y": alt.Y("accuracy:Q", title="accuracy", scale=fits, axis=alt.Axis(format=".3~f")),
    }, [
        Mark("line", rows, {"opacity": 0.5}, {"color": color}),
        Mark("point", rows, {"size": 40}, {"color": color, "shape": shape},
             "arm:N; n:Q; cost:,.4~g; accuracy:.3f"),
        Mark("rule", sealed, {"strokeWidth": 3, "color": "var(--ink)"}, {**BAND, "y": alt.Y("low:Q")}),
        Mark("point", sealed, {"size": 130, "strokeWidth": 3, "color": "var(--ink)"}, {"y": alt.Y("value:Q")}),
    ], zoom=True)


def staircases(rows: Rows, alt_text: str, unit: str) -> Spec:
    """rows: answers (a label), C (training and all answers, in `unit`), accuracy, low, high, pair, policy. The pairs of
    a policy and a strategy that no other one beats, a staircase for each number of answers; shapes are policies."""
    labels, policies = (list(dict.fromkeys(r[k] for r in rows)) for k in ("answers", "policy"))
    shape = alt.Shape("policy:N", title=None, scale=_scale(policies, [*SHAPES, *SHAPES]))
    return drawn(alt_text, 380, {
        "x": alt.X("C:Q", title=f"training and answers together, {unit} (log scale)",
                   scale=alt.Scale(type="log", nice=False, padding=10), axis=alt.Axis(format=".0e", tickCount=8)),
        "y": alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(zero=False)),
        "color": alt.Color("answers:N", title="answers", scale=_scale(labels, series_colours(len(labels)))),
    }, [
        Mark("line", rows, {"interpolate": "step-after", "strokeWidth": 1.8}),
        Mark("rule", rows, {"opacity": 0.45}, BAND),
        Mark("point", rows, {"size": 52, "filled": True, "opacity": 1}, {"shape": shape},
             f"pair:N; C:.2e:{unit}; accuracy:.3f; low:.3f; high:.3f"),
    ], zoom=True)


def returns(rows: Rows, alt_text: str) -> Spec:
    """rows: arm ("sigma 2", "offline 500"), run, samples, return. A line for each run of value-based control."""
    arms, pick = sorted({str(r["arm"]) for r in rows}, key=lambda a: float(a.split()[1])), picked("arm")
    return drawn(alt_text, 340, {
        "x": alt.X("samples:Q", title="samples", axis=kilo_axis()),
        "y": alt.Y("return:Q", title="return", scale=alt.Scale(zero=False)),
        "color": alt.Color("arm:N", title=None, scale=_scale(arms, series_colours(len(arms)))),
        "detail": alt.Detail("run:N"), "opacity": fading(pick, 0.7, 0.06),
    }, [Mark("line", rows, {"strokeWidth": 1.2}, {}, "run:N; samples:Q; return:Q")], pick=pick, zoom=True)


# intervals, costs and times -----------------------------------------------------------------------------------


def samples_to(rows: Rows, alt_text: str, name: str = "updates per sample") -> Spec:
    """rows: return, sigma (updates per sample, or another quantity by its `name`), samples to that return, low, high.
    """
    found = list(dict.fromkeys(str(r["return"]) for r in rows))
    scale = alt.Scale(type="log", zero=False, nice=False, padding=10)
    return drawn(alt_text, 320, {
        "x": alt.X("sigma:Q", title=f"{name} (log scale)", scale=alt.Scale(type="log", base=2, padding=18),
                   axis=alt.Axis(values=sorted({r["sigma"] for r in rows}), format="~g")),
        "y": alt.Y("samples:Q", title="samples (log scale)", scale=scale),
        "color": alt.Color("return:N", title="return", scale=_scale(found, series_colours(len(found)))),
    }, [
        Mark("rule", rows, {}, {**BAND, "y": alt.Y("low:Q", scale=scale, title="")}),
        Mark("line", rows, {"point": True}, {}, "return:N; sigma:Q; samples:Q; low:Q; high:Q"),
    ])


# intervals, costs and times -----------------------------------------------------------------------------------


def forest(rows: Rows, title: str, alt_text: str, zero: bool = False) -> Spec:
    """rows, in order: label, value, low, high, role ('interval', 'guess', 'outcome' or 'run')."""
    labels = list(dict.fromkeys(r["label"] for r in rows))
    scale, axis = alt.Scale(zero=False, nice=True, padding=12), alt.Axis(labelFlush=False, tickCount=8)
    y = alt.Y("label:N", title=None, sort=labels, axis=alt.Axis(labelLimit=320, **NAMED))
    x, tips = alt.X("value:Q", title=title, scale=scale, axis=axis), "label:N; value:.4f; low:.4f; high:.4f"
    fill = alt.condition("datum.role == 'guess'", alt.value("var(--paper)"), alt.value("var(--accent)"))
    return drawn(alt_text, 38 * len(labels) + 20, {}, [
        Mark("rule", [{"value": 0}] if zero else [], DASHED, {"x": alt.X("value:Q")}),
        Mark("rule", rows, {"strokeWidth": 6, "opacity": 0.35, "strokeCap": "round", "color": "var(--accent)"},
             {"x": alt.X("low:Q", title=title), "x2": alt.X2("high:Q"), "y": y}, tips, KNOWN),
        Mark("tick", rows, {"thickness": 2, "size": 16, "color": "var(--ink)", "opacity": 0.8}, {"x": x, "y": y}, tips,
             "datum.role == 'run'"),
        Mark("point", rows, {"size": 95, "strokeWidth": 2},
             {"x": x, "y": y, "stroke": alt.value("var(--accent)"), "fill": fill}, tips, "datum.role != 'run'"),
    ])


def _fence(c: float, text: str, align: Literal["right", "center"] = "right") -> list[Mark]:
    """A dashed line at C with a text above it."""
    rows, at = [{"C": c, "text": text}], {"x": alt.X("C:Q"), "y": alt.Undefined}
    style = {"align": align, "dx": -5 if align == "right" else 0, "y": -6, "color": "var(--soft)"}
    return [Mark("rule", rows, DASHED, at), Mark("text", rows, style, {**at, "text": alt.Text("text:N")})]


def _beyond(reach: Rows) -> list[Mark]:
    """The extrapolated range, shaded from the pilot's end to the prescribed rollouts, with a label."""
    at = {"x": alt.X("C:Q"), "y": alt.Undefined}
    style = {"align": "right", "baseline": "top", "dx": -6, "y": 4, "color": "var(--soft)", "lineBreak": "\n"}
    return [Mark("rect", reach, {"color": "var(--unknown)"}, {**at, "x2": alt.X2("C2:Q")}),
            Mark("rule", reach, DASHED, at), Mark("text", reach, style, {**at, "text": alt.Text("text:N")})]
