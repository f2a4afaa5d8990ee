"""Does learning some problems unlearn others? Per-problem pass rates over training, in a few numbers an evaluation.

A mean hides interference: two runs of one mean differ where one lifts every problem a little and the other masters a
few and loses some (arXiv 2603.12151, which finds that a larger n lifts more evenly). An evaluation writes the
histogram of pass rates in 17 bins, what has become of the problems of each bin since the base, and how many were
unlearned. Training problems are read from the journal, which has every attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray
from scipy.special import betaln

from isocost.runs.files import read_json, read_lines
from isocost.runs.schema import NAMED, SIZED
from isocost.stats.passk import beta_binomial

BINS = 16               # bin k holds the rates nearest to k of 16, the samples of a profile
SOLVED = 1 / 16         # a pass rate from here on is above zero: 1 of 16
UNSOLVED = 1 / 32       # one below it counts as zero; the gap keeps what only trembles from counting


def bins_of(rates: ndarray) -> ndarray:
    """The bin of each pass rate: (P,) whole numbers 0..16, halves upwards; beyond [0, 1] in the end bins."""
    return np.clip(np.floor(np.asarray(rates, dtype=float) * BINS + 0.5), 0, BINS).astype(int)


def against(rates: Sequence[float] | ndarray, base: Sequence[float | None] | ndarray) -> dict[str, Any]:
    """What an evaluation keeps of pass rates (P,) now and at the base, as plain data; NaN or None: not scored.

    `histogram` counts problems in each of 17 bins of the rate now; `by_base` is the mean rate now of the problems of
    each bin of the rate then (None: there were none). `forgotten` counts problems that began at 1/16 or more and are
    below 1/32 now, `learned` those that went the other way.
    """
    now, then = np.array(rates, dtype=float), np.array(base, dtype=float)
    seen = np.isfinite(now)
    both = seen & np.isfinite(then)
    now_of, then_of = now[both], then[both]
    began = bins_of(then_of)
    return {
        "histogram": np.bincount(bins_of(now[seen]), minlength=BINS + 1).tolist(),
        "by_base": [float(now_of[began == k].mean()) if (began == k).any() else None for k in range(BINS + 1)],
        "forgotten": int(((then_of >= SOLVED) & (now_of < UNSOLVED)).sum()),
        "learned": int(((then_of < UNSOLVED) & (now_of >= SOLVED)).sum()),
    }


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


def uniformity(by_base: Sequence[float | None] | ndarray, then: Sequence[float | None] | ndarray,
               weights: Sequence[int] | ndarray) -> float:
    """How evenly bins (17,) have closed their distance to 1: now against `then`, weighted by their problems.

    With g the share of 1 - then that a bin has closed and m its mean: 1 - mean|g - m| / 2m, Hoover's index from the
    other side, at least 0; NaN where m <= 0. Bins within 1/32 of 1 have no room and are left out.
    """
    now, before, w = (np.array(x, dtype=float) for x in (by_base, then, weights))
    room = np.isfinite(now) & np.isfinite(before) & (w > 0)
    room[room] = 1 - before[room] >= UNSOLVED
    if not room.any():
        return float("nan")
    g = (now[room] - before[room]) / (1 - before[room])
    w = w[room] / w[room].sum()
    mean = float(w @ g)
    return max(0.0, 1 - float(w @ np.abs(g - mean)) / (2 * mean)) if mean > 1e-12 else float("nan")


def chance_of_zero(histogram: Sequence[int] | ndarray, samples: int | None) -> float | None:
    """The share of problems with a right sample at first and none at the next look, where no rate has changed.

    From a beta-binomial through the base's histogram: E[(1 - q^s) q^s] with q = 1 - p. None for more than 16 samples,
    which 17 bins do not tell apart. Looks that share random numbers, as a run's do, differ less: this is a bound.
    """
    if samples is None:
        return 0.0
    h = np.array(histogram, dtype=float)
    at = bins_of(np.arange(samples + 1) / samples)
    if samples > BINS or h[at].sum() < h.sum() or not h.sum():
        return None
    a, b = (float(x[0]) for x in beta_binomial(h[at]))
    once, twice = (np.exp(betaln(a, b + k * samples) - betaln(a, b)) for k in (1, 2))
    return float(once - twice)


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
