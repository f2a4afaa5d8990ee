"""The runs of a pilot of `sums:level=1`, here and in another checkout: n = 2, 4, 8, 16, 32, B = 8, three seeds.

Each run is as long as in the preset `quick` and is evaluated at the same points as in a pilot. Two measurements, in
each of which both checkouts do the same work in turns:

- run by run: one process for each checkout, which is warm, does one run; then the other does the same one. The ratio
  is of CPU seconds, because other processes may use the machine; wall-clock seconds are recorded beside them.
- the whole pilot by the worker pool, with one worker per core, `--repeats` times: the ratio is of rollouts per second
  of wall-clock time from the start of the first worker, so it includes starting Python and importing torch.

The final weights of a run have to be the same in both, byte for byte.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench.options import Options
from bench.stats import paired
from bench.worker import ROOT, Failed, Worker
from isocost.local.models import load
from isocost.planner.evaluation import points
from isocost.planner.training.builtin import PRESETS
from isocost.planner.training.learning_rate import starting_rule
from isocost.planner.training.study_runs import whole

NS, B = (2, 4, 8, 16, 32), 8


def pilot(options: Options) -> dict[str, Any]:
    """Raises Failed without another checkout to compare with."""
    if options.before is None:
        raise Failed("give --before, the folder of another checkout of isocost")
    jobs = listed(options.seeds)
    sides = {"before": _package(options.before), "here": ROOT / "src"}
    workers = {
        name: Worker(name, sys.executable, "bench.pilot_side", 1, PYTHONPATH=str(path)) for name, path in sides.items()
    }
    try:
        for name, w in workers.items():
            if Path(w.ask("where")["package"]).parent != sides[name]:
                raise Failed(f"{name} does not import isocost from {sides[name]}")
            w.ask("one", **{**jobs[-1], "C": B * jobs[-1]["n"]})      # imports, and problems read, once
        rows = [_turn(job, k, workers, options) for k, job in enumerate(jobs)]
        pools = [_pool(jobs, k, workers, options) for k in range(options.repeats)]
    finally:
        for w in workers.values():
            w.close()
    commit = subprocess.run(
        ["git", "-C", str(options.before), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    return {
        "C": jobs[0]["C"], "commit_before": commit or "unknown", "seeds": options.seeds, "rows": rows, "pools": pools,
        **summary(rows, pools),
    }


def listed(seeds: int) -> list[dict[str, Any]]:
    """The pilot's runs, those of the smallest n first, which take longest."""
    C, rule, unit = PRESETS["quick"].C, starting_rule(load("tiny").parameters), whole(NS, B)
    return [
        {"n": n, "seed": seed, "B": B, "C": C, "lr": rule.at(n * B), "points": list(points(C, unit))}
        for n in NS for seed in range(seeds)
    ]


def summary(rows: list[dict[str, Any]], pools: list[dict[str, Any]]) -> dict[str, Any]:
    """Ratios by n and over all runs, shares of wall-clock time here, and whether all weights are the same."""
    by_n = []
    for n in dict.fromkeys(r["n"] for r in rows):
        some = [r for r in rows if r["n"] == n]
        by_n.append({
            "n": n, "cpu_seconds": {side: median(r[side]["cpu_seconds"] for r in some) for side in ("before", "here")},
            "rollouts_per_cpu_second": {
                side: sum(r[side]["rollouts"] for r in some) / sum(r[side]["cpu_seconds"] for r in some)
                for side in ("before", "here")
            },
            "ratio": paired([r["before"]["cpu_seconds"] for r in some], [r["here"]["cpu_seconds"] for r in some]),
            "shares": _shares(some),
        })
    seeds = list(dict.fromkeys(r["seed"] for r in rows))
    whole_cpu = {
        side: [sum(r[side]["cpu_seconds"] for r in rows if r["seed"] == s) for s in seeds]
        for side in ("before", "here")
    }
    out = {
        "by_n": by_n, "ratio": paired(whole_cpu["before"], whole_cpu["here"]), "shares": _shares(rows),
        "same_weights": all(r["before"]["weights"] == r["here"]["weights"] for r in rows),
    }
    if pools:
        out["pool_ratio"] = paired(*([p[side]["seconds"] for p in pools] for side in ("before", "here")))
        out["pool_cpu_ratio"] = paired(*([p[side]["cpu_of_workers"] for p in pools] for side in ("before", "here")))
    return out


def _shares(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The shares of wall-clock time here, over all of these runs."""
    whole_time = sum(r["here"]["seconds"] for r in rows)
    return {
        k: sum(r["here"]["shares"][k] * r["here"]["seconds"] for r in rows) / whole_time
        for k in rows[0]["here"]["shares"]
    }


def _turn(job: dict[str, Any], k: int, workers: dict[str, Worker], options: Options) -> dict[str, Any]:
    """Both sides do the same run; the other one starts each time."""
    order = list(workers) if k % 2 else list(workers)[::-1]
    said = {name: workers[name].ask("one", **job) for name in order}
    ratio = said["before"]["cpu_seconds"] / said["here"]["cpu_seconds"]
    options.say(f"n={job['n']} seed {job['seed']}: {ratio:.2f} times")
    return {"n": job["n"], "seed": job["seed"], **said}


def _pool(jobs: list[dict[str, Any]], k: int, workers: dict[str, Worker], options: Options) -> dict[str, Any]:
    order = list(workers) if k % 2 else list(workers)[::-1]
    said = {name: workers[name].ask("pool", jobs=jobs, workers=options.threads) for name in order}
    options.say(f"whole pilot: {said['before']['seconds'] / said['here']['seconds']:.2f} times")
    return said


def _package(checkout: Path) -> Path:
    """The folder to import isocost from: `src` of a checkout, or of an older one the checkout itself."""
    found = next((p for p in (checkout / "src", checkout) if (p / "isocost" / "__init__.py").is_file()), None)
    if found is None:
        raise Failed(f"{checkout} holds no checkout of isocost")
    return found
