"""Makes the base model of the agent worlds: `python experiments/make_agents_base.py --out DIR`, about two minutes.

A small decoder, taught to walk by imitation of walkers that take a random door most of the time. Half of the lessons
are in the house of the default specification, the others in houses drawn for one lesson, with slips, with and without
names. So the base uses doors that exist and knows a little of one house, and reinforcement learning has something to
improve.
The same seed gives the same weights on the same machine and number of threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from isocost import chance, methods
from isocost.batch import Batch
from isocost.envs import rooms
from isocost.local import embedded, weights
from isocost.local.decoder import Config, Decoder
from isocost.local.learner import Adam
from isocost.local.tokenizer import Characters
from isocost.local.weights import Model
from isocost.local.world import open_world
from isocost.runs.evaluate import evaluate
from isocost.seams import Pace
from isocost.steps.settings import setting_with
from isocost.types import Problem
from isocost.worlds.setting import open_setting
from make_base import pace
from make_puzzles_base import imitate

END = len(rooms.ALPHABET)
FOLDER = embedded.EMBEDDED["tiny-agents"]
SAMPLES = 16        # per problem, of the pass rates in config.json
SPECS = ("rooms", "rooms:slip=0.1", "rooms:seed=7", "rooms:size=26", "rooms:keys=0,alias=4")    # that it is measured in


@dataclass(frozen=True, slots=True)
class Lessons:
    """How the base is taught. The defaults made the one that is shipped."""

    seed: int = 0
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    context: int = 384
    steps: int = 500
    rows: int = 64               # walks per step
    turns: int = 12              # of a walk, at most
    lr: float = 4e-3             # peak; warmed up over a tenth of the steps, then down to nothing by a cosine
    random: float = 0.6          # probability that a walker takes a random door; otherwise the best one
    elsewhere: float = 0.5       # share of the walks in other houses


def config(lessons: Lessons) -> Config:
    """The decoder's shape: its vocabulary is the alphabet and the end token."""
    return Config(
        vocab=END + 1, hidden=lessons.hidden, layers=lessons.layers, heads=lessons.heads, kv_heads=lessons.heads,
        head_dim=lessons.hidden // lessons.heads, mlp=2 * lessons.hidden, max_len=lessons.context,
    )


def teach(lessons: Lessons, report: int = 0) -> Model:
    """Train a decoder from random weights on walks, the loss on the walker's turns alone."""
    start = int(chance.generator(lessons.seed, chance.Purpose.INIT).integers(2**62))
    shape = config(lessons)
    first = Decoder.from_config(shape, torch.Generator().manual_seed(start))
    fresh = Model("tiny-agents", shape, dict(first.named_parameters()), Characters(rooms.ALPHABET, END))
    adam = Adam(betas=(0.9, 0.99), weight_decay=0.01)
    learner = open_world(fresh, (), lambda *_: None, device="cpu", adam=adam).learner
    home, began = list(rooms.problems(rooms.Rooms())), time.process_time()
    for step in range(lessons.steps):
        rng = chance.generator(lessons.seed, chance.Purpose.INIT, 1 + step)
        walks = [walk(rng, lessons, home) for _ in range(lessons.rows)]
        seen = learner.update(batch(walks), imitate, lr=lessons.lr * pace(step, lessons.steps))
        if report and (step + 1) % report == 0:
            print(f"step {step + 1}: loss {seen['loss']:.4f}, {time.process_time() - began:.0f} s", file=sys.stderr)
    return fresh.but(weights={k: v.clone() for k, v in learner.weights().items()})


def walk(rng: Generator, lessons: Lessons, home: list[Problem]) -> list[tuple[str, bool]]:
    """A walk as pieces of text, and whether the walker says each."""
    problem = home[int(rng.integers(len(home)))]
    if rng.random() < lessons.elsewhere:
        size = int(rng.integers(8, len(rooms.NAMES) + 1))
        which = rooms.Rooms(size=size, keys=int(rng.integers(2)), slip=0.1 * int(rng.integers(3)),
                            alias=int(rng.choice([0, 0, 4])), seed=1 + int(rng.integers(2**20)))
        some = list(rooms.problems(which))
        problem = some[int(rng.integers(len(some)))]
    return asyncio.run(_walked(rng, lessons, problem))


