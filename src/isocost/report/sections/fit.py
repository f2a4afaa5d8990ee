"""Whether each run of a law is inside the prediction interval from the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from isocost.report.html import Safe, join, names, p, percent, table, tag
from isocost.report.records import Data, ReportRecords, law_of
from isocost.report.section import Section
from isocost.report.sections.outcome import no_law

if TYPE_CHECKING:
    from isocost.laws.law import FittedArm, Law

LEVEL = 0.9


def fit(study: ReportRecords) -> Section:
    """Each run compared with the band of the others."""
    title, law = "How well the curves fit", law_of(study)
    if law is None:
        return Section("fit", title, no_law(study))
    if not law.arms:
        return Section("fit", title, p("No n has a curve to compare with its runs.", cls="empty"))
    note = ("This is one study. For how often such intervals hold over many studies with known truth, see ",
            tag("code", "docs/how_sure.md"), " of the package.")
    return Section("fit", title, join(_coverage(law), p(*note, cls="soft")))


def leave_one_out(law: Law) -> list[Data]:
    """Every evaluation of every run, compared with the 90 % band for one new run from its arm's other runs.

    The band is the curve refitted without the run, give or take Student's quantile of the run-to-run noise measured
    without it, widened by sqrt(1 + 1 / runs left). Rows: n, run, C, reward, low, high, place (0 at the lower end of
    the band, 1 at its upper), held. Arms of one run are left out, as is a band of no width.
    """
    from isocost.stats.intervals import spread, student

    dof = _dof(law) - 1
    if dof < 1:
        return []
    rows: list[Data] = []
    for arm in law.arms:
        runs = len(arm.runs)
        if runs < 2:
            continue
        for i, name in enumerate(arm.runs):
            middle = _without(law, arm, i)
            sd = spread(middle) * _pooled(law, arm, i, dof)
            half = student(LEVEL, dof) * sd * math.sqrt(1 + 1 / (runs - 1))
            for c, y, m, h in zip(arm.C, arm.audit[i], middle, half, strict=True):
                if h > 0:
                    rows.append(
                        {"n": arm.n, "run": name, "C": round(float(c), 1), "reward": round(float(y), 5),
                         "low": round(float(m - h), 5), "high": round(float(m + h), 5),
                         "place": round(float((y - m + h) / (2 * h)), 3), "held": bool(abs(y - m) <= h)}
                    )
    return rows


def _measured(law: Law) -> list[FittedArm]:
    """The arms that measure run-to-run noise: those that moved, as in the fit."""
    several = [arm for arm in law.arms if len(arm.runs) > 1]
    return [arm for arm in several if arm.moved] or several


def _dof(law: Law) -> int:
    return sum(len(arm.runs) - 1 for arm in _measured(law))


def _without(law: Law, arm: FittedArm, i: int) -> ndarray:
    """The arm's curve fitted without run i: the law's forms, each refitted, by their weights. (K,)"""
    from isocost.stats.forms import gain_share

    fitted, base = arm.fits[1], law.R0[1]
    gains = [(A - base) * gain_share(arm.C, Cmid, b, tail)
             for (A, Cmid, b), tail in zip(fitted.folds[i], law.tails, strict=True)]
    return np.asarray(base + np.array(law.weights) @ np.array(gains))


def _pooled(law: Law, held: FittedArm, i: int, dof: int) -> ndarray:
    """The run-to-run standard deviation in units of `spread`, at the held arm's points (K,), without its run i."""
    from isocost.stats.intervals import spread

    squares = np.zeros(len(held.C))
    for arm in _measured(law):
        rewards = np.delete(arm.audit, i, 0) if arm.n == held.n else arm.audit
        mean = rewards.mean(0)
        own = (((rewards - mean) / spread(mean)) ** 2).sum(0)
        squares += np.interp(np.log(held.C), np.log(arm.C), own)
    return np.sqrt(squares / (dof if held in _measured(law) else dof + 1))


def _coverage(law: Law) -> Safe:
    head, rows = tag("h3", "Is each run inside the prediction interval from the other runs?"), leave_one_out(law)
    by = {run: [r["held"] for r in rows if r["run"] == run] for run in dict.fromkeys(r["run"] for r in rows)}
    if len(by) < 2:     # none, or all of one name
        words = (
            "Not computed: too few runs. It needs, for example, two arms with two runs each that improved measurably."
        )
        return join(head, p(words, cls="empty"))
    shares = [sum(x) / len(x) for x in by.values()]
    held, error = sum(r["held"] for r in rows), float(np.std(shares, ddof=1)) / math.sqrt(len(shares))
    overall = held / len(rows)
    text = (
        f"{held} of {len(rows)} evaluations ({percent(overall)}) are inside the 90 % band for one new run, computed"
        f" from the other runs of their n. The standard error is {percent(error)}, over runs: the points of one run are"
        " correlated."
    )
    off = overall - LEVEL
    if abs(off) <= 2 * error:
        text += " This is consistent with 90 %."
    else:
        text += (
            " The bands are too narrow: these runs differ by more than the pooled noise."
            if off < 0
            else " The bands are wider than necessary for these runs."
        )
    never = [run for run, x in by.items() if not any(x)]
    outside = f" Always outside: {names(never)}." if never else ""
    body = []
    for arm in law.arms:
        own = [r for r in rows if r["n"] == arm.n]
        if own:
            body.append([arm.n, len(arm.runs), f"{sum(r['held'] for r in own)} of {len(own)}",
                         percent(sum(r["held"] for r in own) / len(own))])
    return join(head, p(text + outside), table(["n", "runs", "inside", "share"], body, "Inside, by n", "quiet"))
