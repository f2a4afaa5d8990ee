"""docs/how_sure.md and its pictures from the records: every number on it is one of theirs.

    python experiments/how_sure.py

Reads experiments/results/calibration.json, backtest.json, compare.json, verdicts.json and quickstart_seeds.json; what
is not there is named as not measured. The same records give the same page and the same pictures.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from isocost.report import theme
from isocost.words import markdown_table

HOME = Path(__file__).resolve().parents[1]
RECORDS, PAGE, IMAGES = HOME / "experiments" / "results", HOME / "docs" / "how_sure.md", HOME / "docs" / "images"
Record = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]
NAMES = ("calibration", "backtest", "compare", "verdicts", "quickstart_seeds")
HEAD = """# How accurate the forecasts are

This page tests the 90 % intervals of isocost on hundreds of simulated studies whose truth is known, and on real
studies whose outcome came later. Missed targets are marked. `python experiments/how_sure.py` writes the page from the
files in `experiments/results`; the command that made each file is given. Terms are in the [glossary](glossary.md).
"""


def main() -> None:
    """Write the page and its pictures."""
    found = records()
    IMAGES.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(found), encoding="utf-8")
    for name, picture in pictures(found).items():
        (IMAGES / name).write_text(picture, encoding="utf-8")


def records(folder: Path = RECORDS) -> dict[str, Record]:
    """What has been recorded, by name."""
    paths = {name: folder / f"{name}.json" for name in NAMES}
    return {name: json.loads(p.read_text(encoding="utf-8")) for name, p in paths.items() if p.is_file()}


def page(found: Mapping[str, Record]) -> str:
    """The whole page; the same records give the same text."""
    parts = [HEAD, _targets(found)]
    parts += [part(found[name]) for name, part in PARTS.items() if name in found]
    absent = [f"`experiments/results/{name}.json`" for name in PARTS if name not in found]
    if absent:
        parts.append(f"Not measured yet: {', '.join(absent)}.\n")
    return "\n".join(map(wrapped, "\n".join(parts).split("\n")))


def wrapped(line: str) -> str:
    """A paragraph in lines of at most 120 characters; tables, pictures and headings as they are."""
    if len(line) <= 120 or line.lstrip()[:1] in "|<#" or line.startswith("`python "):
        return line
    return textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False)


def pictures(found: Mapping[str, Record]) -> dict[str, str]:
    """File name -> SVG, in light and dark."""
    out = {}
    for name, make in PICTURES.items():
        if name not in found:
            continue
        for key, spec in make(found[name]):
            for side in ("light", "dark"):
                out[f"how-sure-{key}-{side}.svg"] = theme.svg(spec, dark=side == "dark")
    return out


# small pieces -------------------------------------------------------------------------------------------------


def picture(key: str, alt_text: str) -> str:
    """A picture in two themes."""
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="images/how-sure-{key}-dark.svg">\n'
        f'  <img alt="{alt_text}" src="images/how-sure-{key}-light.svg">\n</picture>\n'
    )


def percent(x: float | None, digits: int = 1) -> str:
    """A share as a percentage; a dash for what is not known."""
    return "–" if x is None else f"{100 * x:.{digits}f} %"


def wilson(share: float, count: int, z: float = 1.645) -> tuple[float, float]:
    """Wilson's interval for a share of `count` independent trials (90 % at the given z)."""
    middle, half = share + z * z / (2 * count), z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / count) for sign in (-1, 1))
    return min(1.0, max(0.0, low)), min(1.0, max(0.0, high))


def met(holds: bool | str | None) -> str:
    """The verdict on a target; a text says how it is missed."""
    if isinstance(holds, str):
        return f"**missed**: {holds}"
    return "not measured" if holds is None else "met" if holds else "**missed**"


def covers(share: float) -> bool | str:
    """Whether the coverage of a 90 % interval is in 85 to 95 %, or on which side it is not."""
    return "intervals too narrow" if share < 0.85 else "intervals wider than necessary" if share > 0.95 else True


# targets ------------------------------------------------------------------------------------------------------


