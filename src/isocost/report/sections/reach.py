"""Reward against compute for each n: fitted curves, and which n are equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isocost.planner.training.learning_rate import reward_at
from isocost.report import charts, theme
from isocost.report.html import Safe, brief, count, figure, interval, join, names, p, sentence, share, table, tag
from isocost.report.records import Data, ReportRecords, Run, as_list, law_of, number
from isocost.report.section import Section, empty, told
from isocost.report.sections.outcome import (
    SPLIT,
    equal_set,
    no_law,
    prescribed_C,
    prescribed_n,
    reach_of,
)
from isocost.screen.words import counted

if TYPE_CHECKING:
    from isocost.laws.law import Law

GRID = 72  # points of a drawn curve


def curves(study: ReportRecords) -> Section:
    """Reward against compute for each n: means over seeds, fitted curves, bands."""
    title, runs = "Reward against compute", [r for r in study.of("pilot") if r.evaluations]
    if not runs:
        return _plain(study, title)
    law, (spec, alt_text, rows) = law_of(study), reward_plot(study)
    beyond = " Dashed: extrapolated beyond the pilot, with the band of the prescribed n only." * bool(reach_of(study))
    caption = (f"Points are means over seeds. Lines are fitted curves, shades their 90 % confidence bands.{beyond} "
               "Click a legend entry to highlight an n; drag to pan, ctrl + wheel or pinch to zoom, double-click to "
               "reset.")
    plot = figure("reward", spec, alt_text, caption, rows)
    lead = (
        f"{len(runs)} pilot runs with n = {names(sorted({r.size('n') for r in runs if r.size('n')}))}. At the largest "
        f"common C, {_order(runs)}."
    )
    return Section("curves", title, join(
        p(lead, cls="lead"), plot, told(study, "law"), _arm_table(law), _left_out(runs)))


def reward_plot(study: ReportRecords) -> tuple[theme.Spec, str, list[Data]]:
    """The main plot: (specification, alternative text, the rows behind it)."""
    law = law_of(study)
    points, fits = reward_rows(study, law)
    reach = reach_of(study) if law else []
    rows = [*({"kind": "observed", **r} for r in points), *({"kind": "fitted", **r} for r in fits)]
    runs = [r for r in study.of("pilot") if r.evaluations]
    alt_text = (
        "Held-out reward against training rollouts, one curve for each n. At the end of the pilot: "
        + ", ".join(f"n = {n} {share(reward)}" for n, reward in _ends(runs))
    )
    if reach:
        alt_text += f". Shaded, {reach[0]['text'].replace(chr(10), ' ')}: up to {count(reach[0]['C2'])} rollouts"
    return charts.curves(points, fits, alt_text, prescribed_n(study), reach), alt_text, rows


def reward_rows(study: ReportRecords, law: Law | None) -> tuple[list[Data], list[Data]]:
    """What the main plot draws: means over seeds, and points of the law's fitted curves; none without a law."""
    points = _means([r for r in study.of("pilot") if r.evaluations])
    return points, _fitted(law, reach_of(study), prescribed_n(study)) if law else []


def _means(runs: Sequence[Run]) -> list[Data]:
    """Mean, lowest and highest over seeds at each (n, C), without the base: a log axis has no zero."""
    by: dict[tuple[int, float], list[float]] = {}
    for run in runs:
        if not run.diverged and (size := run.size("n")) is not None:
            for c, y in run.rewards():
                by.setdefault((size, c), []).append(y)
    return [
        {"n": n, "C": c, "reward": sum(v) / len(v), "low": min(v), "high": max(v), "runs": len(v)}
        for (n, c), v in sorted(by.items())
    ]


