"""When does the best n grow with compute? A study of what decides it, on softmax bandits, and on the built-in sums.

    python experiments/nstar_grows.py run       the bandits: experiments/results/nstar_grows.json
    python experiments/nstar_grows.py family --data sums:base=hard --sizes 32     a built-in family, into the same file
    python experiments/nstar_grows.py page      docs/when_n_grows.md and its picture, from that file

Worlds and training are those of `truth/knobs.py`, the statistic is that of `truth/growth.py`. The reference cell is
Adam, B = 8, half of the problems hard, 128 problems, features half shared and at odds. `CELLS` vary one dial each, and
a factorial crosses interference, the share of hard problems and the number of problems. Each cell has five worlds,
n = 2 to 64 and 11 budgets of 512 to 161,908 rollouts, each at five learning rates; rules for the learning rate and
metrics are read off the same runs. Worlds of seeds 900 to 902 were for exploring, 1 to 5 are reported.

The puzzles, fixed before any such run: `family --data puzzles --regime puzzles --sizes 64 0 --rollouts 16384`, at the
learning rate measured for their base. From the bandits one expects that the best n grows on 64 problems, which come
back more than 200 times by the end, and does not grow on all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

import nstar_grows_page
from isocost import chance
from isocost.laws.curves import PASS, curves
from isocost.laws.interference import by_n, interference
from isocost.planner.evaluation import points
from isocost.planner.training.study_runs import whole
from isocost.runs import files as records
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.stats.progress import against
from isocost.steps.settings import setting_with
from isocost.worlds.setting import Setting, open_setting
from truth.growth import growth
from truth.knobs import Dials, World, train

HOME = Path(__file__).resolve().parents[1]
OUT = HOME / "experiments" / "results" / "nstar_grows.json"
NS = np.array([2, 4, 8, 16, 32, 64])
C = np.floor(512 * 10 ** (np.arange(11) / 4))
SEEDS = (1, 2, 3, 4, 5)
REFERENCE = 64                                          # rollouts per update at which RATES hold
RATES = {"adam": (0.03, 0.1, 0.3, 1.0, 3.0), "sgd": (4.0, 16.0, 64.0, 256.0, 1024.0)}
EXPONENTS = {"sqrt": 0.5, "linear": 1.0, "constant": 0.0}       # lr = anchor (n B / REFERENCE)^exponent
PILOT = 5                                               # index of the C at which interference is measured: 9,104
BASE = Dials(agree=0.5, optimiser="adam")
SHARED: Mapping[str, dict[str, float]] = {
    "half": {"rho": 0.5, "agree": 0.5}, "all": {"rho": 1.0, "agree": 0.8}, "none": {"rho": 0.0}}
HARD, SIZES = (0.0, 0.5, 1.0), (32, 128, 512)
CELLS: Mapping[str, Dials] = {
    "shared features agree": replace(BASE, agree=1.0),
    "shared features conflict": replace(BASE, agree=0.0),
    "nine tenths shared": replace(BASE, rho=0.9),
    "B = 2": replace(BASE, B=2),
    "B = 32": replace(BASE, B=32),
    "n B = 256": replace(BASE, nB=256),
    "advantage over the deviation": replace(BASE, advantage="std"),
    "SGD": replace(BASE, optimiser="sgd"),
    "SGD, all hard": replace(BASE, optimiser="sgd", hard=1.0),
    "n B = 256, all hard": replace(BASE, nB=256, hard=1.0),
}


def cells() -> dict[str, Dials]:
    """Every cell by name: the one-dial cells, then the factorial, whose middle cell is the reference."""
    crossed = {f"shared {name}, hard {hard:g}, {size} problems": replace(BASE, **shared, hard=hard, problems=size)
               for size, (name, shared), hard in product(SIZES, SHARED.items(), HARD)}
    return {**CELLS, **crossed}


def measured(dials: Dials, seeds: tuple[int, ...] = SEEDS, ns: ndarray = NS, budgets: ndarray = C) -> ndarray:
    """Pass rates (rates, seeds, n, 1 + C, problems + held out) of one cell."""
    worlds = [World.make(np.random.default_rng([s]), dials) for s in seeds]
    rates = np.array(RATES[dials.optimiser])
    of = np.repeat(np.arange(len(seeds)), len(rates))
    out = []
    for n in ns:
        lr = np.tile(rates * np.sqrt(n * dials.batch(n) / REFERENCE), len(seeds))
        rng = np.random.default_rng([*seeds, int(n)])
        found = train(worlds, [dials] * len(seeds), of, of, lr, int(n), list(budgets), rng)
        out.append(found.reshape(len(budgets) + 1, len(seeds), len(rates), -1))
    return np.array(out).transpose(3, 2, 0, 1, 4)


def metrics(dials: Dials, rates: ndarray) -> dict[str, ndarray]:
    """Name -> reward (rates, seeds, n, 1 + C): on the training problems, and held out where anything is shared."""
    mine, other = rates[..., : dials.problems], rates[..., dials.problems:]
    out = {"pass@1": mine.mean(-1), "best@4": (1 - (1 - mine) ** 4).mean(-1), "worst@4": (mine**4).mean(-1)}
    if dials.rho * dials.agree:
        out["held-out pass@1"] = other.mean(-1)
    return out


def by_rule(dials: Dials, reward: ndarray, ns: ndarray = NS) -> dict[str, tuple[ndarray, ndarray]]:
    """Rule -> (reward (seeds, n, 1 + C), place in the grid of the rate (n,)), from reward (rates, seeds, n, 1 + C).

    `sqrt`, `linear` and `constant` have one anchor, that of the best mean reward of any n at the end; between two rates
    of the grid, reward is interpolated in log rate, beyond its ends it is that of the end. `own`: each n at the rate
    that is best for it at the end; `each`: at the rate that is best for it at each C. The best is by the mean over
    seeds.
    """
    grid = np.log(RATES[dials.optimiser])
    nB = np.array([n * dials.batch(n) for n in ns])
    out, i = {}, np.arange(len(ns))
    for name, exponent in EXPONENTS.items():
        found = []
        for anchor in grid:
            place = np.interp(anchor + (exponent - 0.5) * np.log(nB / nB[2]), grid, np.arange(len(grid)))
            low = np.minimum(place.astype(int), len(grid) - 2)
            part = (place - low)[:, None, None]
            found.append(((1 - part) * reward[low, :, i] + part * reward[low + 1, :, i], place))
        out[name] = max(found, key=lambda x: float(x[0].mean(1)[:, -1].max()))
    out = {name: (y.transpose(1, 0, 2), place) for name, (y, place) in out.items()}
    best = reward.mean(1)[..., -1].argmax(0)
    out["own"] = (reward[best, :, i].transpose(1, 0, 2), best.astype(float))
    each = reward.mean(1).argmax(0)                                         # (n, 1 + C)
    whole = np.take_along_axis(reward, each[None, None], 0)[0]
    out["each"] = (whole, each[:, -1].astype(float))
    return out


def regressed(dials: Dials, rates: ndarray, place: ndarray) -> dict[str, list[float]]:
    """By n, at the pilot's end: the share of training problems that regressed (as `isocost fit` prints), and the mean
    fall of the problems that fell."""
    out: dict[str, list[float]] = {"regressed": [], "fell": []}
    for i in range(rates.shape[2]):
        runs = rates[round(place[i]), :, i, :, : dials.problems]            # (seeds, 1 + C, problems)
        lost = [against(run[PILOT + 1], run[0])["forgotten"] / dials.problems for run in runs]
        fall = np.maximum(runs[:, 0] - runs[:, PILOT + 1], 0)
        out["regressed"].append(round(float(np.mean(lost)), 4))
        out["fell"].append(round(float(fall.mean()), 4))
    return out


def told(dials: Dials, rates: ndarray) -> dict[str, Any]:
    """What is kept of one cell."""
    out: dict[str, Any] = {"dials": asdict(dials), "metrics": {}}
    for name, reward in metrics(dials, rates).items():
        rules = by_rule(dials, reward)
        out["metrics"][name] = {
            "reward": np.round(rules["sqrt"][0].mean(0), 4).tolist(),
            "rate_at_an_edge": bool(((p := rules["sqrt"][1]) <= 0).any() or (p >= len(reward) - 1).any()),
            "rules": {rule: growth(y[..., 1:], NS, C) for rule, (y, _) in rules.items()},
        }
        if name == "pass@1":
            out["interference"] = regressed(dials, rates, rules["sqrt"][1])
    return out


def study(out: Path) -> None:
    """Every cell that the record does not have yet; the record is written after each."""
    kept: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    kept |= {"code": records.code(), "seeds": SEEDS, "n": NS.tolist(), "C": C.tolist(), "rates": RATES,
             "reference": REFERENCE, "pilot_C": C[PILOT], "base": asdict(BASE)}
    done = kept.setdefault("cells", {})
    for name, dials in cells().items():
        if name in done:
            continue
        began = time.process_time()
        done[name] = told(dials, measured(dials))
        for metric, found in done[name]["metrics"].items():
            x = found["rules"]["sqrt"]
            print(f"{name:42} {metric:16} {x['verdict']:15} slope {x.get('slope')} n* {x['n_star']}", flush=True)
        print(f"  {time.process_time() - began:.0f} s", flush=True)
        out.write_text(json.dumps(kept) + "\n")


# a built-in family --------------------------------------------------------------------------------------------

ARMS, B, SPLIT = (2, 4, 8, 16, 32), 8, 0.25
RECIPES = {                                             # by regime: method, and lr at 256 rollouts per update, exponent
    "hard": ("isohard", 2.1e-4, 0.40),                  # as measured in nstar_hard.json
    "easy": ("isoeasy", 1.2e-4, 0.33),                  # as measured in nstar_easy.json
    "puzzles": ("isohard", 6.6e-5, 0.40),               # 5e-5 at 128, puzzles_rate.json; the exponent of hard sums
}


def trained(data: str, regime: str, size: int, n: int, seed: int, rollouts: int, home: Path) -> Path:
    """The folder of one run on the first `size` of a fixed shuffle of the training problems (0: all); made if absent.

    Held-out problems are the same for every size.
    """
    method, lr, exponent = RECIPES[regime]
    folder = home / f"{data.replace(':', '-').replace(',', '-')}-D{size}-C{rollouts}-n{n}-s{seed}"
    if not (folder / "end.json").exists():
        setting = Setting.of(data=data, held_out=SPLIT)
        if regime == "puzzles":                             # their model, and room for their answers
            setting = setting_with(data=data, held_out=SPLIT)
        found = open_setting(setting, reference=True)
        order = chance.generator(0, chance.Purpose.CHOOSE, 1).permutation(len(found.sides.train))
        kept = tuple(found.sides.train[i] for i in order[: size or None])
        few = replace(found, sides=replace(found.sides, train=kept), world=replace(found.world, problems=kept))
        job = Job(arm=Arm(n=n, B=B, lr=lr * (n * B / 256) ** exponent), name=folder.name, setting=setting,
                  method=method, seed=seed, budget={"rollouts": rollouts}, purpose="pilot",
                  points=points(rollouts, whole(ARMS, B), 2))
        asyncio.run(run(job, folder, opened=few))
    return folder


def of_family(folders: list[Path]) -> dict[str, Any]:
    """Verdicts on runs of equal points, by metric: held out (both splits), and the mean reward of training rollouts."""
    out: dict[str, Any] = {"metrics": {}}
    for metric in ("held-out pass@1", "held-out best@4", "held-out worst@4", "training reward"):
        found = curves(folders, PASS if metric == "training reward" else metric.removeprefix("held-out "))
        arms = {n: [c for c in found if c.arm["n"] == n] for n in sorted({c.arm["n"] for c in found})}
        kept = [k for k, x in enumerate(found[0].C) if x >= 512]
        if metric == "training reward":
            y = np.array([[c.train for c in runs] for runs in arms.values()])
        else:
            y = np.array([[(c.select + c.audit) / 2 for c in runs] for runs in arms.values()])
        y = y.transpose(1, 0, 2)[..., kept]
        C = found[0].C[kept]
        out["metrics"][metric] = {"reward": np.round(y.mean(0), 4).tolist(), **growth(y, np.array(list(arms)), C)}
        out |= {"n": list(arms), "C": C.tolist(), "seeds": len(found) // len(arms),
                "epochs": [round(float(runs[0].epochs[-1]), 1) for runs in arms.values()]}
    return out | {"interference": by_n([x for x in map(interference, folders) if x is not None])}


def family(out: Path, data: str, regime: str, sizes: list[int], rollouts: int, home: Path) -> None:
    """Runs of a built-in family at every n and seed, for each size of the set; added to the record."""
    for size in sizes:
        folders = [trained(data, regime, size, n, seed, rollouts, home) for seed in SEEDS for n in ARMS]
        kept: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
        kept.setdefault("families", {})[f"{data}, {size or 'all'} problems, {rollouts} rollouts"] = found = {
            "data": data, "regime": regime, "problems": size, "rollouts": rollouts, "recipe": RECIPES[regime], "B": B,
            "code": records.read_json(folders[0] / "run.json")["code"], **of_family(folders)}
        out.write_text(json.dumps(kept) + "\n")
        for metric, x in found["metrics"].items():
            print(f"{data}, {size or 'all'}: {metric:18} {x['verdict']:15} slope {x.get('slope')} n* {x['n_star']}",
                  flush=True)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("run", "family", "page"))
    options.add_argument("--out", type=Path, default=OUT)
    options.add_argument("--data", default="sums:base=hard")
    options.add_argument("--regime", choices=tuple(RECIPES), default="hard")
    options.add_argument("--sizes", type=int, nargs="+", default=[32], help="training problems; 0: all of them")
    options.add_argument("--rollouts", type=int, default=8192)
    options.add_argument("--home", type=Path, default=Path("studies/nstar-grows"))
    asked = options.parse_args()
    if asked.what == "run":
        study(asked.out)
    elif asked.what == "family":
        family(asked.out, asked.data, asked.regime, asked.sizes, asked.rollouts, asked.home)
    else:
        nstar_grows_page.write()