def _targets(found: Mapping[str, Record]) -> str:
    """What must hold, what was measured, and whether it does."""
    rows: list[tuple[str, str, str, str]] = []
    for name, make in TARGETS.items():
        if name in found:
            rows += [(what, wanted, measured, met(holds)) for what, wanted, measured, holds in make(found[name])]
    if not rows:
        return ""
    missed = sum(row[3].startswith(met(False)) for row in rows)
    text = f"{missed} of {len(rows)} targets {'is' if missed == 1 else 'are'} missed."
    if not missed:
        text = f"All {len(rows)} targets are met."
    return "## Targets\n\n" + markdown_table(["what", "target", "measured", ""], rows) + f"\n{text}\n"


Target = tuple[str, str, str, bool | str | None]


def _compare_targets(r: Record) -> list[Target]:
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


def _verdict_targets(r: Record) -> list[Target]:
    s = r["all"]
    return [
        (
            "mid-run stops that are wrong, of all runs",
            "at most 5 %",
            percent(s["wrong_of_runs"]),
            s["wrong_of_runs"] <= 0.05,
        ),
        (
            "mid-run stops that are wrong, of the stops",
            "at most 5 %",
            percent(s["wrong_of_stops"]),
            s["wrong_of_stops"] is None or s["wrong_of_stops"] <= 0.05,
        ),
        (
            "compute saved, of what the oracle saves",
            "at least 50 %",
            percent(s["saved_of_oracle"]),
            s["saved_of_oracle"] is not None and s["saved_of_oracle"] >= 0.5,
        ),
    ]


def _calibration_targets(r: Record) -> list[Target]:
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


# simulated studies --------------------------------------------------------------------------------------------

AT_90 = 2  # place of 0.9 among the levels of the calibration
PARAMETERS = ("A", "Cmid", "b")
FEW = 30        # intervals below which a share says too little to be held against a target
GROUPS = {
    "inside": "inside the forms",
    "rough": "n not ordered",
    "moving": "n* rises in the pilot",
    "outside": "outside the forms",
    "unrelated": "curves unrelated across n",
}


def _calibration(r: Record) -> str:
    parts = [
        "## Simulated studies\n\n"
        f"These are {r['studies']:,} simulated pilots with a known truth and the noise of real runs: seeds that differ"
        " in speed, checkpoints with correlated errors within a run, finite held-out sets, runs that stop early or"
        f" crash. The system chose the seed when the command ran and recorded it ({r['seed']}), so nothing was tuned on"
        " these studies. The widening of bands beyond the pilot (`BELOW`, `BENT`, `ABOVE` in"
        " `src/isocost/laws/law.py`) was tuned on 290 other studies, of seed 777, some of them outside the forms.\n\n"
        "`python experiments/calibration.py --studies 500 --out experiments/results/calibration.json`\n",
        _cover_part(r),
        _width_part(r),
        _refusal_part(r),
        _choice_part(r),
    ]
    return "\n".join(parts)


def _name(group: str) -> str:
    return GROUPS.get(group, group)


def _asked(at: str) -> str:
    """`@4` or `@4 known`, the second for one who knows form and noise, in words."""
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
        for name, own in (
            (_name(group), g),
            *((f"– {k}", v) for k, v in g["by_kind"].items() if "cover" in v),
        ):
            c = own["cover"]
            rows.append(
                [
                    name,
                    own["studies"],
                    *(percent(c[f"reward@{t}"]["prediction"][AT_90]) for t in r["times"]),
                    percent(c["reward@4"]["confidence"][AT_90]),
                    *(percent(c[k]["confidence"][AT_90]) if k in c else "" for k in PARAMETERS),
                    percent(c["n_star"]["confidence_90"]) if "n_star" in c else "",
                ]
            )
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
        " longest run:\n\n" + markdown_table(head, rows) + _unrelated(r)
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
    head = [
        "truths",
        "width at its end",
        *(f"at {t} times" for t in r["times"][1:]),
        "error at 4 times",
        "bias at 4 times",
        "width relative to the oracle's at 4 times: mean curve",
        "prediction",
    ]
    rows = []
    for group, g in _told(r).items():
        c, o = g["cover"], g.get("oracle")
        rows.append(
            [
                _name(group),
                *(f"{c[f'reward@{t}']['width'][1]:.3f}" for t in r["times"]),
                f"{c['reward@4']['error']:.3f}",
                f"{c['reward@4']['bias']:+.3f}",
                *(f"{o[k]:.2f}" if o else "" for k in ("ratio_of_confidence", "ratio_of_prediction")),
            ]
        )
    return (
        "### Width of the intervals\n\n"
        + picture("width", "Median width of prediction intervals against extrapolation, and the oracle's at four times")
        + "\nThe table shows the median width of 90 % prediction intervals, in reward, by extrapolation. The oracle"
          " knows"
        " the curve form and the noise, and has the same runs. Its width, computed at 4 times, is a lower"
        " bound.\n\n" + markdown_table(head, rows)
    )


