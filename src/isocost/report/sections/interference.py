"""How the pass rate of each problem changed, which the mean hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from isocost.errors import UserError
from isocost.report import charts
from isocost.report.html import Safe, count, figure, join, p, percent, share, table
from isocost.report.records import Data, ReportRecords, Run
from isocost.report.section import Section, empty
from isocost.report.sections.outcome import prescribed_n
from isocost.screen.words import counted

if TYPE_CHECKING:
    from isocost.laws.interference import Interference


def interference(study: ReportRecords) -> Section:
    """The histogram of held-out pass rates over training, and what was learned and forgotten at each n."""
    title = "Problem by problem"
    found = {purpose: _found(study.of(purpose)) for purpose in ("train", "pilot", "run")}
    shown = _shown(study, found)
    if not shown:
        missing = "No evaluation records the pass rates of single problems."
        return Section("interference", title, empty(study, missing, "isocost pilot"))
    compared = found["pilot"] or found["run"] or found["train"]
    return Section("interference", title, join(_over_time(shown), _table(compared)))


def _found(runs: Sequence[Run]) -> list[Interference]:
    """Pass rates of single problems in the runs' evaluations; runs whose records lack them are left out."""
    from isocost.laws.interference import interference as read

    out = []
    for run in runs:
        try:
            own = read(run.folder)
        except (UserError, KeyError, TypeError, ValueError):    # a broken record: a flag names it
            continue
        if own is not None and not run.diverged and len(own.C) > 1:
            out.append(own)
    return sorted(out, key=lambda x: (x.n, x.seed, x.run))


def _shown(study: ReportRecords, found: dict[str, list[Interference]]) -> list[Interference]:
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
        f"At n = {runs[0].n}, {percent(solved)} of the held-out problems have a pass rate of 0.9 or more at the end"
        f" ({percent(was)} at the start); {percent(none)} are almost never solved ({percent(nothing)} at the start)."
    )
    alt_text = (
        f"Pass rates of {runs[0].problems} held-out problems over training at n = {runs[0].n}: the share of problems at"
        f" each rate. At 0.9 or more: {percent(was)} at the start, {percent(solved)} at the end."
    )
    caption = (
        "Columns are evaluations, rows are pass rates, stronger colours mean more problems. Mean over"
        f" {counted(len(runs), 'run')}. Strong colours at top and bottom: only part of the problems is learned."
    )
    plot = figure("pass-rates-over-time", charts.heat(rows, alt_text), alt_text, caption, rows)
    return join(p(lead, cls="lead"), plot)


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
        "Learned: from a pass rate near 0 to 1/16 or more. Forgotten: the reverse. Uniformity is 1 if problems of every"
        " initial pass rate have closed the same share of their distance to 1."
    )
    return join(table(head, body, "Single problems at the last evaluation, by n", "quiet"), p(note, cls="soft"))
