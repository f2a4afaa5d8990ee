"""How the law forecasts other people's runs: public training logs, split by source into a tuning and a reporting half.

    python experiments/outside.py collect MIRROR            the manifest, and a check of the logs against it
    python experiments/outside.py tune MIRROR [--before]     the tuning half; --before without the noise model of logs
    python experiments/outside.py report MIRROR [--before]   the reporting half
    python experiments/outside.py third MIRROR [--before]    the third set; `collect MIRROR --set third`
    python experiments/outside.py fourth MIRROR [--before]   the fourth set; `collect MIRROR --set fourth`
    python experiments/outside.py fourth MIRROR --plain      the fourth set without the law's factor on upper ends
    python experiments/outside.py fifth MIRROR [--before]    the fifth set; `collect MIRROR --set fifth`

Design, fixed before any curve was fitted:

- Logs, readers, limits of rewards and the split by source are in `outside_logs.py` and in the manifest.
- A case is a study (one setting) with all of its seeds, and, where it has several, also with its first seed alone. The
  last 50 % and 75 % of the updates are hidden. Cases with fewer than 4 points after the base in the part that is shown
  are left out and counted.
- The outcome is the mean reward over the last tenth of the run (at least one point), over seeds. These are the same
  runs, which is easier than new runs.
- The forecast is `Law.curve(..., "prediction", runs=seeds)` at the median C of the outcome, level 90 %. It counts as
  refused if `Law.forecast_refused` says so (without the noise model: `Law.refused`); the curve is drawn and judged
  all the same, as long as there is one. A case without a curve is counted as refused, and as missing.
- Naive forecasts see the same points: the mean of the last tenth seen; the gain over the last doubling seen, once per
  hidden doubling; ScaleRL's sigmoid by least squares. Their intervals are the 5 % and 95 % quantiles of their errors
  on the other sources of the tuning half, of the same kind and hidden share; with fewer than 8 of these, of all kinds.
- Score of an interval: width + 20 times the distance by which it misses (Gneiting and Raftery 2007, for 90 %).
- Every source has the same weight within a kind of log, and every case within its source; over all kinds, every source
  has the same weight. Medians and shares use these weights. The ratio is the law's median score over that of the naive
  forecast with the least median score, both over the cases in which the law has a curve.
- Targets: 85 to 95 % of the intervals hold over all, and for training rewards; ratio at most 0.9; at most 60 % refused.
- The noise model is developed on the tuning half. The reporting half is judged once with it, and once without.

Added later:

- A third set of sources that nobody had fitted is listed with its manifest in `outside_third.py`. The list was fixed
  before any forecast of it, and it is judged once, with and without the noise model of logs.
- `*_judged.json` are the forecasts of the law as it was when each set was judged. After the third set the law's
  `UPPER`, one constant, was chosen on the sets so far (`outside_sure.UPPERS`): 1.4.
- A fourth set, of other owners, is listed with its rules in `outside_fourth.py`. It was judged once with that law.
- `outside_forms.py` seeks sharper intervals on the first three sets, each source left out (`forms.json`). The law was
  not changed.
- `UPPER` was chosen again, by the same rule, on the four sets: 1.5. `fourth_plain.json` has the fourth set without it;
  the sets before were judged without it. The commands now write `tuning.json`, `reporting.json`, `third.json` and
  `fourth.json` with it.
- A fifth set, of other owners, is listed with its rules in `outside_fifth.py`. It was judged once with the law of that
  `UPPER` (`fifth_judged.json`), and it is the evidence for that law.
- The law then stopped to forecast runs that have not risen and runs that are back at their start (`still` and
  `fell_back`; the rule for `still` has one constant, `fit.SPARSE`, chosen on all five sets). The commands write the
  sets with it. Two stronger rivals were added to every case: `RIVALS`, from `laws.naive`. The mixture has learned
  intervals as the naive forecasts have; the line's are its own.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import made_with
import outside_logs
from isocost.errors import UserError
from isocost.laws import naive
from isocost.laws.bins import MANY
from isocost.laws.curves import Curve, diverged, ends_of
from isocost.laws.fit import fit_law
from isocost.runs.arm import Arm
from isocost.stats.forms import fit_many, rise
from outside_fifth import FIFTH
from outside_fourth import FOURTH
from outside_logs import SIZE, TRAINING, Logged
from outside_third import THIRD

RESULTS = Path(__file__).parent / "results" / "outside"
HIDDEN = (0.5, 0.75)
LEVEL, TAIL, LEAST = 0.9, 0.1, 4
NAIVE = ("last tenth", "last doubling", "sigmoid")
RIVALS = ("line", "mixture")    # added after all sets were judged; the ratios to the best naive are without them
LATER = {"third": THIRD, "fourth": FOURTH, "fifth": FIFTH}      # sets that were collected after the two halves
FEW = 8     # errors of one kind that a naive interval needs


def cases(found: Sequence[Logged], half: str) -> list[tuple[Logged, int, float]]:
    """(study, seeds used, share hidden) of one half."""
    return [(one, seeds, hidden) for one in found if one.half == half
            for seeds in sorted({1, len(one.runs)}) for hidden in HIDDEN]


def shown(run: tuple[np.ndarray, np.ndarray], hidden: float) -> tuple[np.ndarray, np.ndarray]:
    """The part of a run (C, reward) up to this share of its updates."""
    C, reward = run
    keep = (1 - hidden) * C[-1] >= C
    return C[keep], reward[keep]


def outcome(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[float, float]:
    """(C, mean reward over seeds) of the last tenth of runs."""
    ends = [(C[(1 - TAIL) * C[-1] < C], r[(1 - TAIL) * C[-1] < C]) for C, r in runs]
    return float(np.median(np.concatenate([C for C, _ in ends]))), float(np.mean([r.mean() for _, r in ends]))


def curve(name: str, seed: int, C: np.ndarray, reward: np.ndarray, marked: bool, training: bool) -> Curve:
    """A run as `isocost fit` sees it; `marked` as read from the log of another trainer."""
    nan = np.full(len(C), math.nan)
    own = {"noisy": True, "training": training} if marked else {}
    found = Curve(f"{name}-s{seed}", Arm(n=SIZE, B=1, lr=1e-6), seed, C, reward, reward, nan, nan, samples=1, **own)
    object.__setattr__(found, "diverged", diverged(found))
    return found


def forecast(one: Logged, seeds: int, hidden: float, marked: bool, plain: bool = False) -> dict[str, Any]:
    """One case: what was forecast by the law (`plain`: without `UPPER`), by the naive forecasts, and the outcome."""
    runs = one.runs[:seeds]
    parts = [shown(run, hidden) for run in runs]
    at, true = outcome(runs)
    case: dict[str, Any] = {"source": one.source, "study": one.study, "kind": one.kind, "seeds": seeds,
                            "hidden": hidden, "outcome": round(true, 4), "points": len(parts[0][0])}
    if min(len(C) for C, _ in parts) < LEAST + 1:
        return {**case, "left_out": "fewer than 4 points after the base"}
    case["naive"] = {name: round(float(np.mean([NAIVES[name](C, r, at) for C, r in parts])), 4) for name in NAIVE}
    case["seen"] = case["naive"]["last tenth"]
    logged = [curve(one.study, i, C, r, marked, one.kind == TRAINING) for i, (C, r) in enumerate(parts)]
    law = fit_law(logged)
    case["refused"] = law.forecast_refused.reason if law.forecast_refused else ""
    case["flags"] = [flag.name for flag in law.flags if flag.name != "few_evaluations"]     # not of this forecast
    case["risen"] = any(ends_of(x, x.problems).risen for x in logged) if min(len(C) for C, _ in parts) >= MANY else None
    case["still"], case["fell_back"] = bool(law.arms and law.still(SIZE)), "collapsed" in case["flags"]
    lines = [naive.line_interval(C[C > 0], r[C > 0], at, LEVEL) for C, r in parts]
    case["line"] = [round(float(x), 4) for x in np.mean(lines, axis=0)]
    if law.arms:
        law = replace(law, upper=1.0) if plain else law
        band = law.curve(SIZE, at, "prediction", seeds)
        case["law"] = [round(float(x[0]), 4) for x in (band.value, band.low, band.high)]
        case["naive"]["mixture"] = round(naive.mixture(float(band.value[0]), case["seen"]), 4)
    return case


def last_tenth(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """The mean of the last tenth seen."""
    return float(reward[(1 - TAIL) * C[-1] <= C].mean())


def last_doubling(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """The last tenth's mean, and the gain over the last doubling for each hidden doubling."""
    end = last_tenth(C, reward, at)
    half = reward[((0.5 - TAIL / 2) * C[-1] <= C) & ((0.5 + TAIL / 2) * C[-1] >= C)]
    before = float(half.mean()) if len(half) else float(np.interp(C[-1] / 2, C, reward))
    return float(np.clip(end + (end - before) * math.log2(at / C[-1]), 0, 1))