def _refusal_part(r: Record) -> str:
    rows = [
        [name, "sufficient", v["studies"], percent(v["refused"]), ""]
        for name, v in r["groups"].get("inside", {}).get("by_design", {}).items()
    ]
    rows += [
        [name, "insufficient", v["studies"], percent(v["refused"]), percent(v["asymptote"])]
        for name, v in r.get("unidentifiable", {}).get("by_design", {}).items()
    ]
    return (
        "### When the law is not identified\n\n"
        + picture("refusals", "Share of studies without an identified law, for sufficient and insufficient pilots")
        + "\nA sufficient pilot contains enough runs to identify the law, so "
        '"not identified" is an error there. For an insufficient pilot, a fitted law is the error. The last column also'
        " counts laws whose asymptote is flagged as not identified.\n\n"
        + markdown_table(["pilot", "", "studies", "not identified", "or asymptote flagged"], rows)
    )


def _choice_part(r: Record) -> str:
    head = [
        "truths",
        "prescribed at",
        "extra compute: median",
        "75th",
        "90th percentile",
        "to within 0.01 of the best: median",
        "75th",
        "90th percentile",
        "reward lost: 90th percentile",
        "best n in the equal set",
        "its size",
    ]
    rows = []
    for group, g in _told(r).items():
        for at, c in g["choice"].items():
            rows.append(
                [
                    _name(group),
                    _asked(at),
                    *map(_reached, c["extra"]),
                    *map(_reached, c["extra_to_margin"]),
                    f"{c['lost'][2]:.3f}" if c["lost"][2] is not None else "–",
                    percent(c["held"]) if "held" in c else "",
                    f"{c['size']:.1f}" if "size" in c else "",
                ]
            )
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


