"""Does learning some problems unlearn others? Per-problem pass rates over training, in a few numbers an evaluation.

A mean hides interference: two runs of one mean differ where one lifts every problem a little and the other masters a
few and loses some (arXiv 2603.12151, which finds that a larger n lifts more evenly). An evaluation writes the
histogram of pass rates in 17 bins, what has become of the problems of each bin since the base, and how many were
forgotten. Training problems are read from the journal, which has every attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from isocost.runs.files import read_json, read_lines
from isocost.runs.schema import NAMED, SIZED
from isocost.stats.progress import against, chance_of_zero, uniformity


@dataclass(frozen=True, eq=False)
class Interference:
    """One run's pass rates per problem at K points of compute, the base (or the first window) first.

    `histogram` (K, 17) are counts of problems, `by_base` (K, 17) mean rates by the bin a problem began in (NaN: none
    did), `forgotten`, `learned` and `uniformity` (K,) shares in 0..1. Uniformity is 1 where every bin has closed the
    same share of its distance to 1, and w where a share w of the problems made all the progress; NaN without progress.
    `chance` bounds the share that would seem forgotten by sampling alone, had nothing changed (0: evaluated exactly;
    None: not known). Rates by bin of a sampled base drift to its mean, so there uniformity is too high.
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


def interference(folder: str | Path) -> Interference | None:
    """A run's held-out problems, both halves, from its metrics; None where the record does not hold them."""
    folder = Path(folder)
    record = read_json(folder / "run.json", SIZED)
    lines = [x for x in read_lines(folder / "metrics.jsonl") if "eval/by_base" in x]
    if not lines:
        return None
    samples = None if lines[0].get("eval/exact", True) else lines[0].get("eval/samples")
    rows = [{k: x[f"eval/{k}"] for k in ("histogram", "by_base", "forgotten", "learned")} for x in lines]
    C = [float(x["rollouts"]) for x in lines]
    return _over(record, C, rows, rows[:1] * len(rows), chance_of_zero(rows[0]["histogram"], samples))


def interferences(study: str | Path, purpose: str = "pilot") -> list[Interference]:
    """Those of a study's runs of one purpose at the rule's learning rate, by n, then seed."""
    out = []
    for path in sorted((Path(study) / "runs").glob("*/run.json")):
        record = read_json(path, SIZED)
        if record.get("purpose") == purpose and record["arm"].get("multiplier", 1.0) == 1.0:
            out.append(interference(path.parent))
    return sorted((x for x in out if x is not None), key=lambda x: (x.n, x.seed, x.run))


def training(folder: str | Path, windows: int = 4) -> Interference | None:
    """The same of a run's training problems, from its journal, in windows of about equally many steps.

    A problem's rate in a window is the mean of all its attempts there, before any filter; it is held against its
    rate in the first window it was drawn in, when the policy was no longer quite the base. None without a journal
    of two steps or more. `problems` counts those drawn at all; a window's shares are of those it drew again.
    """
    folder = Path(folder)
    record = read_json(folder / "run.json", SIZED)
    journal = read_lines(folder / "journal.jsonl", NAMED)
    steps = 1 + max((x["step"] for x in journal), default=0)
    if steps < 2:
        return None
    windows = min(windows, steps)
    spent = {x["step"]: float(x["rollouts"]) for x in read_lines(folder / "metrics.jsonl") if "reward" in x}
    seen: list[dict[tuple[str, str], list[float]]] = [{} for _ in range(windows)]
    for x in journal:
        rewards = [r for r in x["rewards"] if r is not None]
        seen[x["step"] * windows // steps].setdefault((x["id"], x["variant"]), []).extend(rewards)
    rates = [{k: float(np.mean(v)) for k, v in window.items() if v} for window in seen]
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
    """Each row against `thens`, what the same problems were at first."""
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
    """Means over runs at the last evaluation that all had reached, one row per n: what `isocost fit` prints.

    `forgotten`, `learned`, `uniformity` (None: no run progressed) and `chance` (None: not known) as in `Interference`.
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
