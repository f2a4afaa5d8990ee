"""Does a small problem set lower the best n? Several set sizes D, n and seeds at equal cost on the built-in world.

    python experiments/problem_set_size.py --out experiments/results/problem_set_size.json \\
        --home studies/problem-set-size

Every run trains on the first D of one fixed shuffle of the same training problems (base=easy) and is measured exactly
on the same held-out ones; B, C and the learning-rate rule are the same for all. Runs already there are not run again.
Kept: every curve; at each compute the winner by mean held-out reward and the n that cannot be told from it; the best n
by each arm's own best evaluation (what stopping early would give); what over-fitted, and from which pass on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from isocost import chance
from isocost.laws.curves import Curve, curves
from isocost.laws.interference import by_n, interference
from isocost.laws.overfit import overfitting
from isocost.planner.evaluation import points
from isocost.planner.training.study_runs import whole
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.worlds.setting import Opened, Setting, open_setting
from nstar import winners

NS, B, METHOD = (2, 4, 8, 16, 32), 8, "isoeasy"
SETTING = Setting.of(data="sums:base=easy", held_out=0.25)
LR, REFERENCE = 1e-4, 256


def opened(D: int) -> Opened:
    """The world with D training problems; 0 leaves all of them."""
    found = open_setting(SETTING, reference=True)
    train = found.sides.train
    order = chance.generator(0, chance.Purpose.CHOOSE, 1).permutation(len(train))
    kept = tuple(train[i] for i in order[: D or None])
    return replace(found, sides=replace(found.sides, train=kept), world=replace(found.world, problems=kept))


def made(D: int, n: int, seed: int, C: int, home: Path) -> Path:
    """The folder of one run, which is made if it is not there."""
    folder = home / f"D{D}-n{n}-s{seed}"
    if not (folder / "end.json").exists():
        job = Job(arm=Arm(n=n, B=B, lr=LR * (n * B / REFERENCE) ** 0.5), name=folder.name, setting=SETTING,
                  method=METHOD, seed=seed, budget={"rollouts": C}, points=points(C, whole(NS, B), 2), purpose="pilot")
        asyncio.run(run(job, folder, opened=opened(D)))
    return folder


def of_size(folders: Sequence[Path]) -> dict:
    """What the runs of one D say."""
    found = curves(folders)
    best = {n: float(np.mean([c.audit[c.select.argmax()] for c in found if c.arm["n"] == n])) for n in NS}
    told = [x for x in map(interference, folders) if x is not None]
    return {
        "winners": winners(found), "at_best": {n: round(v, 4) for n, v in best.items()},
        "best_n_if_stopped_early": max(best, key=lambda n: best[n]),
        "overfitted": [asdict(x) for x in overfitting(found)],
        "interference": by_n(told), "epochs": {n: round(_last(found, n), 2) for n in NS},
        "curves": [{"run": c.run, "n": c.arm["n"], "seed": c.seed, "C": c.C.tolist(),
                    "select": np.round(c.select, 5).tolist(),
                    "audit": np.round(c.audit, 5).tolist(), "train": np.round(c.train, 4).tolist()[1:]}
                   for c in found if c.train is not None],
    }


def _last(found: Sequence[Curve], n: int) -> float:
    return float(np.mean([c.epochs[-1] for c in found if c.arm["n"] == n]))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--sizes", type=int, nargs="+", default=[16, 64, 0], help="0: every training problem")
    options.add_argument("--seeds", type=int, default=4)
    options.add_argument("--rollouts", type=int, default=6144)
    options.add_argument("--home", type=Path, default=Path("studies/problem-set-size"))
    options.add_argument("--out", type=Path, required=True)
    asked = options.parse_args()
    out = {"setting": SETTING.to_dict(), "method": METHOD, "B": B, "C": asked.rollouts, "seeds": asked.seeds,
           "lr": f"{LR:g} (nB / {REFERENCE})^0.5", "sizes": {}}
    for D in asked.sizes:
        folders = [made(D, n, seed, asked.rollouts, asked.home) for seed in range(asked.seeds) for n in NS]
        out["code"] = records.read_json(folders[0] / "run.json")["code"]
        size = D or len(opened(0).sides.train)
        out["sizes"][size] = of_size(folders)
        asked.out.write_text(json.dumps(out, indent=1) + "\n")
        row = out["sizes"][size]
        last = row["winners"][-1]
        print(f"D = {size}: best n = {last['best']} at {last['C']:.0f} rollouts, equal {last['equal']}", last["reward"])
        print(f"  stopped early n = {row['best_n_if_stopped_early']}", row["at_best"])
        print("  over-fitted from pass", {x["n"]: x["epoch"] for x in row["overfitted"]}, flush=True)
