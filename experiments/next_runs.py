"""Do the runs that the planner proposes to add tell more than others at the same cost? On studies with known truth.

    python experiments/next_runs.py --studies 60 --out experiments/results/next_runs.json

Each study is a pilot of five n and three seeds. One addition is made to it for as many rollouts as three runs cost:
three new seeds of one n, or its three runs continued to twice their length. `proposed` is the best of these ten by
`laws/next_runs.py`, `random` another one drawn at random; `none` adds nothing. The law is fitted again and asked at 4
times the pilot: `extra`, the mean over studies of the log of the compute that the n it then takes needs to reach what
the best n has (at most log 4); `lost`, in reward; `width` and `error` of the interval for the best n. `better` and
`worse` count the studies where proposed beats random in `extra`, or the other way round.
"""

from __future__ import annotations

import argparse
import json
import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isocost.laws.curves import Curve
from isocost.laws.fit import fit_law
from isocost.laws.law import DEAREST, Law
from isocost.planner.training.next_runs import NextRun, next_runs
from truth import INSIDE, Design, Planted, plant

DESIGN, TIMES = Design(), 4


def long_runs(planted: Planted, rng: np.random.Generator) -> list[Curve]:
    """Six runs of every n, all twice as long as the pilot's: what any addition will turn out to be."""
    C = np.geomspace(DESIGN.end / DESIGN.span, DESIGN.end, DESIGN.points)
    C = np.concatenate([C, DESIGN.end * np.array([1.4, 2.0])])
    return [planted.curve(n, seed, C, rng) for n in DESIGN.ns for seed in range(2 * DESIGN.seeds)]


def cut(curve: Curve, end: float) -> Curve:
    """The run as it was after `end` rollouts."""
    keep = end * 1.001 > curve.C
    return replace(curve, **{k: getattr(curve, k)[keep] for k in ("C", "select", "audit", "seconds", "epochs")})


def with_more(runs: list[Curve], added: NextRun | None) -> list[Curve]:
    """The pilot, with one addition."""
    out = []
    for run in runs:
        more = added is not None and run.arm["n"] == added.n
        end = added.C if more and added is not None and not added.new else DESIGN.end
        if run.seed < DESIGN.seeds + (added.new if more and added is not None else 0):
            out.append(cut(run, end))
    return out


def asked(law: Law, planted: Planted) -> dict[str, float]:
    """What the law's choice at four times the pilot costs, and its interval for the n that is truly best."""
    C = TIMES * DESIGN.end
    n, best = law.best(C), planted.best(C)
    told, top = law.predict(best, C)[0], float(planted.reward(best, C))
    return {"extra": float(np.log(min(1 + planted.extra(n, C), DEAREST))), "lost": top - float(planted.reward(n, C)),
            "width": told.width, "error": abs(told.value - top)}


def study(seed: int, number: int) -> dict[str, Any] | None:
    """One study with each addition; None where the law has nothing to propose."""
    rng = np.random.default_rng([seed, number])
    planted = plant(INSIDE[number % len(INSIDE)], rng)
    runs = long_runs(planted, rng)
    law = fit_law(with_more(runs, None), seed=number)
    cost = DESIGN.seeds * DESIGN.end
    found = [r for r in next_runs(law, TIMES * DESIGN.end, top=99) if abs(r.rollouts - cost) < 1]
    if not found or law.refused is not None:
        return None
    other = found[1 + int(rng.integers(len(found) - 1))]
    return {"none": asked(law, planted), "aim": found[0].aim, "said": [found[0].now, found[0].after],
            "proposed": asked(fit_law(with_more(runs, found[0]), seed=number), planted),
            "random": asked(fit_law(with_more(runs, other), seed=number), planted)}


def main() -> None:
    """Runs the studies and writes the record."""
    ask = argparse.ArgumentParser(description="Proposed additions to a pilot against random ones.")
    ask.add_argument("--studies", type=int, default=60)
    ask.add_argument("--out", type=Path, default=Path("experiments/results/next_runs.json"))
    ask.add_argument("--seed", type=int, help="drawn by the system if not given")
    told = ask.parse_args()
    seed = secrets.randbits(32) if told.seed is None else told.seed
    every = [study(seed, number) for number in range(told.studies)]
    done = [s for s in every if s is not None]
    apart = np.array([s["random"]["extra"] - s["proposed"]["extra"] for s in done])
    out = {
        "seed": seed, "studies": len(done), "nothing_to_propose": len(every) - len(done),
        "mean": {k: {m: round(float(np.mean([s[k][m] for s in done])), 4) for m in done[0][k]}
                 for k in ("none", "proposed", "random")},
        "better": int((apart > 1e-9).sum()), "worse": int((apart < -1e-9).sum()),
        "saved": {"mean": round(float(apart.mean()), 4),
                  "standard_error": round(float(apart.std(ddof=1) / np.sqrt(len(apart))), 4)},
        "lines": done,
    }
    told.out.write_text(json.dumps(out, indent=1) + "\n")
    print({k: v for k, v in out.items() if k != "lines"})


if __name__ == "__main__":
    main()
