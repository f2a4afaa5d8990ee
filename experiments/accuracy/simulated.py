"""Simulated studies: coverage and width of intervals, laws that are not identified, the n that is prescribed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

from accuracy.pieces import Record, Target, covers, dots, percent, picture, spec, wilson
from isocost.report import theme
from isocost.screen.words import markdown_table

AT_90 = 2  # place of 0.9 among the levels of the calibration
PARAMETERS = ("A", "Cmid", "b")
FEW = 30        # intervals below which a share says too little to be compared with a target
GROUPS = {
    "inside": "inside the forms",
    "rough": "n not ordered",
    "moving": "n* rises in the pilot",
    "outside": "outside the forms",
    "unrelated": "curves unrelated across n",
}


def section(r: Record) -> str:
    parts = [
        "## Simulated studies\n\n"
        f"These are {r['studies']:,} simulated pilots with a known truth and the noise of real runs: seeds that differ"
        " in speed, checkpoints with correlated errors within a run, finite held-out sets, runs that stop early or"
        f" crash. The system chose the seed when the command ran and recorded it ({r['seed']}), so nothing was tuned on"
        " these studies. The law was tuned on other studies (seeds 777, 4242, 5151 and 31 to 38, some of them"
        " outside the forms), and on real curves. Shares of few studies are uncertain: a share of 90 % of 100"
        " independent studies has a standard error of 3 points, and the arms of one study are not independent.\n\n"
        f"`python experiments/calibration.py --studies {max(g['studies'] for g in r['groups'].values())}"
        " --out experiments/results/calibration.json`\n",
        _cover_part(r),
        _width_part(r),
        _refusal_part(r),
        _choice_part(r),
    ]
    return "\n".join(parts)


def _name(group: str) -> str:
    return GROUPS.get(group, group)


def _asked(at: str) -> str:
    """`@4` or `@4 known`, the second for an oracle that knows form and noise, in words."""
    times, _, known = at[1:].partition(" ")
    return f"{times} times" + (", oracle" if known else "")


def _told(r: Record) -> dict[str, Record]:
    """The groups whose studies were fitted, by name."""
    return {k: g for k, g in r["groups"].items() if "cover" in g}


def _cover_part(r: Record) -> str:
    head = [
        "truths",
        "studies",
        *(f"at {t} times" if t > 1 else "at its end" for t in r["times"]),
        "mean curve at 4 times",
        *(f"parameter {k}" for k in PARAMETERS),
        "n\\*",
    ]
    rows = []
    for group, g in _told(r).items():
        c = g["cover"]
        rows.append([_name(group), g["studies"],
                     *(percent(c[f"reward@{t}"]["prediction"][AT_90]) for t in r["times"]),
                     percent(c["reward@4"]["confidence"][AT_90]),
                     *(percent(c[k]["confidence"][AT_90]) if k in c else "" for k in PARAMETERS),
                     percent(c["n_star"]["confidence_90"]) if "n_star" in c else ""])
    low = [
        (n, kind, v["cover"]["reward@4"]["prediction"][AT_90])
        for n, g in _told(r).items()
        for kind, v in g["by_kind"].items()
        if "cover" in v
    ]
    worst = min(low, key=lambda x: x[2])
    return (
        "### Coverage of 90 % intervals\n\n"
        + picture(
            "coverage", "Coverage against nominal level, a line for each kind of truth; on the diagonal they agree"
        )
        + "\nOn the dashed line, coverage equals the nominal level. Below it intervals are too narrow, above it too"
          " wide."
        f" Coverage is lowest for the truth `{worst[1]}` ({_name(worst[0])}): {percent(worst[2])} at 90 %. The table"
        " shows the coverage of 90 % prediction intervals (mean of three new runs), by distance beyond the pilot's"
        " longest run; the record has each kind of truth:\n\n" + markdown_table(head, rows) + _unrelated(r)
    )


def _unrelated(r: Record) -> str:
    """What becomes of the coverage where the law's assumption of neighbours fails; empty where that was not asked."""
    if "unrelated" not in _told(r):
        return ""
    related, apart = (r["groups"][g]["cover"]["reward@4"] for g in ("inside", "unrelated"))
    mean, new = (apart[kind][AT_90] for kind in ("confidence", "prediction"))
    return (
        "\nThe law assumes that neighbouring n have similar curves, as in published sweeps. An arm whose runs are too"
        " short borrows strength from the others. If every n has an unrelated truth, this assumption is wrong: coverage"
        f" at 4 times is then {percent(mean)} for mean curves and {percent(new)} for new runs, against"
        f" {percent(related['confidence'][AT_90])} and {percent(related['prediction'][AT_90])} inside the forms.\n"
    )


