"""Interference: whether learning some problems makes others worse, from per-problem pass rates over training.

A mean hides interference: of two runs with one mean, one may improve every problem a little and the other solve a few
and lose some (arXiv 2603.12151 finds more uniform gains with a larger n). An evaluation records the histogram of pass
rates in 17 bins, the mean rate now of the problems in each bin of the base, and how many were forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.laws.curves import SIZED
from isocost.runs.files import RunFiles, runs_of
from isocost.stats.progress import chance_of_zero, uniformity


@dataclass(frozen=True, eq=False)
class Interference:
    """One run's pass rates per problem at K points of compute, the base first.

    `histogram` (K, 17) counts problems; `by_base` (K, 17) is the mean rate by the bin of a problem's base rate (NaN: no
    problem); `forgotten`, `learned` and `uniformity` (K,) are shares in 0..1. Uniformity is 1 if every bin has gained
    the same share of its distance to 1, and w if a share w of the problems made all the gains; NaN without gains.
    `chance` bounds the share that sampling alone would show as forgotten if no rate changed (0: evaluated exactly;
    None: not known). If the base is sampled, rates by bin regress to its mean and uniformity is too high.
    """

    run: str
    n: int
    B: int
    seed: int
    problems: int
    C: ndarray
    histogram: ndarray
    by_base: ndarray
    forgotten: ndarray
    learned: ndarray
    uniformity: ndarray
    chance: float | None


def interference(folder: str | Path | RunFiles) -> Interference | None:
    """The interference on a run's held-out problems, both splits, from its metrics; None if they are not recorded."""
    (run,) = runs_of([folder])
    record = run.about(SIZED)
    lines = [x for x in run.lines("metrics.jsonl") if "eval/by_base" in x]
    if not lines:
        return None
    samples = None if lines[0].get("eval/exact", True) else lines[0].get("eval/samples")
    rows = [{k: x[f"eval/{k}"] for k in ("histogram", "by_base", "forgotten", "learned")} for x in lines]
    base = rows[0]
    by_base, histogram = (np.array([r[k] for r in rows], dtype=float) for k in ("by_base", "histogram"))
    count = np.maximum(histogram.sum(1), 1)
    return Interference(
        run=record["name"], n=int(record["arm"]["n"]), B=int(record["arm"]["B"]), seed=int(record["seed"]),
        problems=int(histogram[0].sum()), C=np.array([float(x["rollouts"]) for x in lines]), histogram=histogram,
        by_base=by_base, forgotten=np.array([r["forgotten"] for r in rows]) / count,
        learned=np.array([r["learned"] for r in rows]) / count,
        uniformity=np.array([uniformity(row, base["by_base"], base["histogram"]) for row in by_base]),
        chance=chance_of_zero(base["histogram"], samples),
    )


def interferences(study: str | Path | Iterable[RunFiles]) -> list[Interference]:
    """`interference` for a study's pilot runs at the rule's learning rate, by n, then seed."""
    out = []
    for run in runs_of(study):
        record = run.about(SIZED)
        if record.get("purpose") == "pilot" and record["arm"].get("multiplier", 1.0) == 1.0:
            out.append(interference(run))
    return sorted((x for x in out if x is not None), key=lambda x: (x.n, x.seed, x.run))


def by_n(found: Sequence[Interference]) -> list[dict[str, Any]]:
    """`Interference` at the last evaluation that all runs reached, averaged: one row per n, as `isocost fit` prints."""
    rows, end = [], min((float(x.C[-1]) for x in found), default=0.0)
    at = {id(x): int(np.searchsorted(x.C, end, side="right")) - 1 for x in found}
    for n in sorted({x.n for x in found}):
        runs = [x for x in found if x.n == n]
        even = [float(v) for x in runs if np.isfinite(v := x.uniformity[at[id(x)]])]
        bounds = [x.chance for x in runs if x.chance is not None]
        rows.append({
            "n": n, "runs": len(runs), "forgotten": float(np.mean([x.forgotten[at[id(x)]] for x in runs])),
            "learned": float(np.mean([x.learned[at[id(x)]] for x in runs])),
            "uniformity": float(np.mean(even)) if even else None,
            "chance": float(np.mean(bounds)) if len(bounds) == len(runs) else None,
        })
    return rows