async def _walked(rng: Generator, lessons: Lessons, problem: Problem) -> list[tuple[str, bool]]:
    env = rooms.Walk(problem)
    pieces = [((await env.open()).messages[0].content, False)]
    for _ in range(lessons.turns):
        here = env.room
        best = rooms.route(env.which, (here, env.has_key), env.goal)
        to = best[int(rng.integers(len(best))) if rng.random() < lessons.random else 0][0]
        said = str(env.which.house.doors[here].index(to)) if env.which.alias else rooms.NAMES[to]
        shown = await env.step(said, lambda: rng)
        pieces.append((said, True))
        if shown.over:
            break
        pieces.append((shown.messages[0].content, False))
    return pieces


def batch(walks: list[list[tuple[str, bool]]]) -> Batch:
    """Walks as what the learner reads; every token that a walker says has the same weight, each turn's end too."""
    known = {c: i for i, c in enumerate(rooms.ALPHABET)}
    whole = [[(t, own) for text, own in w for t in [*(known[c] for c in text), *([END] if own else [])]] for w in walks]
    length = torch.tensor([len(x) for x in whole])
    tokens = torch.full((len(walks), int(length.max())), END)
    mask = torch.zeros(tokens.shape, dtype=torch.bool)
    for i, x in enumerate(whole):
        tokens[i, : len(x)] = torch.tensor([t for t, _ in x])
        mask[i, : len(x)] = torch.tensor([own for _, own in x])
    zero, each = torch.zeros(tokens.shape), torch.arange(len(walks))
    return Batch(
        tokens, mask, zero, zero.long(), zero.long(), length, torch.ones(len(walks)), each, torch.zeros(len(walks)),
        each, torch.zeros(len(walks)), (), weight=mask / mask.sum(),
    )


def measure(model: str | Path) -> dict[str, Any]:
    """Success of the model by level, at temperature 1, on every problem of the default house and of others."""
    return {spec: asyncio.run(measured(str(model), spec, SAMPLES)) for spec in SPECS}


async def measured(model: str, spec: str, samples: int, limit: int | None = None) -> dict[str, Any]:
    """Success, turns and faults of a model in an environment, from `samples` rollouts for each problem.

    With `limit`, only the first `limit` problems are measured.
    """
    opened = open_setting(setting_with(model=model, env=spec, limit=limit), whole=True)
    s, problems = opened.setting, opened.sides.train
    made = Pace(lr=0.0, max_tokens=s.max_tokens, max_turns=s.max_turns)
    with torch.inference_mode():
        found = await evaluate(methods.recipe("reinforce"), opened.world, problems, made, samples=samples)
    opened.close()
    rollouts = [r for g in found.groups for r in g.rollouts]
    levels = np.array([p.meta["level"] for p in problems])
    turns = sum(len(r.turns) for r in rollouts)
    return {
        "problems": len(problems), "mean": round(found.mean, 4),
        "level": {int(k): round(float(found.right[levels == k].mean()), 4) for k in np.unique(levels)},
        "tenths": np.histogram(found.right, 10, (0.0, 1.0))[0].tolist(), "turns": round(turns / len(rollouts), 2),
        "faults_per_turn": round(sum(t.fault is not None for r in rollouts for t in r.turns) / turns, 4),
    }


def main() -> None:
    """Make the base from the command line; every setting of `Lessons` is an option."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write (default: the package's own)")
    for name, value in asdict(Lessons()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"(default {value})")
    said = vars(parser.parse_args())
    out = said.pop("out")
    torch.set_num_threads(1)
    lessons = replace(Lessons(), **said)
    made = teach(lessons, report=20)
    extra = {"alphabet": rooms.ALPHABET, "eos_token_id": END, "pad_token_id": END}
    weights.save_model(out, made.but(extra={**extra, "made": {"lessons": asdict(lessons)}}))
    facts = measure(out)
    weights.save_model(out, made.but(extra={**extra, "made": {"lessons": asdict(lessons), "pass_at_1": facts}}))
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
