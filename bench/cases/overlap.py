"""Sampling and learning at the same time (`max_age` 1) against taking turns, in pairs within one process.

Design. The policy of the ragged RL step, GRPO, 2 rollouts a prompt: the two of one prompt write up to 384 tokens, the
others end after 24 on average. With one thread, sampling and learning then take about equal CPU time. Variants: "tail",
8 prompts, and "straggler", 4 prompts, added after a first run of "tail", because two threads speed up the learner by
groups, and one group is most of this batch; and "elsewhere", the base RL step with 8 rollouts a prompt and a verifier
that takes 0.1 s for a group on another machine, so that sampling, with its waits, takes about as long as learning with
two threads. Contenders: synchronous (`max_age` 0), one step old in turns, and one step
old with overlap, each with 1 thread and with all threads. Blocks of steps of all contenders are interleaved. A ratio is
that of two contenders' seconds in the same block; the headline is overlap against the faster of the contenders in
turns, each side with its better number of threads by the median. "quietest" is the ratio of the fastest blocks, over
all numbers of threads: what two idle cores come to. The cores that other processes used meanwhile are part of the
record. The bytes of both are the same (tests/test_overlap.py), so only seconds are compared.

The learning curves of one step old and of synchronous training are compared at equal rollouts over seeds: the
difference of held-out reward at each of `POINTS`, with Student's 95 % interval.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from bench import stats
from bench.models import folder_of, read
from bench.options import Options
from bench.own import opened, recipe_of
from bench.task import TASKS, Task, prompts
from isocost.ledger import Ledger
from isocost.local.models import load
from isocost.loop import train
from isocost.planner.training.learning_rate import starting_rule
from isocost.runs.arm import Arm
from isocost.runs.files import read_lines
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.types import Message, Problem
from isocost.worlds.setting import Setting

TAIL = replace(TASKS["ragged"], name="tail", prompts=8, rollouts=2, new=384, long_every=8, block=2)
WAITS = replace(TASKS["base"], name="verifier elsewhere", rollouts=8, marking=0.1)
VARIANTS = {
    "tail": TAIL, "straggler": replace(TAIL, name="straggler", prompts=4, long_every=4), "elsewhere": WAITS,
}
WARM = 2            # steps before the first block
POINTS = (512, 1024, 2048, 4096)        # rollouts at which curves are compared
SIZE = {"n": 8, "B": 8}


class Contender:
    """A run of the loop, held between two steps."""

    def __init__(self, task: Task, name: str, age: int, on: bool, threads: int, folder: Path):
        self.name, self.age, self.on, self.threads = name, age, on, threads
        problems = [Problem(str(i), (Message("user", p),)) for i, p in enumerate(prompts(task, 1))]
        self.world = opened(
            read(folder, task.end), problems, threads=threads, dtype="fp32", kernels="native", device="cpu",
            marking=task.marking,
        )
        assert self.world.overlap is not None
        self.world.overlap.on = on
        budget = {"rollouts": task.prompts * task.rollouts * task.steps}
        self.steps = train(recipe_of(task).but(max_age=age), self.world, Ledger(seed=1), budget)
        self.blocks: list[dict[str, float]] = []

    def go(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        """Measure a block, in seconds a step."""
        torch.set_num_threads(self.threads)
        busy = [self.world.meter.seconds(x) for x in ("sample", "learn")]
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            loop.run_until_complete(anext(self.steps))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        sample, learn = (self.world.meter.seconds(x) - b for x, b in zip(("sample", "learn"), busy, strict=True))
        self.blocks.append({
            "seconds": wall / count, "cpu": cpu / count, "sample": sample / count, "learn": learn / count,
        })

    def of(self, what: str) -> list[float]:
        return [b[what] for b in self.blocks]

    def row(self) -> dict[str, Any]:
        return {
            "name": self.name, "max_age": self.age, "overlap": self.on, "threads": self.threads,
            "seconds": stats.spread(self.of("seconds")), "least": min(self.of("seconds")),
            **{k: median(self.of(k)) for k in ("cpu", "sample", "learn")},
        }


def overlap(options: Options) -> dict[str, Any]:
    """Seconds a step of every contender, ratios in pairs, and learning curves."""
    asked = options.variants or tuple(VARIANTS)
    return {"variants": [measured(VARIANTS[name], options) for name in asked], "curves": curves(options)}


def measured(task: Task, options: Options) -> dict[str, Any]:
    """All contenders of a variant, in interleaved blocks."""
    folder, some = folder_of(task, 0, options.work), sorted({1, options.threads})
    kinds = (("synchronous", 0, False), ("in turns", 1, False), ("overlap", 1, True))
    task = replace(task, steps=WARM + task.block * options.repeats + 2)
    every = [Contender(task, name, age, on, t, folder) for name, age, on in kinds for t in some]
    loop = asyncio.new_event_loop()
    for one in every:
        one.go(loop, WARM)
        one.blocks.clear()
    others = Others()
    for _ in range(options.repeats):
        for one in every:
            one.go(loop, task.block)
    taken = others.taken()
    for one in every:
        loop.run_until_complete(one.steps.aclose())
    loop.close()
    by = {name: [x for x in every if x.name == name] for name, *_ in kinds}
    best = {name: min(each, key=lambda x: median(x.of("seconds"))).of("seconds") for name, each in by.items()}
    least = {name: min(min(x.of("seconds")) for x in each) for name, each in by.items()}
    ratios = {
        "in turns": stats.paired(best["in turns"], best["overlap"]),
        "synchronous": stats.paired(best["synchronous"], best["overlap"]),
        **{
            f"in turns, {t} threads": stats.paired(*(
                next(x for x in by[name] if x.threads == t).of("seconds") for name in ("in turns", "overlap")
            ))
            for t in some
        },
    }
    quietest = {name: least[name] / least["overlap"] for name in ("in turns", "synchronous")}
    options.say(f"{task.name}: others used {taken} cores; quietest {quietest}")
    for name, r in ratios.items():
        options.say(f"  over {name}: {r['median']:.2f} [{r['low']:.2f}, {r['high']:.2f}]")
    return {
        "task": task.data(), "rows": [x.row() for x in every], "ratios": ratios, "quietest": quietest,
        "cores": os.cpu_count(), "cores_used_by_others": taken,
    }


def curves(options: Options) -> list[dict[str, Any]]:
    """The difference of held-out reward, one step old minus synchronous, at equal rollouts."""
    home = options.work / "overlap"
    shutil.rmtree(home, ignore_errors=True)
    setting = Setting.of(data="sums:base=easy", held_out=0.3, threads=1)
    lr = starting_rule(load("tiny").parameters).at(SIZE["n"] * SIZE["B"])
    found: dict[int, list[list[float]]] = {0: [], 1: []}
    for seed in range(options.seeds):
        for age, rows in found.items():
            job = Job(f"age{age}-s{seed}", setting, "grpo", seed, {"rollouts": POINTS[-1]}, Arm(**SIZE, lr=lr),
                      points=POINTS, sets={"max_age": str(age)})
            asyncio.run(run(job, home / job.name))
            rows.append(_held_out(home / job.name))
    out = []
    for k, point in enumerate((0, *POINTS)):
        late, now = ([row[k] for row in found[age]] for age in (1, 0))
        out.append({"rollouts": point, "synchronous": sum(now) / len(now), **stats.difference(late, now)})
        options.say(f"{point} rollouts: {out[-1]['synchronous']:.4f}, one step old {out[-1]['mean']:+.4f}")
    return out


def _held_out(folder: Path) -> list[float]:
    """Held-out reward of a run before training and at each point, of both splits together."""
    lines = [x for x in read_lines(folder / "metrics.jsonl") if "eval/audit" in x]
    at = [next(x for x in lines if x["rollouts"] >= point) for point in (0, *POINTS)]
    return [(x["eval/audit"] + x["eval/select"]) / 2 for x in at]


class Others:
    """How many of the machine's cores other processes keep busy, on average, since this was made."""

    def __init__(self) -> None:
        self.began = self._now()

    def taken(self) -> float | None:
        """None where the system does not say."""
        now = self._now()
        if self.began is None or now is None:
            return None
        busy, own, wall = (b - a for a, b in zip(self.began, now, strict=True))
        return max(busy - own, 0.0) / wall

    @staticmethod
    def _now() -> tuple[float, float, float] | None:
        try:
            line = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        except OSError:
            return None
        user, nice, system, _, _, irq, soft, steal = map(int, line)
        ticks = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
        return ticks, time.process_time(), time.perf_counter()
