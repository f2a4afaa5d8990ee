"""Real sweeps of n and of the learning rate, from which studies are drawn: what does a prescription give away?

    python experiments/sweeps.py run --situations hard level1     runs, into experiments/results/sweeps/NAME.json
    python experiments/sweeps.py more --situations hard     twice the seeds for the n that end within 0.02 of the best

A *situation* is a model, its problems and the sizes of a study: B, the length of a pilot run, and three budgets of up
to four times that length. It is swept over n and over multiples of the starting rule of the learning rate, with paired
seeds, to its largest budget. The rate is constant after the warm-up, so a shorter run is the beginning of a longer one.
Warm-up is that of a run as long as the pilot's, as in a pilot whose runs are continued. `seconds` are CPU seconds of
the run so far, without evaluations. A run that is in the record is not run again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isocost.laws.curves import curves
from isocost.planner.evaluation import EvaluationPlan
from isocost.planner.training.learning_rate import RateRule
from isocost.planner.training.study_runs import PlannedRun, run_seed, warmup, whole
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.files import GO_ON
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.steps.settings import setting_with
from isocost.steps.training.single import starting_rule_of
from isocost.worlds.setting import Setting

CLOSE = 0.02            # difference in reward at which n get twice as many seeds
CHECKED = (0.5, 1.0, 2.0)       # and at which multiples of the rule's rate: those that a pilot checks
OUT = Path(__file__).resolve().parent / "results" / "sweeps"


@dataclass(frozen=True)
class Situation:
    """What is swept. `pilot` and `budgets` are rollouts per run; `lr` is the rule's rate at 256 rollouts per update, by
    default the one that a study starts from."""

    options: dict[str, Any]
    ns: tuple[int, ...]
    B: int
    pilot: int
    budgets: tuple[int, ...]
    rates: tuple[float, ...]
    method: str = "grpo"
    seeds: int = 6
    lr: float | None = None


SUMS: dict[str, Any] = {"ns": (2, 4, 8, 16, 32, 64), "B": 8, "pilot": 10240, "budgets": (18432, 28672, 40960),
                        "rates": (0.5, 1.0, 2.0, 4.0)}
PUZZLES: dict[str, Any] = {"ns": (2, 4, 8, 16, 32), "B": 4, "pilot": 2048, "budgets": (3584, 5632, 8192),
                           "rates": (0.5, 1.0, 2.0), "lr": 2e-4}
SITUATIONS = {
    "level1": Situation({"data": "sums:level=1"}, **SUMS),
    "level2": Situation({"data": "sums:level=2"}, **SUMS),
    "hard": Situation({"data": "sums:base=hard"}, **SUMS),
    "worked": Situation({"data": "sums:work=1,level=2"}, **SUMS),
    "digits4": Situation({"data": "puzzles:kind=addition,length=2,count=600"}, **PUZZLES),
    "digits6": Situation({"data": "puzzles:kind=addition,length=3,count=600"},
                         **PUZZLES | {"pilot": 1024, "budgets": (1792, 2816, 4096)}),
    "desk": Situation({"env": "desk:store=4", "max_turns": 16}, (2, 4, 8, 16), 2, 256, (448, 704, 1024),
                      (0.5, 1.0, 2.0), lr=2e-3),
}


def planned(s: Situation, ns: tuple[int, ...] = (), rates: tuple[float, ...] = (), first: int = 0) -> list[PlannedRun]:
    """Every run of a situation, or of some of its n and rates, seeds outermost, so that a record that was interrupted
    has whole replicates."""
    return [PlannedRun("pilot", Arm(n=n, B=s.B, multiplier=x), max(s.budgets), i, run_seed(0, "pilot", i),
                       first_C=s.pilot)
            for i in range(first, first + s.seeds) for x in rates or s.rates for n in ns or s.ns]


def close(s: Situation, kept: dict[str, Any]) -> tuple[int, ...]:
    """The n that end within `CLOSE` of the best one at the rule's rate, where there are at least two."""
    end = {n: np.mean([r["audit"][-1] for r in kept["runs"] if (r["n"], r["multiplier"]) == (n, 1.0)]) for n in s.ns}
    near = tuple(n for n in s.ns if end[n] > max(end.values()) - CLOSE)
    return near if len(near) > 1 else ()


def points(s: Situation) -> tuple[int, ...]:
    """The rollouts at which every run is evaluated: the pilot's points, and the budgets."""
    unit = whole(s.ns, s.B)
    before = EvaluationPlan().points(s.pilot, unit)
    after = [p for p in EvaluationPlan().points(max(s.budgets), unit) if p > s.pilot]
    return tuple(sorted({*before, *after, *s.budgets}))


def rule(s: Situation, setting: Setting) -> RateRule:
    """The rule at multiplier 1."""
    return starting_rule_of(setting) if s.lr is None else RateRule(s.lr, 256, why="of the sweep")


def sweep(name: str, home: Path, more: bool = False) -> None:
    """Run what is missing of a situation's record; `more`: as many seeds again of the n that are close to the best."""
    s, out = SITUATIONS[name], OUT / f"{name}.json"
    kept = json.loads(out.read_text()) if out.exists() else {"situation": json.loads(json.dumps(asdict(s))), "runs": []}
    done = {(r["n"], r["multiplier"], r["index"]) for r in kept["runs"]}
    setting = setting_with(**s.options)
    start = rule(s, setting)
    kept["rule"] = start.data()
    runs = planned(s)
    if more:
        near = close(s, kept)
        runs = planned(s, near, CHECKED, s.seeds) if near else []
    for r in runs:
        if (r.n, r.multiplier, r.index) in done:
            continue
        folder = home / f"{name}-{r.name}"
        job = Job(arm=Arm(n=r.n, B=r.B, lr=r.lr(start), multiplier=r.multiplier, warmup=warmup(s.pilot // (r.n * r.B))),
                  name=r.name, setting=setting, method=s.method, seed=r.seed, budget={"rollouts": r.C}, purpose="pilot",
                  points=points(s))
        before = time.process_time()
        ended = asyncio.run(run(job, folder))
        if ended["reason"] in GO_ON:
            raise SystemExit(f"stopped in {r.name}; run the same command again")
        cpu = time.process_time() - before
        kept["runs"].append(line(r, folder, cpu))
        kept["code"] = records.code()
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps(kept) + "\n")
        shutil.rmtree(folder)
        print(f"{name} {r.name}: {kept['runs'][-1]['audit'][-1]:.3f}, {cpu:.1f} s", flush=True)


def line(r: PlannedRun, folder: Path, cpu: float) -> dict[str, Any]:
    """What the record keeps of one run."""
    (c,) = curves([folder])
    return {"n": r.n, "multiplier": r.multiplier, "index": r.index, "seed": r.seed, "lr": c.arm["lr"],
            "cpu": round(cpu, 2),
            "diverged": c.diverged, "env_steps": None if c.env_steps is None else int(c.env_steps[-1]),
            "C": [int(x) for x in c.C],
            "select": np.round(c.select, 5).tolist(), "audit": np.round(c.audit, 5).tolist()}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("run", "more"))
    options.add_argument("--situations", nargs="+", choices=tuple(SITUATIONS), default=list(SITUATIONS))
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.situations:
            sweep(name, Path(folder), more=asked.what == "more")
