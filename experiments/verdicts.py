"""Verdicts on simulated runs whose end is known: how often a stop is wrong, and how much it saves.

    python experiments/verdicts.py --studies 20 --out experiments/results/verdicts.json    for each of the eight truths

Each study plants a truth, runs a pilot on it and fits the law; the law's best n at eight times the pilot's largest run
is then trained, and judged at every evaluation by the function behind `isocost verdict`. Four runs of every study:

    sound     as the truth has it, against the lower bound of the forecast, the default target
    low       gains only 0.5 to 0.95 of what it should, from its start on; the same target
    slow      learns 2 to 8 times as slowly; the same target
    asked     sound, against a target drawn evenly between the base's reward and 1; judged again without the law

A run would have reached its target if its reward at the end, on the problems that report, is at least that. A stop of
such a run is wrong. The oracle knows the end, and stops what will miss at its first evaluation. Regret is what was
spent beyond the oracle, in budgets of a run: on a run that misses, all between the first evaluation and the stop; on
one stopped wrongly, the whole budget, as if it had to be run again. Beside it stand the regret of never stopping, and
of stopping at the first evaluation below the forecast's own 90 % band for one run. In every second study rewards are
shares of four samples of each of 128 problems, and a run is evaluated once per doubling, else they are read exactly,
twice per doubling: both as a study does by default.

`worth` is another rule on the sound runs: stop when what is left gains less than 0.02; wrong if the run then gained
that. `change n` is audited on groups of 8 drawn from pass rates that move: the share of dead groups climbs to just
below one half (a change is wrong) or to 0.7 (a change is right).

The seed is drawn when the command starts, so nothing can be tuned on it, and is written down.
"""

from __future__ import annotations

import argparse
import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

import made_with
from isocost.laws.curves import Curve
from isocost.laws.fit import fit_law
from isocost.laws.law import Law
from isocost.planner.stopping import Groups, judge
from isocost.runs.arm import Arm
from truth import INSIDE, OUTSIDE, Design, Planted, plant

TIMES, WORTH = 8, 0.02
PROBLEMS, SAMPLES = 128, 4
ROLES = ("sound", "low", "slow", "asked")


def faulty(truth: Planted, share: float = 1.0, slower: float = 1.0) -> Planted:
    """The same truth, of which a run gains only a share, or learns so many times as slowly."""
    def curve(f: Callable[[ndarray], ndarray]) -> Callable[[ndarray], ndarray]:
        return lambda C: truth.R0 + share * (f(C / slower) - truth.R0)
    return replace(truth, curves={n: curve(f) for n, f in truth.curves.items()})


def upto(run: Curve, k: int) -> Curve:
    """The run's first k evaluations."""
    return replace(run, **{x: getattr(run, x)[:k] for x in ("C", "select", "audit", "seconds", "epochs")})


def watched(run: Curve, end: float, looks: int, law: Law | None, **asked: Any) -> tuple[float | None, float | None]:
    """(rollouts at the first stop, chance of reaching the target there); None if it was never stopped."""
    for k in range(2, len(run.C)):
        said = judge(upto(run, k), end, law=law, looks=looks, **asked)
        if said.word == "stop":
            return said.C, said.reach
    return None, None


def banded(run: Curve, law: Law) -> float | None:
    """Rollouts at the first evaluation below the law's band for one run."""
    low = law.curve(run.arm["n"], run.C[1:-1], "prediction", 1).low
    below = run.audit[1:-1] < low
    return float(run.C[1:-1][below.argmax()]) if below.any() else None


def study(kind: str, rng: np.random.Generator, sampled: bool) -> list[dict[str, Any]]:
    """The rows of one study."""
    truth = plant(kind, rng)
    design = Design(held_out=PROBLEMS * SAMPLES if sampled else 0)
    law = fit_law(truth.pilot(design, rng), seed=0)
    end = TIMES * design.end
    n = law.best(end) if law.refused is None else law.fallback()
    goal = law.predict(n, end, 3)[1].low
    C = np.geomspace(design.end / design.span, end, (1 if sampled else 2) * int(np.log2(design.span * TIMES)) + 1)
    rows = []
    for role in ROLES:
        source = truth
        if role == "low":
            source = faulty(truth, share=rng.uniform(0.5, 0.95))
        if role == "slow":
            source = faulty(truth, slower=float(np.exp(rng.uniform(np.log(2), np.log(8)))))
        run = source.curve(n, 99, C, rng, design)
        if sampled:
            run = replace(run, problems=2 * PROBLEMS, samples=SAMPLES)
        target = goal if role != "asked" else rng.uniform(truth.R0, 1.0)
        for prior in ((law, None) if role == "asked" else (law,)):
            at, _ = watched(run, end, len(C), prior, target=target)
            rows.append({"role": role if prior else "asked, without a law", "target": target, "at": at,
                         "naive": banded(run, law) if role != "asked" else None,
                         "reached": bool(run.audit[-1] >= target), "first": float(C[0]), "end": end})
        if role == "sound":
            at, _ = watched(run, end, len(C), law, worth=WORTH)
            gained = None if at is None else float(run.audit[-1] - run.audit[np.searchsorted(run.C, at * 0.999)])
            rest = run.audit[-1] - run.audit[1:-1]
            least = np.flatnonzero(rest < WORTH)
            rows.append({"role": "worth", "at": at, "gained": gained, "first": float(C[0]), "end": end,
                         "best": float(run.C[1 + least[0]]) if len(least) else None})
    return [{"truth": kind, "sampled": sampled, "refused": law.refused is not None, **r} for r in rows]