def _width_part(r: Record) -> str:
    head = ["truths", "width at its end", *(f"at {t} times" for t in r["times"][1:]), "error at 4 times",
            "bias at 4 times", "width relative to the oracle's at 4 times: mean curve", "prediction"]
    rows = []
    for group, g in _told(r).items():
        c, o = g["cover"], g.get("oracle")
        rows.append([_name(group), *(f"{c[f'reward@{t}']['width'][1]:.3f}" for t in r["times"]),
                     f"{c['reward@4']['error']:.3f}", f"{c['reward@4']['bias']:+.3f}",
                     *(f"{o[k]:.2f}" if o else "" for k in ("ratio_of_confidence", "ratio_of_prediction"))])
    return (
        "### Width of the intervals\n\n"
        + picture("width", "Median width of prediction intervals against extrapolation, and the oracle's at four times")
        + "\nThe table shows the median width of 90 % prediction intervals, in reward, by extrapolation. The oracle"
          " knows"
        " the curve form and the noise, and has the same runs. Its width, computed at 4 times, is a lower"
        " bound.\n\n" + markdown_table(head, rows)
    )


def _refusal_part(r: Record) -> str:
    enough, few = r["groups"].get("inside", {}).get("by_design", {}), r.get("unidentifiable", {}).get("by_design", {})
    return (
        "### When the law is not identified\n\n"
        + picture("refusals", "Share of studies without an identified law, for sufficient and insufficient pilots")
        + "\nA sufficient pilot contains enough runs to identify the law, so \"not identified\" is an error there:"
        f" {_most(enough)} of studies, for the worst of {len(enough)} kinds. For an insufficient pilot a fitted law is"
        f" the error: {_most(few, least=True)} were not identified, for the worst of {len(few)} kinds.\n"
    )


def _most(kinds: Record, least: bool = False) -> str:
    """The largest share of studies without an identified law over kinds of pilots, or the least."""
    shares = [v["refused"] for v in kinds.values()]
    return percent((min if least else max)(shares)) if shares else "–"


def _choice_part(r: Record) -> str:
    head = ["truths", "prescribed at", "extra compute: median", "75th", "90th percentile",
            "reward lost: 90th percentile", "best n in the equal set"]
    rows = [[_name(group), _asked(at), *map(_reached, c["extra"]),
             f"{c['lost'][2]:.3f}" if c["lost"][2] is not None else "–", percent(c["held"]) if "held" in c else ""]
            for group, g in _told(r).items() for at, c in g["choice"].items() if at.startswith("@4")]
    return (
        "### Cost of a wrong n\n\n"
        + picture(
            "regret", "Extra compute that the prescribed n needs, at the median, 75th and 90th percentile of studies"
        )
        + "\nExtra compute is what the prescribed n needs beyond C to reach the reward that the truly best n has at"
          " C, at"
        " equal seconds per rollout. *Never*: its asymptote is lower. The *oracle* knows the curve form and the noise,"
        " and chooses by the same rule from the same runs.\n\n"
        + markdown_table(head, rows)
    )


def pictures(r: Record) -> Iterable[tuple[str, theme.Spec]]:
    yield "coverage", _nominal(r)
    yield "width", _widths(r)
    rows = [
        {"label": k, "what": "sufficient pilot", "value": v["refused"], **_bounds(v["refused"], v["studies"])}
        for k, v in r["groups"].get("inside", {}).get("by_design", {}).items()
    ]
    rows += [
        {"label": k, "what": "insufficient pilot", "value": v["refused"], **_bounds(v["refused"], v["studies"])}
        for k, v in r.get("unidentifiable", {}).get("by_design", {}).items()
    ]
    if rows:
        marks = [("at most 10 %", 0.1), ("at least 90 %", 0.9)]
        title = "share of studies without an identified law"
        yield "refusals", dots(rows, title, marks, "Studies without an identified law, by pilot")
    yield "regret", _regret(r)


def _bounds(share: float, count: int) -> dict[str, float]:
    low, high = wilson(share, count)
    return {"low": low, "high": high}


def _group_colour(groups: Sequence[str]) -> alt.Color:
    colours = {
        "inside": "var(--accent)", "rough": "var(--evaluation)", "moving": "var(--stale)",
        "outside": "var(--filtered)", "unrelated": "var(--cancelled)",
    }
    return alt.Color(
        "group:N",
        title=None,
        scale=alt.Scale(
            domain=[_name(g) for g in groups], range=[colours.get(g, "var(--soft)") for g in groups]
        ),
    )


