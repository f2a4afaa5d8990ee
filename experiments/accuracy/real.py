"""Real studies: sealed forecasts and what came of them."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt

from accuracy.pieces import HELD, Record, Target, covers, percent, picture, spec
from isocost.report import theme
from isocost.screen.words import markdown_table

NEAR = 0.01     # largest median of outcome minus forecast, in reward
WIDTH = 0.103   # largest median width: that of quickstarts with shorter pilots, whose law was not identified


def section(r: Record) -> str:
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
        f"{_identified(s)} The outcome lay in the 90 % interval in {s['inside_interval']}. The median width is"
        f" {s['median_width']:.3f}, the median error {s['median_error']:+.4f}.{lean} All share one model and one set"
        f" of problems, so they measure one setting. The forecast beat both naive ones by interval score in"
        f" {s['beats_both_naive']}."
        f"{' ' + r['note'] if 'note' in r else ''}\n\n"
        f"`python experiments/quickstart_seeds.py --seeds {s['studies']} --out"
        " experiments/results/quickstart_seeds.json`\n"
    )


def _identified(summary: Record) -> str:
    better = summary["better"].get("prescribed", 0)
    return (f" The law was identified in {summary['identified']} of {summary['studies']}, and the prescription followed"
            " from it. At equal rollouts it was significantly better than n = 8 (or the runner-up where n = 8 is"
            f" prescribed) in {better}.")


def backtest(r: Record) -> str:
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
        + _together(r)
        + f"\n`python experiments/backtest.py --out experiments/results/backtest.json`{HELD}\n"
    )


def _together(r: Record) -> str:
    own = {k: (f"{x['predictions']} predictions, {percent(x['held'])} of the intervals cover, median outcome minus"
               f" prediction {x['above']:+.4f}, median width {x['width']:.3f}") for k, x in r["together"].items()}
    return f"\nTogether: {own['all']}. Of an identified law: {own.get('identified', 'none')}.\n"


def targets(r: Record) -> list[Target]:
    """What the quickstarts must show."""
    rows = [x for x in r["studies"] if x["low"] is not None and x["outcome"] is not None]
    inside = sum(x["low"] <= x["outcome"] <= x["high"] for x in rows)
    error, width = r["summary"]["median_error"], r["summary"]["median_width"]
    unknown = sum(x["fallback"] for x in rows)
    return [
        (f"real quickstarts: outcome minus forecast, median of {len(rows)}", "at most 0.010 either way",
         f"{error:+.4f}", abs(error) <= NEAR),
        (f"real quickstarts: outcome in the 90 % interval, of {len(rows)}", "at least 80 %",
         percent(inside / len(rows)), inside >= 0.8 * len(rows)),
        (f"real quickstarts: law not identified, of {len(rows)}", "at most 10 %", percent(unknown / len(rows)),
         unknown <= 0.1 * len(rows)),
        ("real quickstarts: width of the interval, median", f"at most {WIDTH}", f"{width:.3f}", width <= WIDTH),
    ]


def backtest_targets(r: Record) -> list[Target]:
    """What the forecasts from the first part of real runs must show."""
    own = r["together"]["all"]
    return [
        (f"first part of real runs: outcome minus prediction, median of {own['predictions']}",
         "at most 0.010 either way", f"{own['above']:+.4f}", abs(own["above"]) <= NEAR),
        (f"first part of real runs: 90 % interval covers, of {own['predictions']}", "85 to 95 %",
         percent(own["held"]), covers(own["held"])),
    ]


def pictures(r: Record) -> Iterable[tuple[str, theme.Spec]]:
    rows = [
        {"seed": str(x["seed"]), **{k: x[k] for k in ("forecast", "low", "high", "outcome")},
         "held": "inside" if x["low"] <= x["outcome"] <= x["high"] else "outside"}
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
    yield "real", spec(alt.layer(*layers), "Sealed 90 % intervals (bars), forecasts (ticks), outcomes (points)", 260)


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