def sigmoid(C: np.ndarray, reward: np.ndarray, at: float) -> float:
    """ScaleRL's sigmoid from the first reward, by least squares."""
    form = rise(1.0)
    found = fit_many(form, C[1:], reward[None, 1:], np.ones(len(C) - 1), {"R0": float(reward[0])})[0]
    return float(np.clip(form.f(np.array([at]), *(found[0, i] for i in range(found.shape[1])))[0], 0, 1))


NAIVES: dict[str, Callable[[np.ndarray, np.ndarray, float], float]] = {
    "last tenth": last_tenth, "last doubling": last_doubling, "sigmoid": sigmoid}


def interval(case: dict[str, Any], name: str, tuning: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """A naive forecast's interval from its errors on the other sources of the tuning half; a line's is its own."""
    if name == "line":
        return case["line"][1], case["line"][2]
    others = [x for x in tuning if x["source"] != case["source"] and name in x.get("naive", ())
              and x["hidden"] == case["hidden"]]
    same = [x for x in others if x["kind"] == case["kind"]]
    used = same if len(same) >= FEW else others
    errors = np.array([x["outcome"] - x["naive"][name] for x in used])
    weights = weigh(used, per_kind=False)
    order = np.argsort(errors)
    share = np.cumsum(weights[order]) / weights.sum()
    low, high = (errors[order][min(int(np.searchsorted(share, q)), len(used) - 1)] for q in (0.05, 0.95))
    value = case["naive"][name]
    return float(np.clip(value + low, 0, 1)), float(np.clip(value + high, 0, 1))


def score(low: float, high: float, true: float) -> float:
    """The interval score at 90 %: width, and 20 times the distance of a miss."""
    return high - low + 2 / (1 - LEVEL) * (max(low - true, 0.0) + max(true - high, 0.0))


def weigh(found: Sequence[dict[str, Any]], per_kind: bool = True) -> np.ndarray:
    """Weights: every source alike (within its kind), every case alike in its source."""
    keys = [(x["source"], x["kind"] if per_kind else "") for x in found]
    return np.array([1 / keys.count(key) for key in keys])


def median(values: np.ndarray, weights: np.ndarray) -> float:
    """The weighted median."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][int(np.searchsorted(share, 0.5))])


def summary(found: Sequence[dict[str, Any]], tuning: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Coverage, median error, score against the naive forecasts, and share refused, of some cases."""
    every = [x for x in found if "left_out" not in x]
    drawn = [x for x in every if "law" in x]
    if not drawn:
        return {"cases": len(every), "drawn": 0}
    weights, all_weights = weigh(drawn, False), weigh(every, False)
    true = np.array([x["outcome"] for x in drawn])
    value, low, high = np.array([x["law"] for x in drawn]).T
    holds = (low <= true) & (true <= high)
    scores = {name: np.array([score(*interval(x, name, tuning), x["outcome"]) for x in drawn]) for name in NAIVE}
    held = {name: np.average([a <= x["outcome"] <= b for x in drawn for a, b in [interval(x, name, tuning)]],
                             weights=weights) for name in NAIVE}
    naive = {name: median(values, weights) for name, values in scores.items()}
    own = median(np.array([score(a, b, t) for a, b, t in zip(low, high, true, strict=True)]), weights)
    best = min(naive, key=lambda name: naive[name])
    clear = np.array([not x["refused"] for x in drawn])
    out = {
        "sources": len({x["source"] for x in every}), "cases": len(every), "drawn": len(drawn),
        "held": float(np.average(holds, weights=weights)), "error": median(true - value, weights),
        "absolute": median(np.abs(true - value), weights), "width": median(high - low, weights),
        "score": own, "naive": naive, "naive_held": {k: float(v) for k, v in held.items()}, "best": best,
        "ratio": own / naive[best],
        "refused": float(np.average([bool(x["refused"]) or "law" not in x for x in every], weights=all_weights)),
        "below": float(np.average(true < low, weights=weights)),
        "above": float(np.average(true > high, weights=weights)),
        "clear": int(clear.sum()),
        "clear_held": float(np.average(holds[clear], weights=weights[clear])) if clear.any() else None,
    }
    return {k: round(v, 4) if isinstance(v, float) else v for k, v in out.items()}


def groups(found: Sequence[dict[str, Any]], tuning: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The summaries that the page shows."""
    kinds = list(dict.fromkeys(x["kind"] for x in found))
    out = {"all": summary(found, tuning)}
    out |= {kind: summary([x for x in found if x["kind"] == kind], tuning) for kind in kinds}
    for kind in kinds:
        for name, few in (("one run", True), ("several runs", False)):
            part = [x for x in found if x["kind"] == kind and (x["seeds"] == 1) == few]
            if part:
                out[f"{kind}, {name}"] = summary(part, tuning)
    return out


def judge(
    mirror: Path, half: str, before: bool, plain: bool = False, progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """All cases of a half, with their summaries; naive intervals are learned on the tuning half."""
    found = checked(mirror, half)
    done = [forecast(one, seeds, hidden, not before, plain) for one, seeds, hidden in cases(found, half)]
    tuning = done if half == "tuning" else read("tuning_before.json")["cases"]
    summaries = groups(done, tuning)
    for name, x in summaries.items():
        if x["drawn"]:
            progress(f"{name:36s} {x['drawn']:4d}/{x['cases']:<4d} held {x['held']:.3f} (below {x['below']:.2f}, above "
                     f"{x['above']:.2f}) error {x['error']:+.3f} absolute {x['absolute']:.3f} width {x['width']:.3f} "
                     f"score {x['score']:.3f} ratio {x['ratio']:.2f} ({x['best']}) refused {x['refused']:.2f}")
    return {"half": half, "before": before, "groups": summaries, "cases": done}


def collected(mirror: Path, half: str) -> tuple[list[dict[str, Any]], list[Logged]]:
    """The manifest and the studies of a mirror: of a later set, or of both halves."""
    later = half if half in LATER else ""
    return outside_logs.collect(mirror, LATER.get(half, outside_logs.SOURCES), later)


def manifest_of(half: str) -> str:
    """The file with the manifest of a half or of a later set."""
    return f"manifest_{half}.json" if half in LATER else "manifest.json"


def checked(mirror: Path, half: str) -> list[Logged]:
    """The studies of a mirror. Raises UserError if a log differs from the manifest."""
    manifest, found = collected(mirror, half)
    kept = {(x["source"], x["study"], x["path"]): x["sha256"] for x in read(manifest_of(half))["logs"]}
    for x in manifest:
        if kept.get((x["source"], x["study"], x["path"])) != x["sha256"]:
            raise UserError(f"{x['source']}, {x['path']} differs from the manifest: check out commit {x['commit']}")
    return found


def read(name: str) -> Any:
    """A recorded result."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def write(name: str, data: Any) -> None:
    """Record a result; a manifest does not depend on the law."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / name).write_text(lined(data) + "\n", encoding="utf-8")
    if not name.startswith("manifest"):
        made_with.note(RESULTS / name)


def lined(data: Any) -> str:
    """JSON with one line for each log or case."""
    lines = []
    for key, value in data.items():
        inside = ",\n".join(json.dumps(x) for x in value) if isinstance(value, list) else ""
        lines.append(json.dumps(key) + ": " + (f"[\n{inside}\n]" if inside else json.dumps(value)))
    return "{\n" + ",\n".join(lines) + "\n}"


def main() -> None:
    """The command line of the first lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("collect", "tune", "report", *LATER))
    parser.add_argument("mirror", type=Path)
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--set", choices=tuple(LATER), default="both", help="collect a later set")
    parser.add_argument("--dry", action="store_true", help="print, and record nothing")
    asked = parser.parse_args()
    if asked.step == "collect":
        write(manifest_of(asked.set), {"logs": collected(asked.mirror, asked.set)[0]})
        return
    half = {"tune": "tuning", "report": "reporting"}.get(asked.step, asked.step)
    done = judge(asked.mirror, half, asked.before, asked.plain)
    if not asked.dry:
        write(f"{half}{'_before' if asked.before else '_plain' if asked.plain else ''}.json", done)


if __name__ == "__main__":
    main()