def _group_shape(groups: Sequence[str]) -> alt.Shape:
    named = [_name(g) for g in groups]
    return alt.Shape("group:N", title=None, scale=alt.Scale(domain=named, range=list(theme.SHAPES[: len(named)])))


def _nominal(r: Record) -> theme.Spec:
    """Coverage of the reward at 4 times against the nominal level: thick for a group, thin for each kind in it."""
    groups, middle = _told(r), r["levels"][AT_90]
    rows: list[dict[str, Any]] = []
    for group, g in groups.items():
        for kind, own in (("all", g), *((k, v) for k, v in g["by_kind"].items() if "cover" in v)):
            for level, share in zip(r["levels"], own["cover"]["reward@4"]["prediction"], strict=True):
                rows.append({"group": _name(group), "kind": kind, "key": f"{group} {kind}", "level": level,
                             "share": share, **_bounds(share, own["studies"]), "all": kind == "all"})
    base = alt.Chart(alt.Data(values=rows))
    x = alt.X(
        "level:Q",
        title="nominal level",
        scale=alt.Scale(domain=[0.45, 1], nice=False),
        axis=alt.Axis(format="%", values=list(r["levels"]), labelOverlap=False),
    )
    least = min(r["share"] for r in rows)
    y = alt.Y(
        "share:Q",
        title="coverage",
        axis=alt.Axis(format="%"),
        scale=alt.Scale(domain=[min(0.4, least - 0.03), 1], nice=False),
    )
    color, shape = _group_colour(list(groups)), _group_shape(list(groups))
    worst = min((r for r in rows if not r["all"] and r["level"] == middle), key=lambda r: r["share"])
    same = alt.Chart(alt.Data(values=[{"level": v, "share": v} for v in (0.45, 1)]))
    whole = base.transform_filter("datum.all")
    kinds = base.transform_filter("!datum.all")
    layers = [
        same.mark_line(strokeDash=[4, 3], strokeWidth=1.2, color="var(--soft)").encode(x=x, y=y),
        kinds.mark_line(strokeWidth=1, opacity=0.45).encode(x=x, y=y, color=color, detail="key:N"),
        kinds.transform_filter(f"datum.key == '{worst['key']}' && datum.level == {worst['level']}")
        .mark_text(align="left", dx=8, dy=10)
        .encode(x=x, y=y, text="kind:N", color=color),
        whole.mark_line(strokeWidth=2.6).encode(x=x, y=y, color=color),
        whole.mark_point(size=70).encode(x=x, y=y, color=color, shape=shape),
    ]
    return spec(
        alt.layer(*layers), "Coverage of prediction intervals at 4 times the pilot, against the nominal level", 380
    )


def _widths(r: Record) -> theme.Spec:
    groups, rows, known = _told(r), [], []
    for group, g in groups.items():
        rows += [
            {"group": _name(group), "times": t, "width": g["cover"][f"reward@{t}"]["width"][1]}
            for t in r["times"]
        ]
        if "oracle" in g:
            needed = g["cover"]["reward@4"]["width"][1] / g["oracle"]["ratio_of_prediction"]
            known.append({"group": _name(group), "times": 4, "width": round(needed, 4), "text": "oracle"})
    base = alt.Chart(alt.Data(values=rows))
    x = alt.X(
        "times:Q",
        title="times the pilot's longest run",
        axis=alt.Axis(values=list(r["times"]), format="d"),
        scale=alt.Scale(type="log", base=2, nice=False, padding=14),
    )
    y = alt.Y(
        "width:Q",
        title="width of the 90 % prediction interval",
        axis=alt.Axis(format=".2f"),
        scale=alt.Scale(zero=True),
    )
    color, shape = _group_colour(list(groups)), _group_shape(list(groups))
    layers: list[Any] = [
        base.mark_line().encode(x=x, y=y, color=color),
        base.mark_point(size=60).encode(x=x, y=y, color=color, shape=shape),
    ]
    if known:
        other = alt.Chart(alt.Data(values=known))
        layers += [
            other.mark_tick(orient="horizontal", thickness=3, size=34).encode(x=x, y=y, color=color),
            other.mark_text(align="left", dx=22).encode(x=x, y=y, text="text:N", color=color),
        ]
    return spec(alt.layer(*layers), "Median width against extrapolation; ticks are the oracle's", 280)


