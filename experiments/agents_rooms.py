"""What rooms are as a training task, and the learning rate of their base.

    python experiments/agents_rooms.py --rates --out experiments/results/agents_rate.json
    python experiments/agents_rooms.py --out experiments/results/agents_rooms.json

Design, fixed before the runs. Plain GRPO on the default rooms, n = 8, B = 8, 60,000 environment steps, evaluated before
and after on all 42 held-out problems with 16 samples each. `--rates` runs seeds 100 and 101 at 3e-4, 1e-3 and 2e-3;
`fit_rate` of `isocost.planner.training.learning_rate` chooses a rate, which is kept in the base's config.json
(`made.starting_rate`).
The second command runs seeds 0 to 4 at that rate. It states, for each seed, the gain in held-out success, the gain with
a 90 % interval over problems (paired, Student, of `isocost eval --base`), processor seconds of the whole command, and
environment steps. The claim to hold: every gain is at least 0.15 with an interval above 0, in at most 90 s of
wall-clock time on two idle cores, so at most 90 s of processor time of one thread. A seed that misses is listed as a
miss.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from isocost.local.embedded import EMBEDDED
from isocost.planner.training.learning_rate import ProbeResult, fit_rate
from isocost.runs.record import read_lines

MODEL = EMBEDDED["tiny-agents"]
N, B, BUDGET, SAMPLES, CLAIM, SECONDS = 8, 8, "60k-env-steps", 16, 0.15, 90
RATES, PROBES, SEEDS = (3e-4, 1e-3, 2e-3), (100, 101), (0, 1, 2, 3, 4)


def train(seed: int, folder: Path, extra: list[str]) -> dict[str, Any]:
    """One run: held-out success of each problem before and after, and what it cost."""
    said = ["train", "grpo", "--env", "rooms", "-n", str(N), "-B", str(B), "--budget", BUDGET, "--seed", str(seed),
            "--samples", str(SAMPLES), "--evaluations", "1", "--threads", "1", *extra]
    child = subprocess.Popen([sys.executable, "-m", "isocost", *said, "--out", str(folder)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"seed {seed} failed")
    end = json.loads((folder / "end.json").read_text(encoding="utf-8"))
    lines = [x for x in read_lines(folder / "metrics.jsonl") if "eval/select" in x]
    before, after = ((x["eval/select"] + x["eval/audit"]) / 2 for x in (lines[0], lines[-1]))
    cost = end["bill"]["train"]
    return {
        "seed": seed, "command": shlex.join(["isocost", *said]), "before": round(before, 4), "after": round(after, 4),
        **paired(folder), "env_steps": cost["env_steps"], "rollouts": cost["rollouts"],
        "read": cost["prefill"], "reread": cost.get("reread", 0), "written": cost["decode"],
        "read_by_the_machine": end["physical"]["train"]["prefill"], "steps": end["steps"],
        "run_seconds": round(end["seconds"], 1), "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    }


def paired(folder: Path) -> dict[str, Any]:
    """The gain over the base on the held-out problems, by `isocost eval --base`, with its interval over problems."""
    said = [sys.executable, "-m", "isocost", "eval", str(folder), "--base", "--samples", str(SAMPLES), "--json"]
    found = json.loads(subprocess.run(said, capture_output=True, text=True, check=True).stdout)
    return {"paired": {k: round(found["difference"][k], 4) for k in ("value", "low", "high")}}


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record to write")
    parser.add_argument("--rates", action="store_true", help="choose a learning rate, and keep it in the base")
    asked = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    with tempfile.TemporaryDirectory() as work:
        if asked.rates:
            runs = [{"lr": lr, **train(seed, Path(work) / f"{lr}-{seed}", ["--lr", f"{lr:g}"])}
                    for lr in RATES for seed in PROBES]
            rule = fit_rate([ProbeResult(N * B, r["lr"], r["before"], r["after"]) for r in runs], N * B)
            command = shlex.join(["python", *sys.argv])
            best = {"lr": float(f"{rule.at(N * B):.2g}"), "rollouts": N * B, "command": command}
            config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
            config["made"]["starting_rate"] = best
            (MODEL / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
            record: dict[str, Any] = {"starting_rate": best, "runs": runs}
        else:
            runs = [train(seed, Path(work) / str(seed), []) for seed in SEEDS]
            gains = [round(r["after"] - r["before"], 4) for r in runs]
            misses = [r["seed"] for r, gain in zip(runs, gains, strict=True) if gain < CLAIM or r["paired"]["low"] <= 0]
            slow = [r["seed"] for r in runs if r["cpu_seconds"] > SECONDS]
            record = {"misses": misses, "slower_than_claimed": slow, "gain": gains,
                      "mean_gain": round(float(np.mean(gains)), 4), "runs": runs}
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in record.items() if k != "runs"}))


if __name__ == "__main__":
    main()
