"""isocost's engine and learner by themselves, at any shape. Run as `python -m bench.own_parts`."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import torch

from bench.models import read
from bench.own import loop, opened
from bench.task import VOCAB
from bench.worker import serve
from isocost.batch import Batch
from isocost.pack import pack
from isocost.parts import loss, weight
from isocost.types import Group, Message, Place, Problem, Role, Rollout, Said, Sampling, Score, Segment

LR = 1e-5
live: dict[str, Any] = {}


def open_parts(folder: str, **how: Any) -> dict[str, Any]:
    world = opened(read(folder, 2**30), (), **how)
    live.update(world=world, wave=0)
    return {"parameters": world.learner.parameters, "kernels": world.about.kernels}


def sample(groups: int, n: int, prompt: int, new: int) -> dict[str, Any]:
    """Write `n` rollouts of `new` tokens after each of `groups` random prompts."""
    live["wave"] += 1
    rng = random.Random(live["wave"])
    starts = [
        Segment.empty(Sampling()).read([rng.randrange(1, VOCAB) for _ in range(prompt)], Role.PROMPT)
        for _ in range(groups)
    ]
    wall, cpu = time.perf_counter(), time.process_time()
    said = loop.run_until_complete(_all(starts, n, new))
    out = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    live["batch"] = batch_of(starts, said, live["world"].engine.version)
    return out


async def _all(starts: list[Segment], n: int, new: int) -> list[list[Said]]:
    engine, wave = live["world"].engine, live["wave"]
    return await asyncio.gather(*(
        engine.generate(s, range(n), place=Place(0, wave, i), turn=0, max_tokens=new) for i, s in enumerate(starts)
    ))


def batch_of(starts: list[Segment], said: list[list[Said]], version: int) -> Batch:
    """What the loop would hand the learner, with random credit."""
    rng = random.Random(0)
    groups = []
    for slot, (start, some) in enumerate(zip(starts, said, strict=True)):
        problem = Problem(str(slot), (Message("user", ""),))
        each = [Rollout(problem, (start.wrote(s),), "", s.stop, k, Score(rng.random())) for k, s in enumerate(some)]
        groups.append(Group(problem, tuple(each), Place(0, 0, slot)))
    batch = pack(groups, version)
    batch = batch.but(advantage=(batch.reward - 0.5)[batch.rollout, None] * batch.mask)
    return batch.but(weight=weight.rollout_mean(batch))


def learn() -> dict[str, Any]:
    """One update on the last sample."""
    wall, cpu = time.perf_counter(), time.process_time()
    live["world"].learner.update(live["batch"], loss.clipped, lr=LR)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}


def load() -> dict[str, Any]:
    """The new weights into the engine."""
    loop.run_until_complete(live["world"].engine.load(live["world"].learner.weights()))
    return {}



if __name__ == "__main__":
    serve(open_parts=open_parts, sample=sample, learn=learn, load=load)
