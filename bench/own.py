"""isocost as a contender: the real loop for the RL step, the engine for decoding. Run as `python -m bench.own`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from bench.models import read
from bench.task import Task, fingerprint, reward
from bench.worker import serve
from isocost import meter, methods
from isocost.ledger import Ledger
from isocost.local.models import load
from isocost.local.world import Compute, open_world
from isocost.loop import Step, train
from isocost.meter import Meter
from isocost.methods import grpo
from isocost.parts import pace
from isocost.seams import Recipe
from isocost.types import Cost, Message, Place, Problem, Role, Rollout, Sampling, Score, Segment
from isocost.world import World

loop = asyncio.new_event_loop()


def choose_in_order(pool: Sequence[Problem], ledger: Ledger, count: int, rng: Any) -> list[Problem]:
    """The prompts as they stand in the file: what TRL plays with `shuffle_dataset=False`."""
    return [pool[(ledger.drawn + i) % len(pool)] for i in range(count)]


def recipe_of(task: Task) -> Recipe:
    """GRPO as TRL's defaults have it: groups' spread plus 1e-4, mean over rollouts of means over tokens, clip 0.2."""
    return methods.load("grpo").recipe(groups=task.prompts, rollouts=task.rollouts).but(
        choose=choose_in_order,
        advantage=partial(grpo.advantage, eps=1e-4),
        pace=partial(pace.warmed, lr=task.lr, warmup=0, max_tokens=task.new, temperature=1.0),
    )


def opened(
    model: Any, problems: Sequence[Problem], *, threads: int, dtype: str, kernels: str, device: str,
    marking: float = 0.0,
) -> World:
    """A world with the asked kernels, whose verifier waits for `marking` seconds before it marks a group.

    Raises ValueError when other kernels are what it then runs on.
    """
    torch.set_num_threads(threads)
    meter = Meter()

    async def grade(rollouts: Sequence[Rollout]) -> list[Score | None]:
        meter.charge(Cost(verify=len(rollouts)))
        if marking:
            await asyncio.sleep(marking)
        return [Score(reward(r.segments[0].tokens[r.segments[0].own].tolist())) for r in rollouts]

    compute = Compute(device, dtype, kernels, threads)
    world = open_world(model, problems, grade, meter=meter, compute=compute)
    inside = world.about.kernels
    if inside != kernels:
        raise ValueError(f"{kernels} kernels are not available: {world.about.kernels_why or f'it has {inside}'}")
    return world


class Steps:
    """The loop, held between two steps."""

    def __init__(self, task: dict[str, Any], folder: str, prompts: list[str], seed: int, **how: Any):
        self.task = Task(**task)
        problems = [Problem(str(i), (Message("user", p),)) for i, p in enumerate(prompts)]
        self.world = opened(read(folder, self.task.end), problems, **how)
        self.steps = train(recipe_of(self.task), self.world, Ledger(seed=seed), {"rollouts": 2**40})
        self.before = Cost()

    def go(self, count: int) -> list[dict[str, float]]:
        return [self._one() for _ in range(count)]

    def _one(self) -> dict[str, Any]:
        wall, cpu = time.perf_counter(), time.process_time()
        step: Step = loop.run_until_complete(anext(self.steps))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        spent, self.before = self.world.meter.of() - self.before, self.world.meter.of()
        return {
            "seconds": wall, "cpu": cpu, "tokens": spent.decode, "reward": step.line["reward"],
            "prompts": fingerprint([g.problem.text for g in step.groups]), "grad_norm": step.line["grad_norm"],
        }


class Decoding:
    """The engine alone, asked for `new` tokens after each of some prompts."""

    def __init__(self, folder: str, prompts: list[list[int]], **how: Any):
        model = load(folder) if folder == "smollm2" else read(folder, 2**30)
        text = model.text
        text.ends = ()      # so that every row writes as many tokens as it may
        self.prompts = prompts
        self.world = opened(model.but(text=text), (), **how)
        self.wave = 0

    def go(self, batch: int, new: int) -> dict[str, Any]:
        self.wave += 1
        wall, cpu = time.perf_counter(), time.process_time()
        with meter.on(meter.EVALUATION):        # nobody will learn from it, so nothing is kept for a learner
            said = loop.run_until_complete(self._all(batch, new))
        out = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
        rows = [s for group in said for s in group]
        self.last = rows
        return {**out, "tokens": sum(len(s.tokens) for s in rows)}

    async def _all(self, batch: int, new: int) -> list[Any]:
        empty, engine = Segment.empty(Sampling()), self.world.engine
        return await asyncio.gather(*(
            engine.generate(empty.read(p, Role.PROMPT), [0], place=Place(0, self.wave, i), turn=0, max_tokens=new)
            for i, p in enumerate(self.prompts[:batch])
        ))

    def written(self) -> dict[str, Any]:
        """The last call's rows and the log-probs that were recorded with them."""
        return {
            "tokens": [s.tokens.tolist() for s in self.last],
            "logp": [np.asarray(s.logp, dtype=np.float64).tolist() for s in self.last],
        }


live: dict[str, Any] = {}


def open_steps(**how: Any) -> dict[str, Any]:
    live["steps"] = Steps(**how)
    return {"parameters": live["steps"].world.learner.parameters}


def open_decoding(**how: Any) -> dict[str, Any]:
    live["decoding"] = Decoding(**how)
    return {"parameters": live["decoding"].world.learner.parameters}


if __name__ == "__main__":
    serve(
        open_steps=open_steps,
        steps=lambda count: {"steps": live["steps"].go(count)},
        open_decoding=open_decoding,
        decode=lambda batch, new: live["decoding"].go(batch, new),
        written=lambda: live["decoding"].written(),
    )
