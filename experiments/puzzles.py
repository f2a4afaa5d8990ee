"""What the puzzles are as a training task.

    python experiments/puzzles.py --lr 5e-5 --out experiments/results/puzzles.json
    python experiments/puzzles.py --lr 1.4e-4 --out experiments/results/puzzles_assumed_rate.json
    python experiments/puzzles.py --rates 2.5e-5 5e-5 1e-4 2e-4 --budget 8k-rollouts --seeds 2 \\
        --out experiments/results/puzzles_rate.json

Trains plain GRPO on the default problems (n = 8, B = 16, 20,000 rollouts; options that are not this script's go to
`isocost train`) and evaluates on the held-out problems before and after. The record has the base's measured rates too.
Each run has one thread; `cpu_seconds` is processor time of the whole command, its evaluations and start included.
With `--rates` the runs are repeated at each of them, `fit_rate` of `isocost.planner.training.learning_rate` chooses one
from the held-out gains, and it is kept in the base's config.json, where `isocost train` finds it
(`made.starting_rate`).
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from isocost.local.embedded import EMBEDDED
from isocost.planner.training.learning_rate import ProbeResult, fit_rate
from isocost.runs.record import read_lines

DATA = "puzzles"
MODEL = EMBEDDED["tiny-puzzles"]
N, B = 8, 16


def train(seed: int, budget: str, folder: Path, extra: list[str]) -> dict[str, Any]:
    """One run: its held-out pass rate at each evaluation, and what it cost."""
    said = ["train", "grpo", "--data", DATA, "-n", str(N), "-B", str(B), "--budget", budget, "--seed", str(seed),
            "--threads", "1", "--out", str(folder), *extra]
    child = subprocess.Popen([sys.executable, "-m", "isocost", *said], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"seed {seed} failed")
    end = json.loads((folder / "end.json").read_text(encoding="utf-8"))
    curve = evaluations(folder)
    return {
        "seed": seed, "command": "isocost " + " ".join(said[:-2 - len(extra)] + extra), "before": curve[0][1],
        "after": curve[-1][1], "curve": curve, "steps": end["steps"], "reason": end["reason"],
        "run_seconds": round(end["seconds"], 1),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    }


def evaluations(folder: Path) -> list[tuple[int, float]]:
    """(rollouts, pass rate) of each evaluation: the mean of the validation and the test split, which are halves."""
    return [
        (int(line["rollouts"]), round((line["eval/select"] + line["eval/audit"]) / 2, 4))
        for line in read_lines(folder / "metrics.jsonl") if "eval/select" in line
    ]


def starting_rate(rates: list[float], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The rate that the runs speak for, as the base's config.json keeps it."""
    rule = fit_rate([ProbeResult(N * B, run["lr"], run["before"], run["after"]) for run in runs], N * B)
    return {"lr": float(f"{rule.at(N * B):.2g}"), "rollouts": N * B, "command": shlex.join(
        ["python", *sys.argv])}


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record to write")
    parser.add_argument("--seeds", type=int, default=3, help="runs (default 3)")
    parser.add_argument("--budget", default="20k-rollouts", help="of each (default 20k-rollouts)")
    parser.add_argument("--side-by-side", type=int, default=2, help="runs at a time (default 2)")
    parser.add_argument("--rates", type=float, nargs="+", help="learning rates, of which one is chosen and kept")
    asked, extra = parser.parse_known_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    made = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))["made"]
    each = [(rate, seed) for rate in asked.rates or [None] for seed in range(asked.seeds)]
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(asked.side_by_side) as pool:
        runs = list(pool.map(lambda x: train(x[1], asked.budget, Path(work) / f"{x[0]}-{x[1]}", [
            *extra, *(["--lr", f"{x[0]:g}"] if x[0] else [])]), each))
    if asked.rates:
        record = {"runs": [{"lr": rate, **run} for (rate, _), run in zip(each, runs, strict=True)]}
        record["starting_rate"] = best = starting_rate(asked.rates, record["runs"])
        config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
        config["made"]["starting_rate"] = best
        (MODEL / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(best))
        return
    gains = [r["after"] - r["before"] for r in runs]
    record = {"base": made["pass_at_1"], "runs": runs, "gain": [round(g, 4) for g in gains],
              "mean_gain": round(float(np.mean(gains)), 4)}
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: record[k] for k in ("gain", "mean_gain")}))


if __name__ == "__main__":
    main()
