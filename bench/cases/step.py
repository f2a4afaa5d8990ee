"""The RL step against TRL's GRPOTrainer: the same weights, prompts, sampling, reward and loss, step by step."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch

from bench import stats
from bench.machine import versions_of
from bench.models import folder_of
from bench.options import Options
from bench.task import TASKS, Task, prompts
from bench.worker import ROOT, Failed, Worker

LATE = 0.25         # share of the steps, the last ones, over which reward curves are compared
TRL = ROOT / ".venv-trl" / "bin" / "python"


BASE = ("base",)    # what is slower there does not run the longer variants, which would take it minutes


@dataclass(frozen=True)
class Contender:
    """Who, in which process, with which settings."""

    name: str
    side: str                       # "trl" or "isocost"
    how: dict[str, Any] = field(default_factory=dict)
    tasks: tuple[str, ...] = tuple(TASKS)


CONTENDERS = (
    Contender("TRL fp32", "trl", {"bf16": False}),
    Contender("TRL fp32, torch_compile", "trl", {"bf16": False, "torch_compile": True}),
    Contender("TRL bf16", "trl", {"bf16": True}, BASE),
    Contender("TRL fp32, static cache", "trl", {"bf16": False, "cache_implementation": "static"}, BASE),
    Contender("isocost fp32, native", "isocost", {"dtype": "fp32", "kernels": "native"}),
    Contender("isocost bf16, native", "isocost", {"dtype": "bf16", "kernels": "native"}),
    Contender("isocost fp32, torch", "isocost", {"dtype": "fp32", "kernels": "torch"}, BASE),
    Contender("isocost bf16, torch", "isocost", {"dtype": "bf16", "kernels": "torch"}, BASE),
)


def chosen(names: Sequence[str]) -> tuple[Contender, ...]:
    """The contenders of these names, all for none. Raises Failed for a name that nobody has."""
    if unknown := set(names) - {c.name for c in CONTENDERS}:
        raise Failed(f"no contender is called {min(unknown)!r}; there are {'; '.join(c.name for c in CONTENDERS)}")
    return tuple(c for c in CONTENDERS if not names or c.name in names)


def trl_python() -> str:
    """The interpreter TRL lives in. Raises Failed, saying what to do, when there is none."""
    asked = os.environ.get("BENCH_TRL_PYTHON") or str(TRL)
    if not Path(asked).is_file():
        raise Failed(f"{asked} is missing: `make .venv-trl/run` makes it, or set BENCH_TRL_PYTHON to a Python with TRL")
    return asked


def step(options: Options) -> dict[str, Any]:
    """Every variant in turn. Contenders that cannot run are named with the reason."""
    python = trl_python()
    devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
    names = [n for n in TASKS if not options.variants or n in options.variants]
    out = [_variant(TASKS[n], d, python, options) for d in devices for n in names]
    return {"variants": out, "versions": {"trl": versions_of(python)}}


def _variant(task: Task, device: str, python: str, options: Options) -> dict[str, Any]:
    task = replace(task, steps=(options.repeats + 1) * task.block)
    seeds = range(options.seeds if task.name == "base" else 1)
    raced = [_race(task, seed, device, python, options) for seed in seeds]
    rows = [_row(name, raced) for name in raced[0] if all("steps" in r[name] for r in raced)]
    missing = [{"name": n, "why": x["why"]} for r in raced[:1] for n, x in r.items() if "why" in x]
    best = min((r for r in rows if r["side"] == "trl"), key=lambda r: r["us_per_token"], default=None)
    for row in rows:
        if best is not None and row["side"] == "isocost":
            row |= _against(row, best)
    said = {"name": task.name, "device": device, "task": task.data(), "rows": rows, "missing": missing}
    return said | {"best_trl": best and best["name"], "seeds": len(seeds)}


def _race(task: Task, seed: int, device: str, python: str, options: Options) -> dict[str, dict[str, Any]]:
    """All contenders on one seed, block by block in turn; the first block warms up."""
    some = [c for c in chosen(options.contenders) if task.name in c.tasks]
    return race(some, folder_of(task, seed, options.work), task, seed, device, python, options)


def race(
    some: Sequence[Contender], folder: Path, task: Task, seed: int, device: str, python: str, options: Options,
    around: Callable[[int], AbstractContextManager[Any]] = lambda block: nullcontext(),
) -> dict[str, dict[str, Any]]:
    """These contenders with the weights of a folder: by name their blocks of steps, or why they have none.

    `around` is entered for each block, by its number.
    """
    given = {
        "task": task.data(), "folder": str(folder), "prompts": prompts(task, seed), "seed": seed,
        "threads": options.threads,
    }
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        live: dict[str, Worker] = {}
        for c in some:
            where = (python, "bench.trl_side") if c.side == "trl" else (sys.executable, "bench.own")
            worker = stack.enter_context(Worker(c.name, *where, options.threads))
            how = {"how": c.how} if c.side == "trl" else c.how
            found[c.name] = {"side": c.side, "steps": [], "first": 0.0}
            try:
                worker.ask("open_steps", timeout=options.limit, **given, device=device, **how)
                found[c.name]["open_mb"] = worker.peak_mb
                live[c.name] = worker
            except Failed as e:
                found[c.name] = {"side": c.side, "why": str(e)}
        for block in range(task.steps // task.block):
            with around(block):
                for name in list(live):
                    try:
                        took = live[name].ask("steps", count=task.block, timeout=options.limit)["steps"]
                        found[name]["steps"].append(took)
                        found[name]["peak_mb"] = live[name].peak_mb
                    except Failed as e:
                        found[name] = {"side": found[name]["side"], "why": str(e)}
                        live.pop(name).close()
            options.say(_progress(f"{task.name} seed {seed} block {block}", found))
    _same_prompts(found)
    return found


def _progress(title: str, found: dict[str, dict[str, Any]]) -> str:
    each = (f"{n} {median(s['seconds'] for s in x['steps'][-1]):.3f}" for n, x in found.items() if x.get("steps"))
    return f"{title}: seconds per step: " + ", ".join(each)


def _same_prompts(found: dict[str, dict[str, Any]]) -> None:
    """Raises Failed when two contenders were not given the same prompts at the same steps."""
    seen = {n: [s["prompts"] for b in x["steps"] for s in b] for n, x in found.items() if "steps" in x}
    if len({tuple(v) for v in seen.values()}) > 1:
        raise Failed(f"the contenders saw different prompts: {', '.join(seen)}")


def _row(name: str, raced: Sequence[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """One contender over all seeds: medians of blocks after the first, which is reported by itself."""
    mine = [r[name] for r in raced]
    blocks = [b for x in mine for b in x["steps"][1:]]
    rewards = [[s["reward"] for b in x["steps"] for s in b] for x in mine]
    late = max(1, round(LATE * len(rewards[0])))
    seconds = [median(s["seconds"] for s in b) for b in blocks]
    per_token = [1e6 * sum(s["seconds"] for s in b) / sum(s["tokens"] for s in b) for b in blocks]
    return {
        "name": name, "side": mine[0]["side"],
        "seconds": stats.spread(seconds), "blocks": seconds, "block_us_per_token": per_token,
        "us_per_token": median(per_token), "tokens_per_step": mean(s["tokens"] for b in blocks for s in b),
        "cpu": median(s["cpu"] for b in blocks for s in b),
        "block_cpu_us_per_token": [1e6 * sum(s["cpu"] for s in b) / sum(s["tokens"] for s in b) for b in blocks],
        "first_step": max(x["steps"][0][0]["seconds"] for x in mine),
        "peak_mb": max(x["peak_mb"] for x in mine), "open_mb": max(x["open_mb"] for x in mine),
        "late_reward": [mean(r[-late:]) for r in rewards], "mean_reward": [mean(r) for r in rewards], "reward": rewards,
    }


def _against(row: dict[str, Any], best: dict[str, Any]) -> dict[str, Any]:
    """Against TRL's best: seconds per step, the same and CPU seconds at equal tokens, and whether rewards differ."""
    return {
        "ratio": stats.paired(best["blocks"], row["blocks"]),
        "ratio_equal_tokens": stats.paired(best["block_us_per_token"], row["block_us_per_token"]),
        "ratio_cpu": stats.paired(best["block_cpu_us_per_token"], row["block_cpu_us_per_token"]),
        "learning": stats.difference(row["late_reward"], best["late_reward"]),
        "learning_whole": stats.difference(row["mean_reward"], best["mean_reward"]),
    }