def _calibration_pictures(r: Record) -> Iterable[tuple[str, theme.Spec]]:
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
        yield "refusals", _dots(rows, title, marks, "Studies without an identified law, by pilot")
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
                rows.append(
                    {
                        "group": _name(group),
                        "kind": kind,
                        "key": f"{group} {kind}",
                        "level": level,
                        "share": share,
                        **_bounds(share, own["studies"]),
                        "all": kind == "all",
                    }
                )
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
    return _spec(
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
    return _spec(alt.layer(*layers), "Median width against extrapolation; ticks are the oracle's", 280)


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
    return _dots(rows, title, marks, text, top, alt.Scale(type="symlog", constant=0.1, domain=[0, top], nice=False))


# real studies -------------------------------------------------------------------------------------------------


def _real(r: Record) -> str:
    s, rows = r["summary"], [x for x in r["studies"] if x["low"] is not None and x["outcome"] is not None]
    errors = sorted(x["outcome"] - x["forecast"] for x in rows)
    above = sum(e > 0 for e in errors)
    lean = ""
    if above in (0, len(errors)) or min(above, len(errors) - above) / len(errors) < 0.2:
        side = "above" if above > len(errors) / 2 else "below"
        lean = (
            f" The outcome is {side} the forecast in {max(above, len(errors) - above)} of {len(errors)}: on these"
            " problems the forecast is biased. The intervals are wide enough to cover this bias, but it remains an"
            " error."
        )
    verdicts = ", ".join(f"{v} {k}" for k, v in s["verdicts"].items())
    return (
        "## Real studies\n\n"
        + picture("real", "Sealed forecast intervals of real studies and the outcomes that came later")
        + f"\nThese are {len(rows)} quickstarts, one for each seed, with the forecast sealed before training:"
          f" {verdicts}."
        f" The outcome lay in the 90 % interval in {s['inside_interval']}. The median width is {s['median_width']:.3f},"
        f" the median error {s['median_error']:+.3f}.{lean} All share one model and one set of problems, so they"
        f" measure one setting. The forecast beat both naive ones by interval score in {s['beats_both_naive']}.\n\n"
        "`python experiments/quickstart_seeds.py --seeds 16 --out experiments/results/quickstart_seeds.json`\n"
    )


def _backtest(r: Record) -> str:
    head = ["law", "predicted at", "predictions", "coverage at 90 %", "outcome minus prediction", "width"]
    rows = [
        ["not identified" if x["refused"] else "identified", f"{x['times']} times", str(x["predictions"]),
         percent(x["held"]), f"{x['above']:+.3f}", f"{x['width']:.3f}"]
        for x in sorted(r["summary"], key=lambda x: (x["refused"], x["times"]))
    ]
    above = [x["above"] for x in r["summary"]]
    lean = (
        " Outcomes are above predictions, the more so the further the prediction extrapolates. A likely reason is that"
        " reward is a mean over problems that are learned one after the other, and rises for longer than the law's"
        " forms."
        if min(above) > 0 else ""
    )
    return (
        "### The first part of real runs against the rest\n\n"
        "The law is fitted to the evaluations before a cut, for five n on the built-in easy and hard problems, and"
        f" predicts the rest of the same runs. Cuts of one set of runs are not independent.{lean} A law that is not"
        " identified still has curves; these are counted separately.\n\n"
        + markdown_table(head, rows)
        + "\n`python experiments/backtest.py --out experiments/results/backtest.json`\n"
    )


def _real_picture(r: Record) -> Iterable[tuple[str, theme.Spec]]:
    rows = [
        {
            "seed": str(x["seed"]),
            "forecast": x["forecast"],
            "low": x["low"],
            "high": x["high"],
            "outcome": x["outcome"],
            "held": "inside" if x["low"] <= x["outcome"] <= x["high"] else "outside",
        }
        for x in r["studies"]
        if x["low"] is not None and x["outcome"] is not None
    ]
    base = alt.Chart(alt.Data(values=rows))
    x = alt.X("seed:N", title="seed of the study", sort=[r["seed"] for r in rows], axis=alt.Axis(labelAngle=0))
    y = alt.Y("low:Q", title="held-out reward", scale=alt.Scale(zero=False), axis=alt.Axis(format=".2f"))
    layers = [
        base.mark_rule(strokeWidth=7, opacity=0.35, color="var(--accent)", strokeCap="round").encode(
            x=x, y=y, y2="high:Q"
        ),
        base.mark_tick(thickness=2, size=14, color="var(--accent)").encode(x=x, y=alt.Y("forecast:Q", title="")),
        base.mark_point(size=60).encode(x=x, y=alt.Y("outcome:Q", title=""), color=_held(), shape=_held_shape()),
    ]
    yield "real", _spec(alt.layer(*layers), "Sealed 90 % intervals (bars), forecasts (ticks), outcomes (points)", 260)


def _held() -> alt.Color:
    return alt.Color(
        "held:N",
        title="outcome",
        scale=alt.Scale(domain=["inside", "outside"], range=["var(--ink)", "var(--cancelled)"]),
    )


def _held_shape() -> alt.Shape:
    return alt.Shape(
        "held:N", title="outcome", scale=alt.Scale(domain=["inside", "outside"], range=["circle", "diamond"])
    )


def _spec(chart: Any, alt_text: str, height: int) -> theme.Spec:
    return theme.finish(chart, alt_text, height)


# verdicts while a run trains ----------------------------------------------------------------------------------


def _verdicts(r: Record) -> str:
    head = [
        "runs",
        "how many",
        "wrong stops, of runs",
        "of stops",
        "misses found",
        "saved of the oracle's",
        "regret",
        "never stopping",
        "stop below the band",
    ]
    groups = [
        ("all", r["all"]),
        ("truths inside the law's forms", r["inside"]),
        ("outside", r["outside"]),
        *((f"{k}", v) for k, v in r["by_role"].items()),
        ("exact rewards", r["exact"]),
        ("sampled rewards", r["sampled"]),
    ]
    rows = [
        [
            name,
            s["runs"],
            *(percent(s[k]) for k in ("wrong_of_runs", "wrong_of_stops", "found", "saved_of_oracle")),
            *(f"{s[k]:.3f}" if s[k] is not None else "–" for k in ("regret", "regret_never", "regret_band")),
        ]
        for name, s in groups
    ]
    w, c = r["worth"], r["change"]
    return (
        "## Verdicts while a run trains\n\n"
        + picture("verdicts", "Wrong stops and compute saved, for each kind of truth")
        + f"\nThis is `isocost verdict` on {r['all']['runs']:,} simulated runs of {r['studies']} studies whose end is"
        " known. A stop is wrong if the run would have reached its target. Regret is in budgets of a run, relative"
        " to an"
        " oracle that knows the end; two alternatives are never stopping, and stopping below the forecast's band. A"
        " `sound` run follows the law's truth, a `low` run gains less, a `slow` run takes 2 to 8 times as long, and an"
        " `asked` run has another target reward. Sampled rewards are of 128 problems, four samples each, the"
        " default.\n\n"
        + markdown_table(head, rows)
        + f"\nStops because less than {w['worth']:g} was left to gain: {percent(w['wrong_of_stops'])} of {w['stopped']}"
        f" were wrong, and they saved {percent(w['saved_of_oracle'])} of what the oracle saves. `change n` was"
        " advised in"
        f" {percent(c['just_below_half']['changed'])} of runs whose share of dead groups stays just below one half"
        f" (wrong) and in {percent(c['to_0.7']['changed'])} of those whose share rises to 0.7 (right).\n\n"
        f"`{r['command'].replace('records/', 'experiments/', 1)} --out experiments/results/verdicts.json`, seed"
        f" {r['seed']}\n"
    )


def _verdicts_picture(r: Record) -> Iterable[tuple[str, theme.Spec]]:
    rows = []
    for kind, s in r["by_truth"].items():
        if s["stopped"]:
            low, high = wilson(s["wrong_of_runs"], s["runs"])
            rows.append(
                {"label": kind, "what": "wrong stops, of runs", "value": s["wrong_of_runs"], "low": low, "high": high}
            )
        if s["saved_of_oracle"] is not None:
            rows.append({"label": kind, "what": "saved, of the oracle's saving", "value": s["saved_of_oracle"]})
    marks = [("at most 5 % wrong", 0.05), ("at least 50 % saved", 0.5)]
    yield "verdicts", _dots(rows, "share", marks, "Wrong stops and savings, by kind of truth")


def _dots(
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
    return _spec(alt.layer(*layers), alt_text, 30 * len(labels) + 20)


# comparisons --------------------------------------------------------------------------------------------------

PAIRS = {
    "none": "no difference in truth",
    "lower": "a lower asymptote",
    "slower": "slower to the same asymptote",
    "crossing": "faster, to a lower asymptote",
}


def _compare(r: Record) -> str:
    head = ["truth", "noise", "arms", "studies", "verdict wrong", "anything wrong", "right at equal cost"]
    rows = [
        [
            PAIRS[c["pair"]],
            c["noise"],
            c["arms"],
            c["studies"],
            percent(c["verdict"].get("wrong", 0.0)),
            percent(c["any"].get("wrong", 0.0)),
            percent(c["equal cost"].get("right", 0.0)) if c["pair"] in ("lower", "slower") else "",
        ]
        for c in r["cells"]
    ]
    own = r["summary"]["right at equal cost at twice what the comparison states itself"]
    return (
        "## Comparisons\n\n"
        + picture("compare", "Shares of comparisons that were wrong, and of those that found a true difference")
        + f"\nThis is `isocost compare` on {r['summary']['studies']:,} pairs of arms with a known truth. A true"
          " difference"
        " is twice the minimum detectable difference, computed from the true noise. With the minimum detectable"
        f" difference that the comparison states, from the noise it measured, {percent(own)} are right.\n\n"
        + markdown_table(head, rows)
        + f"\n`python experiments/compare.py --out experiments/results/compare.json`, key {r['key']}\n"
    )


def _compare_picture(r: Record) -> Iterable[tuple[str, theme.Spec]]:
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
    yield "compare", _dots(rows, "share of comparisons", marks, "Comparisons that were wrong, and right")


PARTS = {
    "calibration": _calibration,
    "quickstart_seeds": _real,
    "backtest": _backtest,
    "compare": _compare,
    "verdicts": _verdicts,
}
PICTURES = {
    "calibration": _calibration_pictures,
    "quickstart_seeds": _real_picture,
    "compare": _compare_picture,
    "verdicts": _verdicts_picture,
}
TARGETS = {"calibration": _calibration_targets, "compare": _compare_targets, "verdicts": _verdict_targets}

if __name__ == "__main__":
    main()
