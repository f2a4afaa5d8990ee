"""Strategies at test time against plain sampling of as many tokens, in CPU seconds of one thread, in turn.

Scores are the built-in step checker's, so a ratio is what choosing and going on costs: kept rows, forks, scoring and
Python. Prefill is what was computed, per answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bench import stats
from bench.options import Options
from isocost import meter
from isocost.parts.play import sample
from isocost.scorers import steps
from isocost.seams import Pace
from isocost.steps.settings import setting_with
from isocost.strategies import beam, best_of, dvts, particles
from isocost.types import Cost, Place
from isocost.world import World
from isocost.worlds.setting import open_setting

PROBLEMS, TOKENS, SIZES = 60, 128, (16, 4)
WIDTH = {16: 4, 4: 2}
WHOLE, BY_STEPS = {16: 1.2, 4: 1.2}, {16: 1.5, 4: 2.0}     # times the CPU seconds of plain sampling, by n
TARGETS = {"best-of": WHOLE, "beam": BY_STEPS, "DVTS": BY_STEPS, "particles": BY_STEPS}


def search(options: Options) -> dict[str, Any]:
    """CPU seconds per 1,000 tokens of each strategy over those of plain sampling beside it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    opened = open_setting(setting_with(data="puzzles", threads=1))
    rows = [row for n in SIZES for row in _rows(opened.world, n, options)]
    opened.close()
    torch.set_num_threads(threads)
    return {"rows": rows, "problems": PROBLEMS, "tokens": TOKENS, "model": "tiny-puzzles"}


def _rows(world: World, n: int, options: Options) -> list[dict[str, Any]]:
    plays: dict[str, Callable[..., Any]] = {
        "best-of": partial(best_of.play, n=n, scorer=steps.score),
        "beam": partial(beam.play, n=n, width=WIDTH[n], scorer=steps.score),
        "DVTS": partial(dvts.play, n=n, width=WIDTH[n], scorer=steps.score),
        "particles": partial(particles.play, n=n, scorer=steps.score),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ("plain", *plays)}
    for turn in range(options.repeats + 1):
        for name, play in {"plain": sample, **plays}.items():
            one = _measured(world, play, range(n) if name == "plain" else [0], turn)
            if turn:
                found[name].append(one)
    plain, out = [x["cpu"] for x in found["plain"]], []
    for name in plays:
        cpu = [x["cpu"] for x in found[name]]
        out.append({
            "strategy": name, "n": n, "cpu": stats.spread(cpu), "plain": stats.spread(plain),
            "ratio": stats.paired(cpu, plain), "most": TARGETS[name][n],
            **{k: sum(x[k] for x in found[name]) / len(cpu) for k in ("written", "prefill")},
            "prefill_plain": sum(x["prefill"] for x in found["plain"]) / len(plain),
        })
        options.say(f"{name}, n = {n}: {out[-1]['ratio']['median']:.2f} times the CPU seconds of plain sampling")
    return out


def _measured(world: World, play: Callable[..., Any], attempts: Any, turn: int) -> dict[str, float]:
    """CPU seconds per 1,000 tokens, and tokens written and prefill computed, per answer."""
    problems, pace = world.problems[:PROBLEMS], Pace(lr=0.0, max_tokens=TOKENS)
    place, before = Place(turn, 0, 0, 1), _spent(world)

    async def every() -> None:
        with meter.on(meter.EVALUATION):
            await asyncio.gather(*(
                play(p, attempts, world, pace, replace(place, slot=i)) for i, p in enumerate(problems)))

    began = time.process_time()
    asyncio.run(every())
    seconds, cost = time.process_time() - began, _spent(world) - before
    return {"cpu": 1000 * seconds / cost.decode, "written": cost.decode / PROBLEMS, "prefill": cost.prefill / PROBLEMS}


def _spent(world: World) -> Cost:
    return world.meter.physical.get(meter.EVALUATION, Cost())
