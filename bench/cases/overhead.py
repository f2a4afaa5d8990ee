"""Our own Python: feed, pack and journal around an engine that costs nothing, against a plain loop.

The plain loop makes the same arrays, rewards and journal lines, with nothing in between: no seams, no meter, no tasks.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench import stats
from bench.models import letters
from bench.options import Options
from bench.task import VOCAB, written
from isocost import methods
from isocost.feed import Feed
from isocost.ledger import Ledger
from isocost.meter import Meter
from isocost.pack import pack
from isocost.parts import pace
from isocost.runs.files import Stream
from isocost.runs.record import PATIENCE_LINES
from isocost.types import Cost, Fate, Message, Place, Problem, Rollout, Said, Score, Stop
from isocost.world import World

SHAPES = ((8, 16), (16, 16), (16, 2), (16, 32))     # problems per step, rollouts per problem
PROMPT, NEW = 8, 8
SECONDS = 0.6       # of one measurement


class Free:
    """An engine and a learner in one that cost nothing: the same words every time."""

    version, parameters = 0, 0

    def __init__(self, meter: Meter):
        self.meter = meter
        tokens, logp = np.arange(NEW, dtype=np.int64), np.zeros(NEW, dtype=np.float32)
        self.said = Said(tokens, logp, np.zeros(NEW, dtype=np.int64), Stop.LENGTH, ())

    async def generate(self, start: Any, attempts: Sequence[int], **_: Any) -> list[Said]:
        count = len(attempts)
        self.meter.charge(Cost(prefill=len(start) * count, decode=NEW * count), started=count)
        return [self.said] * count

    def halt(self, place: Place) -> None:
        """Nothing is under way."""


def overhead(options: Options) -> dict[str, Any]:
    """Rollouts per second on one thread, ours and the plain loop's in turn."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    rows = [_row(B, n, options) for B, n in SHAPES]
    torch.set_num_threads(threads)
    return {"rows": rows, "prompt": PROMPT, "new": NEW}


def _row(B: int, n: int, options: Options) -> dict[str, Any]:
    ours, plain = list[float](), list[float]()
    for turn in range(options.repeats + 1):
        rates = asyncio.run(_ours(B, n)), _plain(B, n)
        if turn:
            ours.append(rates[0])
            plain.append(rates[1])
    row = {"B": B, "n": n, "ours": stats.spread(ours), "plain": stats.spread(plain), "share": stats.paired(ours, plain)}
    options.say(f"{B} x {n}: {row['ours']['median']:.0f} rollouts/s; a plain loop {row['plain']['median']:.0f}")
    return row


def _problems(count: int) -> list[Problem]:
    prompts = [written([(i + t) % VOCAB for t in range(PROMPT)]) for i in range(count)]
    return [Problem(str(i), (Message("user", p),)) for i, p in enumerate(prompts)]


async def _ours(B: int, n: int) -> float:
    meter = Meter()
    free = Free(meter)

    async def grade(rollouts: Sequence[Rollout]) -> list[Score | None]:
        meter.charge(Cost(verify=len(rollouts)))
        return [Score(float(r.attempt & 1)) for r in rollouts]

    world = World(_problems(256), free, free, letters(VOCAB), grade, meter)
    recipe = methods.load("grpo").recipe(groups=B, rollouts=n).but(pace=partial(pace.warmed, max_tokens=NEW))
    ledger, done = Ledger(), 0
    with tempfile.TemporaryDirectory() as home:
        journal = Stream(Path(home) / "journal.jsonl", PATIENCE_LINES)
        async with Feed(recipe, world, ledger, {"rollouts": 2**40}) as feed:
            began = time.perf_counter()
            while time.perf_counter() - began < SECONDS:
                batch = pack(await feed.take(), version=0)
                ledger.settle_all(batch.groups, [[Fate.TRAINED] * group.size for group in batch.groups])
                ledger.close(meter.of(), 256, {})
                journal.write(*(line.text for line in ledger.fresh))
                ledger.fresh.clear()
                done += len(batch.reward)
            seconds = time.perf_counter() - began
        journal.close()
    return done / seconds


def _plain(B: int, n: int) -> float:
    text, meter = letters(VOCAB), Meter()
    said, problems = Free(meter).said, _problems(256)
    with tempfile.TemporaryDirectory() as home:
        file = os.open(Path(home) / "journal.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        done, step, began = 0, 0, time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            rows, rewards, lines = [], [], []
            for slot in range(B):
                problem = problems[(step * B + slot) % 256]
                prompt = np.array(text.prompt(problem.prompt))
                own = [float(k & 1) for k in range(n)]
                for _ in range(n):
                    rows.append((np.concatenate((prompt, said.tokens)), len(prompt), said))
                rewards += own
                lines.append(json.dumps({
                    "step": step, "slot": slot, "id": problem.id, "attempts": list(range(n)), "rewards": own,
                    "lengths": [NEW] * n, "stops": ["length"] * n, "fates": ["trained"] * n,
                }))
            _padded(rows, rewards)
            os.write(file, ("\n".join(lines) + "\n").encode())
            done, step = done + B * n, step + 1
        seconds = time.perf_counter() - began
        os.close(file)
    return done / seconds


def _padded(rows: Sequence[tuple[np.ndarray, int, Said]], rewards: Sequence[float]) -> list[torch.Tensor]:
    """Tokens, mask, log-probs, roles, turns, versions, lengths and rewards, padded on the right, row by row."""
    shape = len(rows), max(len(t) for t, _, _ in rows)
    tokens, role = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    turn, version = np.full(shape, -1, np.int64), np.full(shape, -1, np.int64)
    mask, logp = np.zeros(shape, bool), np.zeros(shape, np.float32)
    for i, (row, start, said) in enumerate(rows):
        end = len(row)
        tokens[i, :end], mask[i, start:end], logp[i, start:end] = row, True, said.logp
        role[i, start:end], turn[i, start:end], version[i, start:end] = 1, 0, said.version
    lengths, values = np.array([len(r) for r, _, _ in rows]), np.array(rewards, dtype=np.float32)
    return [torch.from_numpy(x) for x in (tokens, mask, logp, role, turn, version, lengths, values)]
