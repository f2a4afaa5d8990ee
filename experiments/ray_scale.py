"""What a run on a cluster costs besides its own time, and what 1,000 workers with stragglers and preemptions would do.

    python experiments/ray_scale.py measure     # writes experiments/results/ray_scale.json; needs '.[cluster]'
    python experiments/ray_scale.py simulate    # adds to it

Design, fixed before the first measurement:

- `measure`, on this machine. Overhead: six runs of one update each, one after the other, in local processes and on a
  Ray cluster of one processor; a run's overhead is the time between the ends of two runs, less its own active seconds
  (median of the five; the first also has the start of its process, reported apart).
- Workers: eight runs (n = 8, 512 rollouts, eight seeds) with 1, 2 and 4 workers, on both.
- `simulate`, a clock of events: 3,000 runs on 1,000 workers by the rule of `isocost.runs.launch.cluster`: runs start
  longest first (by their expected work: all have one budget, so by n), a run whose worker died goes to the head of
  the queue and continues from its checkpoint, and no run is executed twice at once. A run's work is drawn from the
  seconds by n of `ray_chaos.json`, scaled to a mean of one hour. A worker's slowdown is drawn from the same seconds
  over the median of their n, on a machine that other jobs shared; 2 % of workers are four times slower (assumed).
  Workers die at a constant rate; death is noticed after 30 s and a worker replaced after 120 s (assumed). A worker
  takes 65 s to start, to import torch and to load a model, and 0.1 s for a checkpoint (assumed).
- Lower bound on the makespan: the largest of all work over the sum of speeds, and the longest run on the fastest
  worker; without deaths, starts and checkpoints. Waste: busy time of workers that is not useful work (computed again,
  starts, checkpoints), over their busy time. Ten seeds each; means with the least and the greatest.
- Varied: mean time between failures of a worker; checkpoints every minute (what the launcher does), every ten minutes,
  every minute at 10 s each (a large model), and none; longest first against the order of the plan.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import platform
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")

import numpy as np
from numpy import ndarray

from ray_chaos import started

RESULTS = Path(__file__).parent / "results"
WORKERS, RUNS, SEEDS = 1000, 3000, 10
HOUR, MINUTE = 3600.0, 60.0
SLOW, SLOWER = 0.02, 4.0            # share of workers that are slower, and how many times
NOTICED, REPLACED, LOADED = 30.0, 120.0, 65.0       # seconds
FAILURES = (0.5, 1.0, 2.0, 4.0, 8.0, 24.0)          # hours between failures of a worker
PLAN, LONGEST = "plan", "longest first"
WASTES = ("lost", "starts", "checkpoints")
SAVED = {       # name: (seconds between checkpoints, seconds of one)
    "every minute": (MINUTE, 0.1),
    "every 10 minutes": (10 * MINUTE, 0.1),
    "every minute, 10 s each": (MINUTE, 10.0),
    "none": (float("inf"), 0.0),
}


# measured -----------------------------------------------------------------------------------------------------


def jobs(count: int, n: int, rollouts: int) -> list[Any]:
    from isocost.runs.arm import Arm
    from isocost.runs.job import Job
    from isocost.worlds.setting import Setting

    return [Job(arm=Arm(n=n, B=8, lr=1e-4), name=f"s{i}", setting=Setting.of(data="sums:level=1", device="cpu"),
                method="grpo", seed=i, budget={"rollouts": rollouts}) for i in range(count)]


def ran(site: str, runs: Sequence[Any], workers: int, folder: Path) -> dict[str, Any]:
    """Runs at a site: seconds in all, each run's own, and when each ended, in seconds from the start."""
    from isocost.runs.launch.site import Site

    began, clock = time.time(), time.perf_counter()
    ends = Site(site).run_all(runs, folder, workers=workers)
    return {
        "site": site, "workers": workers, "seconds": round(time.perf_counter() - clock, 3),
        "own": [end["seconds"] for end in ends],
        "ended": [round((folder / j.name / "end.json").stat().st_mtime - began, 3) for j in runs],
        "load": round(os.getloadavg()[0], 1),
    }