def _regret(r: Record) -> theme.Spec:
    """The three quantiles of extra compute that the record keeps, on a line for each group and distance."""
    rows, never = [], []
    for group, g in _told(r).items():
        for at, c in g["choice"].items():
            label = f"{_name(group)}, {_asked(at)}"
            for what, value in zip(("median", "75th percentile", "90th percentile"), c["extra"], strict=True):
                if value is None:
                    never.append({"label": label, "what": what})
                else:
                    rows.append({"label": label, "what": what, "value": value})
    top = max([0.2, *(1.08 * r["value"] for r in rows)])
    rows += [{**x, "value": top} for x in never]
    marks = [("5 %", 0.05), ("15 %", 0.15)]
    title = "extra compute" + ("; at the right edge: never" if never else "")
    text = "Extra compute of the prescribed n; a mark at the right edge never reaches the best n's reward"
    return dots(rows, title, marks, text, top, alt.Scale(type="symlog", constant=0.1, domain=[0, top], nice=False))


def targets(r: Record) -> list[Target]:
    """What the issue of trust comes down to, by group; a group that was not run has no line."""
    inside, outside = (r["groups"].get(g, {}) for g in ("inside", "outside"))
    out: list[Target] = []
    if "cover" in inside:
        cover = inside["cover"]
        named = {
            "reward at 4 times the pilot, prediction": cover["reward@4"]["prediction"][AT_90],
            "reward at 4 times the pilot, mean curve": cover["reward@4"]["confidence"][AT_90],
            **{f"parameter {k}": cover[k]["confidence"][AT_90] for k in PARAMETERS if k in cover},
        }
        for group in ("moving", "inside"):
            star = r["groups"].get(group, {}).get("cover", {}).get("n_star")
            if star and star["count"] >= FEW:
                named[f"n\\*, {_name(group)} ({star['count']} intervals)"] = star["confidence_90"]
        out += [(f"90 % interval covers: {k}", "85 to 95 %", percent(v), covers(v)) for k, v in named.items()]
    if "cover" in outside:
        for kind in ("prediction", "confidence"):
            v = outside["cover"]["reward@4"][kind][AT_90]
            word = {"prediction": "prediction", "confidence": "mean curve"}[kind]
            out.append((f"the same, truth outside the law's forms, {word}", "at least 80 %", percent(v), v >= 0.8))
    special = (("two-stage rise", outside.get("by_kind", {}).get("two-stage", {}), 0.8),
               ("no n like another", r["groups"].get("unrelated", {}), 0.85))
    for name, own, least in special:
        if "cover" in own:
            v = own["cover"]["reward@4"]["prediction"][AT_90]
            out.append((f"the same, {name}, prediction ({own['studies']} studies)", f"at least {least:.0%}".replace(
                "%", " %"), percent(v), v >= least))
    if "oracle" in inside:
        v = inside["oracle"]["ratio_of_prediction"]
        out.append(("width relative to the oracle's, median", "at most 1.5", f"{v:.2f}", v <= 1.5))
    if inside:
        out.append(
            ("sufficient pilots: not identified", "at most 10 %", percent(inside["refused"]), inside["refused"] <= 0.1)
        )
    if "unidentifiable" in r:
        for word, key in (("not identified", "refused"), ("not identified, or the asymptote flagged", "asymptote")):
            v = r["unidentifiable"][key]
            out.append((f"insufficient pilots: {word}", "at least 90 %", percent(v), v >= 0.9))
    if "repeats" in inside:
        twice, often = (inside["repeats"][k] for k in ("twice", "four_times_as_often"))
        out.append(("width when every checkpoint is given twice", "no less", f"{twice:.3f} times", twice >= 0.99))
        out.append(
            (
                "width when runs are evaluated four times as often",
                "at least 0.95 times",
                f"{often:.3f} times",
                often >= 0.95,
            )
        )
    if "choice" in inside:
        known = inside["choice"].get("@4 known")
        for place, word, most in ((0, "median", 0.05), (2, "90th percentile", 0.15)):
            v = inside["choice"]["@4"]["extra"][place]
            hopeless = known is not None and not _least(known["extra"][place], most)
            holds = _least(v, most) or ("the oracle misses it too" if hopeless else False)
            out.append((f"prescribed n: extra compute, {word}", f"at most {100 * most:.0f} %", _reached(v), holds))
    return out


def _reached(x: float | None) -> str:
    """Compute beyond C as a share; None is a reward that is never reached."""
    return "never" if x is None else percent(x)


def _least(x: float | None, most: float) -> bool:
    return x is not None and x <= most
