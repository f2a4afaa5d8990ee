"""What the puzzles are as a training task.

    python experiments/puzzles.py --lr 5e-5 --out experiments/results/puzzles.json
    python experiments/puzzles.py --out experiments/results/puzzles_assumed_rate.json

Trains plain GRPO on the default problems (n = 8, B = 16, 20,000 rollouts; options that are not this script's go to
`isocost train`) and evaluates on the held-out problems before and after. The record has the base's measured rates too.
Each run has one thread; `cpu_seconds` is processor time of the whole command, its evaluations and start included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from isocost.local.weights import EMBEDDED
from isocost.runs.record import read_lines

DATA = "puzzles"
MODEL = EMBEDDED["tiny-puzzles"]


def train(seed: int, budget: str, folder: Path, extra: list[str]) -> dict[str, Any]:
    """One run: its held-out pass rate at each evaluation, and what it cost."""
    said = ["train", "grpo", "--data", DATA, "-n", "8", "-B", "16", "--budget", budget, "--seed", str(seed),
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


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record to write")
    parser.add_argument("--seeds", type=int, default=3, help="runs (default 3)")
    parser.add_argument("--budget", default="20k-rollouts", help="of each (default 20k-rollouts)")
    parser.add_argument("--side-by-side", type=int, default=2, help="runs at a time (default 2)")
    asked, extra = parser.parse_known_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    made = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))["made"]
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(asked.side_by_side) as pool:
        runs = list(pool.map(lambda seed: train(seed, asked.budget, Path(work) / str(seed), extra),
                             range(asked.seeds)))
    gains = [r["after"] - r["before"] for r in runs]
    record = {"base": made["pass_at_1"], "runs": runs, "gain": [round(g, 4) for g in gains],
              "mean_gain": round(float(np.mean(gains)), 4)}
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: record[k] for k in ("gain", "mean_gain")}))


if __name__ == "__main__":
    main()