def checkpoint_seconds(folder: Path, times: int = 20) -> float:
    """The median duration of a checkpoint of the built-in model with Adam's state."""
    from isocost.runs.record import RunRecord
    from isocost.worlds.setting import open_setting

    world, taken = open_setting(jobs(1, 8, 64)[0].setting).world, []
    with RunRecord.opened(folder) as record:
        for step in range(times):
            began = time.perf_counter()
            record.save(step, world.state(), {"meter": world.meter.state()})
            taken.append(time.perf_counter() - began)
    return float(np.median(taken))


def measure() -> dict[str, Any]:
    import ray

    home = Path(tempfile.mkdtemp(prefix="scale-"))
    started(lambda: ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False))
    try:
        overhead = [ran(site, jobs(6, 2, 16), 1, home / f"overhead-{site}") for site in ("local", "ray")]
        many = [ran(site, jobs(8, 8, 512), k, home / f"many-{site}-{k}") for k in (1, 2, 4)
                for site in ("local", "ray")]
    finally:
        ray.shutdown()
    return {"cores": os.cpu_count(), "python": platform.python_version(), "ray": ray.__version__,
            "checkpoint": round(checkpoint_seconds(home / "checkpoint"), 4), "overhead": overhead, "workers": many}


def overheads(found: Mapping[str, Any], site: str) -> tuple[float, float]:
    """Median seconds of a run besides its own, and the median of the first run's, with the start of its process."""
    warm, cold = [], []
    for x in found["overhead"]:
        if x["site"] == site:
            ended = sorted(x["ended"])
            warm += [b - a - own for a, b, own in zip(ended, ended[1:], x["own"][1:], strict=False)]
            cold.append(ended[0] - x["own"][0])
    return float(np.median(warm)), float(np.median(cold))


def slowdowns(seconds: Mapping[int, Sequence[float]]) -> ndarray:
    """Seconds of runs that differ in their seed only, over their median, for each n (runs,)."""
    return np.concatenate([np.array(own) / np.median(own) for own in seconds.values()])


# simulated ----------------------------------------------------------------------------------------------------