def regret(row: dict[str, Any], at: float | None) -> float:
    """Budgets of a run spent beyond the oracle by stopping at `at`, or never."""
    if row["reached"]:
        return 0.0 if at is None else 1.0
    return ((row["end"] if at is None else at) - row["first"]) / row["end"]


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Wrong stops in three shares, and what was saved of what the oracle saves."""
    stopped = [r for r in rows if r["at"] is not None]
    wrong = sum(r["reached"] for r in stopped)
    misses = [r for r in rows if not r["reached"]]
    oracle = sum(r["end"] - r["first"] for r in misses)
    saved = sum(r["end"] - r["at"] for r in misses if r["at"] is not None)
    banded = [r for r in rows if not r["role"].startswith("asked")]
    return {
        "runs": len(rows), "miss": len(misses), "stopped": len(stopped), "wrong": wrong,
        "wrong_of_runs": share(wrong, len(rows)), "wrong_of_stops": share(wrong, len(stopped)),
        "wrong_of_runs_that_reach": share(wrong, len(rows) - len(misses)),
        "found": share(len(stopped) - wrong, len(misses)), "saved_of_oracle": share(saved, oracle),
        "regret": share(sum(regret(r, r["at"]) for r in rows), len(rows)),
        "regret_never": share(sum(regret(r, None) for r in rows), len(rows)),
        "regret_band": share(sum(regret(r, r["naive"]) for r in banded), len(banded)),
        "wrong_of_runs_band": share(sum(r["reached"] and r["naive"] is not None for r in banded), len(banded)),
    }


def worth_summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Of the rule that stops when too little is left to gain."""
    stopped = [r for r in rows if r["at"] is not None]
    wrong = sum(r["gained"] >= WORTH for r in stopped)
    oracle = sum(r["end"] - r["best"] for r in rows if r["best"] is not None)
    saved = sum(r["end"] - r["at"] for r in stopped if r["gained"] < WORTH)
    return {"worth": WORTH, "runs": len(rows), "stopped": len(stopped), "wrong": wrong,
            "wrong_of_stops": share(wrong, len(stopped)), "saved_of_oracle": share(saved, oracle)}


def share(a: float, b: float) -> float | None:
    return round(a / b, 4) if b else None


def changes(rng: np.random.Generator, runs: int) -> dict[str, Any]:
    """Of `change n`: runs of 17 looks, 256 groups of 8 between looks, pass rates Beta(0.5, b) that move."""
    def share_dead(b: float, n: int) -> float:
        p = rng.beta(0.5, b, 200_000)
        return float((p**n + (1 - p) ** n).mean())

    grid = np.geomspace(0.5, 20, 60)
    dead = np.array([share_dead(b, 8) for b in grid])

    def towards(last: float) -> ndarray:
        return np.interp(np.linspace(0.35, last, 17), dead, grid)

    out: dict[str, Any] = {"runs": runs, "n": 8, "groups": 256, "looks": 17}
    for name, last in (("just_below_half", 0.49), ("to_0.7", 0.7)):
        said, after = 0, []
        for _ in range(runs):
            for k, b in enumerate(towards(last)):
                right = rng.binomial(8, rng.beta(0.5, b, 256))
                run = Curve("r", Arm(n=8, B=16, lr=1e-3), 0,
                            *(np.array([0.0, 1.0]) * x for x in (1000, 0.3, 0.3, 1, 1)))
                if judge(run, 2000.0, groups=Groups(8, tuple(right)), looks=17).word == "change n":
                    said, after = said + 1, [*after, k]
                    break
        out[name] = {"changed": round(said / runs, 4), "at_look": float(np.median(after)) + 1 if after else None}
    half = int(np.argmax(np.linspace(0.35, 0.7, 17) > 0.5)) + 1
    return {**out, "first_look_above_half": half}


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ask.add_argument("--studies", type=int, default=20, help="of each truth")
    ask.add_argument("--changes", type=int, default=200, help="runs that audit `change n`")
    ask.add_argument("--seed", type=int, help="drawn if not given")
    ask.add_argument("--out", type=Path, required=True)
    asked = ask.parse_args()
    seed = secrets.randbits(32) if asked.seed is None else asked.seed
    rows: list[dict[str, Any]] = []
    for place, kind in enumerate(INSIDE + OUTSIDE):
        rng = np.random.default_rng([seed, place])
        for s in range(asked.studies):
            rows += study(kind, rng, sampled=bool(s % 2))
        print(kind, json.dumps(summary([r for r in rows if r["truth"] == kind and r["role"] != "worth"])), flush=True)
    judged = [r for r in rows if r["role"] != "worth"]
    told = {
        "command": f"python experiments/verdicts.py --studies {asked.studies} --changes {asked.changes}",
        "seed": seed, "studies": asked.studies * len(INSIDE + OUTSIDE), "refused": sum(
            r["refused"] for r in judged if r["role"] == "sound"),
        "all": summary(judged),
        "by_role": {k: summary([r for r in judged if r["role"] == k]) for k in dict.fromkeys(
            r["role"] for r in judged)},
        "inside": summary([r for r in judged if r["truth"] in INSIDE]),
        "outside": summary([r for r in judged if r["truth"] in OUTSIDE]),
        "by_truth": {k: summary([r for r in judged if r["truth"] == k]) for k in INSIDE + OUTSIDE},
        "exact": summary([r for r in judged if not r["sampled"]]),
        "sampled": summary([r for r in judged if r["sampled"]]),
        "worth": worth_summary([r for r in rows if r["role"] == "worth"]),
        "change": changes(np.random.default_rng([seed, 99]), asked.changes),
        "rows": [{k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()} for r in rows],
    }
    asked.out.write_text(json.dumps(told, indent=1) + "\n")
    made_with.note(asked.out, (*made_with.LAW, "planner/stopping.py"))
    print(json.dumps({k: v for k, v in told.items() if k != "rows"}, indent=1))


if __name__ == "__main__":
    main()
