"""Interference: whether learning some problems makes others worse, from per-problem pass rates over training.

A mean hides interference: of two runs with one mean, one may improve every problem a little and the other solve a few
and lose some (arXiv 2603.12151 finds more uniform gains with a larger n). An evaluation records the histogram of pass
rates in 17 bins, the mean rate now of the problems in each bin of the base, and how many were forgotten. Rates on
training problems come from the journal, which has every attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.laws.curves import SIZED
from isocost.runs.files import RunFiles, read_json, read_lines, runs_of
from isocost.runs.schema import NAMED
from isocost.stats.progress import against, chance_of_zero, uniformity


@dataclass(frozen=True, eq=False)
class Interference:
    """One run's pass rates per problem at K points of compute, the base (or the first window) first.

    `histogram` (K, 17) counts problems; `by_base` (K, 17) is the mean rate by the bin of a problem's base rate (NaN: no
    problem); `forgotten`, `learned` and `uniformity` (K,) are shares in 0..1. Uniformity is 1 if every bin has gained
    the
    same share of its distance to 1, and w if a share w of the problems made all the gains; NaN without gains. `chance`
    bounds the share that sampling alone would show as forgotten if no rate changed (0: evaluated exactly; None: not
    known). If the base is sampled, rates by bin regress to its mean and uniformity is too high.
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

    def data(self) -> dict[str, Any]:
        """Plain data for JSON: NaN becomes null."""
        def plain(x: ndarray) -> list[Any]:
            return [plain(row) if row.ndim else (None if np.isnan(row) else row.item()) for row in x]

        arrays = ("C", "histogram", "by_base", "forgotten", "learned", "uniformity")
        return {k: plain(v) if k in arrays else v for k, v in vars(self).items()}


def interference(folder: str | Path | RunFiles) -> Interference | None:
    """The interference on a run's held-out problems, both splits, from its metrics; None if they are not recorded."""
    (run,) = runs_of([folder])
    record = run.about(SIZED)
    lines = [x for x in run.lines("metrics.jsonl") if "eval/by_base" in x]
    if not lines:
        return None
    samples = None if lines[0].get("eval/exact", True) else lines[0].get("eval/samples")
    rows = [{k: x[f"eval/{k}"] for k in ("histogram", "by_base", "forgotten", "learned")} for x in lines]
    C = [float(x["rollouts"]) for x in lines]
    return _over(record, C, rows, rows[:1] * len(rows), chance_of_zero(rows[0]["histogram"], samples))


def interferences(study: str | Path | Iterable[RunFiles], purpose: str = "pilot") -> list[Interference]:
    """`interference` for a study's runs of one purpose at the rule's learning rate, by n, then seed."""
    out = []
    for run in runs_of(study):
        record = run.about(SIZED)
        if record.get("purpose") == purpose and record["arm"].get("multiplier", 1.0) == 1.0:
            out.append(interference(run))
    return sorted((x for x in out if x is not None), key=lambda x: (x.n, x.seed, x.run))


def training(folder: str | Path, windows: int = 4) -> Interference | None:
    """The interference on a run's training problems, from its journal, in windows of about equally many steps.

    A problem's rate in a window is the mean of all its attempts there, before any filter. It is compared with the rate
    in the first window that sampled the problem, when the policy had already changed from the base. None if the journal
    has fewer than two steps. `problems` counts all that were sampled; a window's shares are of those sampled again.
    """
    folder = Path(folder)
    record = read_json(folder / "run.json", SIZED)
    journal = read_lines(folder / "journal.jsonl", NAMED)
    steps = 1 + max((x["step"] for x in journal), default=0)
    if steps < 2:
        return None
    windows = min(windows, steps)
    spent = {x["step"]: float(x["rollouts"]) for x in read_lines(folder / "metrics.jsonl") if "reward" in x}
    attempts: list[dict[tuple[str, str], list[float]]] = [{} for _ in range(windows)]
    for x in journal:
        rewards = [r for r in x["rewards"] if r is not None]
        attempts[x["step"] * windows // steps].setdefault((x["id"], x["variant"]), []).extend(rewards)
    rates = [{k: float(np.mean(v)) for k, v in window.items() if v} for window in attempts]
    first: dict[tuple[str, str], float] = {}
    rows, thens, C = [], [], []
    for i, window in enumerate(rates):
        again = [k for k in window if k in first] if i else list(window)
        first = {**window, **first}
        then = [first[k] for k in again]
        rows.append(against([window[k] for k in again], then))
        thens.append(against(then, then))
        C.append(max((c for s, c in spent.items() if s * windows // steps <= i), default=float("nan")))
    return _over(record, C, rows, thens, None, len(first))


def _over(record: dict[str, Any], C: list[float], rows: list[dict[str, Any]], thens: list[dict[str, Any]],
          chance: float | None, problems: int | None = None) -> Interference:
    """The rows of each point relative to `thens`, the same problems at first."""
    by_base, histogram = (np.array([r[k] for r in rows], dtype=float) for k in ("by_base", "histogram"))
    count = np.maximum(histogram.sum(1), 1)
    even = [uniformity(row, then["by_base"], then["histogram"]) for row, then in zip(by_base, thens, strict=True)]
    return Interference(
        run=record["name"], n=int(record["arm"]["n"]), B=int(record["arm"]["B"]), seed=int(record["seed"]),
        problems=int(histogram[0].sum()) if problems is None else problems, C=np.array(C), histogram=histogram,
        by_base=by_base, forgotten=np.array([r["forgotten"] for r in rows]) / count,
        learned=np.array([r["learned"] for r in rows]) / count,
        uniformity=np.array(even), chance=chance,
    )


def by_n(found: Sequence[Interference]) -> list[dict[str, Any]]:
    """Means over runs at the last evaluation that all runs reached, one row per n, as `isocost fit` prints.

    `forgotten`, `learned`, `uniformity` (None: no run gained) and `chance` (None: not known) as in `Interference`.
    """
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