def _fitted(law: Law, reach: Sequence[Data] = (), chosen: int | None = None) -> list[Data]:
    """Points of the fitted curves; beyond its runs only the chosen n keeps its band, so that bands do not overlap."""
    rows: list[Data] = []
    low, high = law.range
    for n in law.ns:
        end, further = float(law.arm(n).C[-1]), reach[0]["C2"] if reach else high
        band = law.curve(n, np.geomspace(low, end, GRID))
        rows += [_point(n, *x, beyond=False) for x in _columns(band, 4)]
        if further > end:
            band = law.curve(n, np.geomspace(end, further, GRID // 3))
            rows += [_point(n, *x, beyond=True, band=n == chosen) for x in _columns(band, 4)]
    return rows


def _point(size: int, C: float, value: float, low: float, high: float, *, beyond: bool, band: bool = True) -> Data:
    bounds = (low, high) if band else (None, None)
    return {"n": size, "C": C, "reward": value, "low": bounds[0], "high": bounds[1], "beyond": beyond}


def _columns(band: Any, digits: int) -> list[tuple[float, ...]]:
    columns = (band.C, band.value, band.low, band.high)
    return [
        (round(float(c), 1), *(round(float(x), digits + 1) for x in rest)) for c, *rest in zip(*columns, strict=True)
    ]


def _ends(runs: Sequence[Run]) -> list[tuple[int, float]]:
    """(n, mean reward over seeds) at the largest C that every run reached, in order of n."""
    rewards = [(size, *_rewards(run)) for run in runs if (size := run.size("n")) is not None and not run.diverged]
    known = [(n, C, reward) for n, C, reward in rewards if len(C) and C[-1] > 0]
    common = min((float(C[-1]) for _, C, _ in known), default=math.inf)
    by: dict[int, list[float]] = {}
    for n, C, reward in known:
        by.setdefault(n, []).append(reward_at(C, reward, common))
    return [(n, sum(v) / len(v)) for n, v in sorted(by.items())]


def _rewards(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """C (K,) and reward (K,) of a run's evaluations, ascending, without evaluations that lack a number."""
    pairs = [(number(x.get("rollouts")), number(x.get(SPLIT, x.get("eval/select")))) for x in run.evaluations]
    known = sorted((c, y) for c, y in pairs if c is not None and y is not None)
    return np.array([c for c, _ in known]), np.array([y for _, y in known])


def _order(runs: Sequence[Run]) -> str:
    ends = sorted(_ends(runs), key=lambda end: -end[1])
    if not ends:
        return "no run has been evaluated"
    (first, highest), (last, lowest) = ends[0], ends[-1]
    if len(ends) == 1:
        return f"the reward of n = {first} is {share(highest)}"
    return f"n = {first} has the highest reward ({share(highest)}) and n = {last} the lowest ({share(lowest)})"


def _arm_table(law: Law | None) -> Safe:
    """Beside the law's rows: of each n the mean of as many new runs, and parameters of its curve."""
    if law is None:
        return p("The curves are not fitted yet: ", tag("code", "isocost fit"), ".", cls="empty")
    end, body = law.range[1], []
    for arm in law.arms:
        level, half = (law.parameter(arm.n, name) for name in ("A", "Cmid"))
        new = law.predict(arm.n, end, max(len(arm.runs), 1))[1]
        body.append([arm.n, interval(new.data()), interval(level.data()),
                     f"{brief(half.value)} [{brief(half.low)}, {brief(half.high)}]"])
    note = (
        "90 % intervals: prediction for the mean of as many new runs, and for the asymptote and the C at half of the"
        " gain, of which medians are shown, over the posterior draws of every curve form. Weights of the forms by their"
        f" evidence: {law.how_forms_weigh}."
    )
    head = ["n", f"mean of as many new runs at {brief(end)}", "asymptote", "C at half of the gain"]
    return join(table(head, body, "Fitted arms"), p(note, cls="soft"))


def _left_out(runs: Sequence[Run]) -> Safe:
    gone = [r.name for r in runs if r.diverged]
    if not gone:
        return Safe("")
    text = f"{names(gone)} fell 3 standard errors below the base. They are counted, and left out of the fit."
    return tag("div", tag("b", f"{len(gone)} diverged"), p(text), cls="flag")


def _plain(study: ReportRecords, title: str) -> Section:
    """Runs without a pilot: one line each."""
    rows: list[Data] = [{"run": run.name, "C": c, "reward": y} for run in study.of("run", "train")
                        for c, y in run.rewards()]
    if not rows:
        return Section("curves", title, empty(study, "No run of a pilot has been evaluated.", "isocost pilot"))
    ends: dict[str, float] = {r["run"]: r["reward"] for r in rows}
    alt_text = "Held-out reward against training rollouts, one line for each run. At the end: " + ", ".join(
        f"{k} {share(v)}" for k, v in ends.items()
    )
    caption = "One line for each run. Click a legend entry to highlight one."
    plot = figure("reward", charts.plain_curves(rows, alt_text), alt_text, caption, rows)
    best = max(ends, key=lambda k: ends[k])
    lead = f"{counted(len(ends), 'run')} without a pilot; {best} ends highest, at {share(ends[best])}."
    return Section("curves", title, join(p(lead, cls="lead"), plot))


def frontier(study: ReportRecords) -> Section:
    """The set of equal n, and n*(C) where it is identified."""
    title, law = "Best n at each compute", law_of(study)
    if law is not None and not law.arms:
        why = law.refused.reason if law.refused else "No n has a curve"
        return Section("frontier", title, join(p(sentence(why), cls="lead"), told(study, "plan")))
    if law is None:
        return Section("frontier", title, no_law(study))
    low, end = law.range
    top = max(prescribed_C(study) or end, end)
    fence = end if top > end else None
    return Section("frontier", title, join(
        _set_sentence(study, law), told(study, "plan"), _growth(law, low, top, fence)))


def _growth(law: Law, low: float, top: float, fence: float | None) -> Safe:
    """n*(C) as a chart; empty where it is not identified."""
    from isocost.laws.law import NotIdentified

    if law.n_star is None or isinstance(law.n_star, NotIdentified):
        return join()
    grid = np.geomspace(low, top, GRID)
    found = [law.n_star.at(float(c)) for c in grid]
    rows = [{"C": round(float(c), 1), "n": x.value, "low": max(x.low, 1), "high": x.high}
            for c, x in zip(grid, found, strict=True)]
    ends = (f"{share(rows[i]['n'], 1)} at {brief(c)}" for i, c in ((0, low), (-1, top)))
    alt_text = f"n* grows from {' rollouts to '.join(ends)}."
    caption = "The best n as compute grows: log2 n* is a sigmoid in ln C. The shade is its 90 % confidence band."
    plot = figure("n-star", charts.growth(rows, fence, alt_text), alt_text, caption, rows)
    return join(tag("h3", "n*(C)"), plot)


def _set_sentence(study: ReportRecords, law: Law) -> Safe:
    equal, plan = equal_set(study), study["plan"]
    c = prescribed_C(study) or law.range[1]
    where = f"At {count(c)} rollouts per run" if plan else "At the end of the pilot"
    equal = equal or law.equal_set(c)
    lead = f"{where} n = {names(equal)} {'is best' if len(equal) == 1 else f'are equal, within {law.margin:g}'}."
    if undecided := as_list(plan.get("undecided")):
        lead += f" n = {names(undecided)} may be better or worse by more than {law.margin:g}: cannot tell."
    if plan.get("fallback"):
        lead = f"The law is not identified, so no n is called best {where[0].lower()}{where[1:]}."
    return p(lead, cls="lead")