def simulated(
    work: Sequence[float], speed: Sequence[float], *, mtbf: float, every: float, checkpoint: float, start: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Runs with so many seconds of `work` each, in this order, on workers of these speeds, until all have ended.

    `mtbf` is the mean number of seconds to a worker's failure, `every` the useful seconds between checkpoints, of
    `checkpoint` seconds each. Returns the makespan, and seconds of workers: useful, lost, of starts and of checkpoints.
    """
    left, queue = list(work), deque(range(len(work)))
    free = list(rng.permutation(len(speed)))
    events: list[tuple[float, int, str, int]] = []      # time, order, what happens, to which worker or run
    now = useful = lost = starts = saves = makespan = 0.0
    ended, order = 0, 0

    def at(when: float, what: str, which: int) -> None:
        nonlocal order
        order += 1
        heapq.heappush(events, (when, order, what, which))

    while ended < len(work):
        while queue and free:
            run, worker = queue.popleft(), free.pop()
            need = left[run] / speed[worker]        # seconds of this worker
            saved = max(int(np.ceil(need / every)) - 1, 0) if np.isfinite(every) else 0     # the end is none
            whole = start + need + saved * checkpoint
            death = rng.exponential(mtbf)       # without memory: drawn when the worker takes a run
            if death >= whole:
                useful, starts, saves, ended = useful + need, starts + start, saves + saved * checkpoint, ended + 1
                makespan = max(makespan, now + whole)
                at(now + whole, "free", worker)
                continue
            starts += min(start, death)
            busy = max(death - start, 0.0)
            kept = int(busy // (every + checkpoint)) if np.isfinite(every) else 0
            useful += kept * every if kept else 0.0
            saves += kept * checkpoint
            lost += busy - (kept * (every + checkpoint) if kept else 0.0)
            left[run] -= kept * every * speed[worker] if kept else 0.0
            at(now + death + NOTICED, "again", run)
            at(now + death + REPLACED, "free", worker)
        if not events:
            break
        now, _, what, which = heapq.heappop(events)
        if what == "free":
            free.append(which)
        else:
            queue.appendleft(which)
    return {"makespan": makespan, "useful": useful, "lost": lost, "starts": starts, "checkpoints": saves}


def lower_bound(work: ndarray, speed: ndarray) -> float:
    """Seconds that no schedule beats: all work over all speeds, or the longest run on the fastest worker."""
    return float(max(work.sum() / speed.sum(), work.max() / speed.max()))


def drawn(
    seconds: Mapping[int, Sequence[float]], slow: ndarray, stragglers: bool, order: str, rng: np.random.Generator
) -> tuple[ndarray, ndarray]:
    """Work of each run in the order in which they start, with a mean of one hour, and speed of each worker."""
    sizes = sorted(seconds)
    sizes = [sizes[i % len(sizes)] for i in range(RUNS)]        # of the plan: by seed, then n
    work = np.array([rng.choice(seconds[n]) for n in (sorted(sizes) if order == LONGEST else sizes)])
    factor = rng.choice(slow, WORKERS)
    if stragglers:
        factor = factor * np.where(rng.random(WORKERS) < SLOW, SLOWER, 1.0)
    return work * HOUR / work.mean(), 1.0 / factor


def spread(values: Sequence[float]) -> list[float]:
    """Mean, least and greatest."""
    return [round(float(f(values)), 5) for f in (np.mean, np.min, np.max)]


def simulate(chaos: Mapping[str, Any]) -> dict[str, Any]:
    each: dict[int, list[float]] = {}
    for x in chaos["one_machine"]["each"]:
        each.setdefault(x["n"], []).append(x["seconds"])
    slow, start, out = slowdowns(each), LOADED, []

    def row(name: str, order: str, stragglers: bool, hours: float, every: float, checkpoint: float) -> None:
        seen = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            work, speed = drawn(each, slow, stragglers, order, rng)
            least = lower_bound(work, speed)
            x = simulated(work, speed, mtbf=hours * HOUR, every=every, checkpoint=checkpoint, start=start, rng=rng)
            busy = sum(x[k] for k in ("useful", *WASTES))
            seen.append({"ratio": x["makespan"] / least, "waste": 1 - x["useful"] / busy,
                         **{k: x[k] / busy for k in WASTES}})
        out.append({"saved": name, "order": order, "stragglers": stragglers, "mtbf_hours": hours if np.isfinite(hours)
                    else None, **{k: spread([x[k] for x in seen]) for k in seen[0]}})

    never = float("inf")
    for order in (PLAN, LONGEST):
        for stragglers in (False, True):
            row("every minute", order, stragglers, never, *SAVED["every minute"])
    for hours in FAILURES:
        for name, (every, checkpoint) in SAVED.items():
            if name == "none" and hours < 2:
                continue        # a run of one hour that starts over whenever its worker fails hardly ends
            row(name, LONGEST, True, hours, every, checkpoint)
    return {"workers": WORKERS, "runs": RUNS, "seeds": SEEDS, "start": round(start, 2),
            "slowdowns": [round(float(np.quantile(slow, q)), 3) for q in (0.05, 0.25, 0.5, 0.75, 0.95)], "rows": out}


def main(what: str, out: Path, chaos: Path) -> None:
    found = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    act: Mapping[str, Callable[[], dict[str, Any]]] = {
        "measure": measure,
        "simulate": lambda: simulate(json.loads(chaos.read_text(encoding="utf-8"))),
    }
    found[what] = act[what]()
    out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=("measure", "simulate"))
    options.add_argument("--out", type=Path, default=RESULTS / "ray_scale.json")
    options.add_argument("--chaos", type=Path, default=RESULTS / "ray_chaos.json")
    given = options.parse_args()
    main(given.what, given.out, given.chaos)
