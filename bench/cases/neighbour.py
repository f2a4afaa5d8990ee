"""The RL step beside a busy neighbour: how much of the lead over TRL is left when another process uses a core.

The contenders take turns as in `bench.cases.step`, in pairs of blocks: one alone, one beside a process that keeps one
core busy. It computes in its own caches, so it takes time on a core and no memory bandwidth. The first pair warms up.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from bench import stats
from bench.cases.step import chosen, race, trl_python
from bench.machine import versions_of
from bench.models import folder_of
from bench.options import Options
from bench.task import TASKS

NAMES = ("TRL fp32", "TRL fp32, torch_compile", "isocost fp32, native", "isocost bf16, native")
SIDES = ("alone", "beside")


def neighbour(options: Options) -> dict[str, Any]:
    task = TASKS["base"]
    task, python = replace(task, steps=2 * (options.repeats + 1) * task.block), trl_python()
    some, folder = chosen(options.contenders or NAMES), folder_of(task, 0, options.work)
    found = race(some, folder, task, 0, "cpu", python, options, around=busy)
    missing = [{"name": n, "why": x["why"]} for n, x in found.items() if "why" in x]
    return {**summary(found), "missing": missing, "versions": {"trl": versions_of(python)}}


@contextmanager
def busy(block: int) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process that keeps one core busy, during every second block."""
    if block % 2 == 0:
        yield None
        return
    with subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE) as it:
        try:
            assert it.stdout is not None
            it.stdout.readline()        # it has started
            yield it
        finally:
            it.kill()


def summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Microseconds per sampled token of each contender, and each ratio to TRL's best of that side, alone and beside."""
    taken = {
        n: {side: [_per_token(b) for b in x["steps"][2 + k :: 2]] for k, side in enumerate(SIDES)}
        for n, x in found.items() if "steps" in x
    }
    rows = [
        {"name": n, "side": found[n]["side"], **{s: stats.spread(some[s]) for s in SIDES}} for n, some in taken.items()
    ]
    trl = [n for n in taken if found[n]["side"] == "trl"]
    if not trl:
        return {"rows": rows, "best_trl": None}
    best = {s: min(trl, key=partial(_typical, taken, s)) for s in SIDES}
    for row in (r for r in rows if r["side"] == "isocost"):
        each = {s: [a / b for a, b in zip(taken[best[s]][s], taken[row["name"]][s], strict=True)] for s in SIDES}
        row["ratio"] = {s: stats.spread(each[s]) for s in SIDES}
        row["left"] = stats.paired(each["beside"], each["alone"])
    return {"rows": rows, "best_trl": best}


def _typical(taken: Mapping[str, Mapping[str, Sequence[float]]], side: str, name: str) -> float:
    return median(taken[name][side])


def _per_token(block: Sequence[Mapping[str, float]]) -> float:
    return 1e6 * sum(s["seconds"] for s in block) / sum(s["tokens"] for s in block)
