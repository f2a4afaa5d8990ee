"""How each problem's pass rate moved: the mean hides which problems improved, and which regressed vs. the base."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.report import charts
from isocost.report.html import Safe, count, figure, join, names, p, percent, share, signed, table, tag
from isocost.report.outcome import prescribed_n
from isocost.report.records import Data, Run, Study
from isocost.report.section import Section, empty
from isocost.words import counted

if TYPE_CHECKING:
    from isocost.laws.interference import Interference


def interference(study: Study) -> Section:
    """The histogram of held-out pass rates over training, and what became of problems by where they began."""
    title = "Problem by problem"
    found = {purpose: _found(study.of(purpose)) for purpose in ("train", "pilot", "run")}
    shown = _shown(study, found)
    if not shown:
        missing = "No evaluation says how single problems moved."
        return Section("interference", title, empty(study, missing, "isocost pilot"))
    compared = found["pilot"] or found["run"] or found["train"]
    return Section("interference", title, join(_over_time(shown), _by_start(compared), _table(compared)))


def _found(runs: Sequence[Run]) -> list[Interference]:
    """What the runs' evaluations say of single problems; runs whose records do not are passed over."""
    from isocost.laws.interference import interference as read

    out = []
    for run in runs:
        try:
            told = read(run.folder)
        except (UserError, KeyError, TypeError, ValueError):    # a torn or foreign record; its flags are elsewhere
            continue
        if told is not None and not run.diverged and len(told.C) > 1:
            out.append(told)
    return sorted(out, key=lambda x: (x.n, x.seed, x.run))


def _shown(study: Study, found: dict[str, list[Interference]]) -> list[Interference]:
    """The runs of one arm whose histogram is drawn: the trained ones as prescribed, else the pilot's at that n."""
    for purpose in ("train", "pilot", "run"):
        own = found[purpose]
        chosen = [x for x in own if x.n == prescribed_n(study)] or [x for x in own if x.n == own[0].n]
        if chosen:
            return chosen
    return []


def _common(runs: Sequence[Interference]) -> ndarray:
    """Rollouts at which all of them were evaluated, (K,)."""
    at = set(runs[0].C.tolist())
    for x in runs[1:]:
        at &= set(x.C.tolist())
    return np.array(sorted(at))


def over_time(runs: Sequence[Interference]) -> list[Data]:
    """The share of problems in each of 17 bins of their pass rate, at every evaluation these runs have in common.

    Rows: C, when (the label of C), bin, rate (the bin's middle), problems (a mean over runs), share.
    """
    rows = []
    for C in _common(runs):
        histogram = np.mean([x.histogram[x.C.tolist().index(C)] for x in runs], axis=0)
        for k, problems in enumerate(histogram):
            rows.append(
                {"C": float(C), "when": "base" if C == 0 else count(C), "bin": k, "rate": k / (len(histogram) - 1),
                 "problems": round(float(problems), 2), "share": round(float(problems / max(histogram.sum(), 1)), 5)}
            )
    return rows


def _over_time(runs: Sequence[Interference]) -> Safe:
    rows = over_time(runs)
    if not rows:
        return Safe("")
    first, last = ([r for r in rows if r["C"] == c] for c in (rows[0]["C"], rows[-1]["C"]))
    solved, was = (sum(r["share"] for r in part if r["rate"] >= 0.9) for part in (last, first))
    none, nothing = (sum(r["share"] for r in part if r["bin"] == 0) for part in (last, first))
    lead = (
        f"At n = {runs[0].n}, {percent(solved)} of the held-out problems end at a pass rate of 0.9 or more, where"
        f" {percent(was)} began; {percent(none)} are hardly ever solved ({percent(nothing)} at first)."
    )
    alt_text = (
        f"Pass rates of {runs[0].problems} held-out problems over training at n = {runs[0].n}: the share of problems at"
        f" each rate. At 0.9 or more: {percent(was)} at first, {percent(solved)} at the end."
    )
    caption = (
        "Columns are evaluations, rows pass rates, stronger means more of the problems; a mean over"
        f" {counted(len(runs), 'run')}. A set that splits into a strong top and a strong bottom is being learned in"
        " part, whatever its mean says."
    )
    plot = figure("pass-rates-over-time", charts.heat(rows, alt_text), alt_text, caption, rows)
    return join(p(lead, cls="lead"), plot)


def by_start(runs: Sequence[Interference]) -> list[Data]:
    """Mean pass rate at the last evaluation of the problems that began in each bin, for each n.

    Rows: n, began (the bin's middle), ended, problems (that began there, a mean over runs).
    """
    rows = []
    for n in sorted({x.n for x in runs}):
        own = [x for x in runs if x.n == n]
        ends, weights = np.array([x.by_base[-1] for x in own]), np.array([x.histogram[0] for x in own])
        for k in range(ends.shape[1]):
            known = ends[:, k][np.isfinite(ends[:, k])]
            if len(known):
                rows.append(
                    {"n": n, "began": k / (ends.shape[1] - 1), "ended": round(float(known.mean()), 5),
                     "problems": round(float(weights[:, k].mean()), 2)}
                )
    return rows


def _by_start(runs: Sequence[Interference]) -> Safe:
    rows = by_start(runs)
    below = [r for r in rows if r["ended"] < r["began"] - 1 / 32 and r["problems"] >= 1]
    text = (
        "On the dashed line nothing changed; above it problems were learned. An n whose line is lifted evenly teaches"
        " all of them, one that rises at the left or the right only has chosen some. "
    )
    text += (
        f"Below the line: problems that began at {names(sorted({share(r['began'], 2) for r in below}))}."
        if below
        else "No group of problems ends below where it began."
    )
    gains = {n: _gain([r for r in rows if r["n"] == n]) for n in sorted({r["n"] for r in rows})}
    alt_text = "Pass rate at the end against pass rate at the start, a line for each n: " + "; ".join(
        f"n = {n} gains {signed(gain)} on average" for n, gain in gains.items()
    )
    caption = "Held-out problems by their pass rate before training: where those of one bin stand, on average, at last."
    plot = figure("by-start", charts.by_start(rows, alt_text), alt_text, caption, rows)
    return join(tag("h3", "By where a problem began"), p(text), plot)


def _gain(rows: Sequence[Data]) -> float:
    weights = [r["problems"] for r in rows]
    return sum(w * (r["ended"] - r["began"]) for w, r in zip(weights, rows, strict=True)) / max(sum(weights), 1e-9)


def _table(runs: Sequence[Interference]) -> Safe:
    from isocost.laws.interference import by_n

    def known(x: Any, how: Any) -> str:
        return "–" if x is None or (isinstance(x, float) and math.isnan(x)) else how(x)

    body = [
        [r["n"], r["runs"], percent(r["learned"]), percent(r["forgotten"]), known(r["chance"], percent),
         known(r["uniformity"], lambda x: share(x, 2))]
        for r in by_n(runs)
    ]
    head = ["n", "runs", "learned", "forgotten", "forgotten by chance, at most", "uniformity of gains"]
    note = (
        "Learned: from a pass rate near 0 to 1 in 16 or more; forgotten: the other way. Evenness is 1 where problems of"
        " every start have closed the same share of their distance to 1."
    )
    return join(table(head, body, "Single problems at the last evaluation, by n", "quiet"), p(note, cls="soft"))
