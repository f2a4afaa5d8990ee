"""One checkout of isocost, for `bench.cases.pilot`: this one, or an older one whose modules are elsewhere."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.worker import cpu_of_children, serve


def _modules() -> tuple[Any, Any, Any, Any]:
    """Job, run, Setting and run_all, where this checkout has them."""
    try:
        from isocost.runs.job import Job
        from isocost.runs.launch.local import run_all
        from isocost.runs.run import run
        from isocost.worlds.setting import Setting
    except ImportError:
        from isocost.run import Job, run
        from isocost.setting import Setting
        from isocost.study.workers import run_all
    return Job, run, Setting, run_all


def _job(n: int, seed: int, B: int, C: int, lr: float, points: list[int]) -> Any:
    Job, _, Setting, _ = _modules()
    arm: dict[str, Any] = {"n": n, "B": B, "lr": lr}
    try:
        from isocost.runs.arm import Arm
    except ImportError:
        pass
    else:
        arm = {"arm": Arm(arm)}
    return Job(f"n{n}-s{seed}", Setting.of({"threads": 1}), "grpo", seed, {"rollouts": C}, **arm, points=tuple(points))


def where() -> dict[str, Any]:
    import isocost

    return {"package": str(Path(isocost.__file__).parent)}


def one(**job: Any) -> dict[str, Any]:
    """A run in this process: its CPU and wall-clock seconds, and the hash of the weights that it ends with."""
    import asyncio

    _, run, _, _ = _modules()
    home = Path(tempfile.mkdtemp())
    cpu, wall = time.process_time(), time.perf_counter()
    end = asyncio.run(run(_job(**job), home))
    out = {
        "cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - wall, "shares": end["shares"],
        "rollouts": end["bill"]["train"]["rollouts"], "weights": _weights(home),
    }
    shutil.rmtree(home)
    return out


def pool(jobs: list[dict[str, Any]], workers: int) -> dict[str, Any]:
    """All runs by the worker pool: seconds from the start of the first worker to the end of the last run."""
    _, _, _, run_all = _modules()
    home = Path(tempfile.mkdtemp())
    before, began = cpu_of_children(), time.perf_counter()
    ends = run_all([_job(**job) for job in jobs], home, workers=workers)
    seconds = time.perf_counter() - began
    shutil.rmtree(home)
    return {
        "seconds": seconds, "cpu_of_workers": cpu_of_children() - before,
        "rollouts": sum(e["bill"]["train"]["rollouts"] for e in ends),
    }


def _weights(home: Path) -> str:
    last = max((home / "checkpoints").glob("step-*"))
    return hashlib.sha256((last / "learner.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    serve(where=where, one=one, pool=pool)
