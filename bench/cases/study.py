"""Thirty runs of the built-in problems, ten arms on three seeds, by the worker pool that a pilot uses."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

from bench.options import Options
from bench.worker import cpu_of_children
from isocost.local.models import load
from isocost.planner.training.builtin import PRESETS
from isocost.planner.training.learning_rate import starting_rule
from isocost.runs.arm import Arm
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.launch.local import run_all
from isocost.worlds.setting import Setting

ARMS = tuple((n, B) for B in (8, 16) for n in (2, 4, 8, 16, 32))
SEEDS = 3
POINTS = 8                  # evaluations of a run, log-spaced, beside the base's and the last


def study(options: Options) -> dict[str, Any]:
    """Seconds on the wall from the first worker's start to the last run's end, and what the runs did in them."""
    home = options.work / "study"
    shutil.rmtree(home, ignore_errors=True)
    jobs = listed()
    workers = max(1, options.threads)
    before, began = cpu_of_children(), time.perf_counter()
    ends = run_all(jobs, home, workers=workers)
    seconds = time.perf_counter() - began
    bills = [e["bill"] for e in ends]
    peak = max(x["rss_mb"] for j in jobs for x in read_lines(home / j.name / "timing.jsonl"))
    return {
        "runs": len(jobs), "seconds_wall": seconds, "workers": workers, "cores": os.cpu_count(),
        "cpu": cpu_of_children() - before, "peak_mb": peak,
        "reasons": sorted({e["reason"] for e in ends}), "C": PRESETS["quick"].C,
        "rollouts": sum(b["train"]["rollouts"] for b in bills), "decode": sum(b["train"]["decode"] for b in bills),
        "updates": sum(b["train"]["updates"] for b in bills),
        "rows": [_row(j, home) for j in jobs],
    }


def listed() -> list[Job]:
    """The runs, the costliest arms first, so that no worker is left with a long one at the end."""
    C, rule = PRESETS["quick"].C, starting_rule(load("tiny").parameters)
    points = tuple(sorted({round(C ** (k / POINTS)) for k in range(POINTS // 2, POINTS)}))
    setting = Setting.of(threads=1)
    return [
        Job(f"n{n}-B{B}-s{seed}", setting, "grpo", seed, {"rollouts": C}, Arm(n=n, B=B, lr=rule.at(n * B)),
            points=points)
        for n, B in sorted(ARMS, key=lambda arm: arm[0] * arm[1]) for seed in range(SEEDS)
    ]


def _row(job: Job, home: Path) -> dict[str, Any]:
    seen = [x for x in read_lines(home / job.name / "metrics.jsonl") if "eval/audit" in x]
    end = read_json(home / job.name / "end.json")
    return {
        **job.arm.only("n", "B"), "seed": job.seed, "seconds": end["seconds"], "first": seen[0]["eval/audit"],
        "last": seen[-1]["eval/audit"],
    }
