"""Hundreds of concurrent episodes of which a tenth is faulty: one fate for each rollout, and an engine that goes on.

    python experiments/many_episodes.py --out experiments/results/many_episodes.json

Design, fixed before the runs. GRPO on `rooms` with the shipped model, B = 50 problems and n = 10 attempts: 500
episodes at once, three steps, a limit of 2 s for each call of an environment. A wrapper makes exactly 50 of each 500
episodes faulty, at random places: it raises when it is opened (6) or at its second turn (6), hangs in opening (6) or at
its second turn (6), blocks a thread at its second turn (6), reports a fault of its own (5), is slow (5: 0.3 s a turn),
raises when it is closed (5), or hangs there (5). The first 35 can have no score; the last 15 can. A run without faults
has the same seeds; the two alternate, five pairs. The claims to hold:

1. Every rollout that was charged has exactly one fate: attempts are counted by (wave, slot, attempt), and the sum of
   fates is the meter's count of rollouts.
2. Exactly 35 of each 500 are lost, and nothing else is; those 35 are the ones that the wrapper made faulty.
3. In the first step, each rollout that is trained on has the tokens that it has in the run without faults.
4. The engine goes on: the last of the 450 sound episodes of the first step ends at most 1.25 times as late as without
   faults (median of the pairs' ratios).

Then the sandbox: 500 programs at once, of which 50 raise, exit, need too much memory, loop, sleep, fill the disk, print
without end or kill themselves; CPU limit 1 s, time limit 3 s. Each call gives exactly one result, of the expected kind
(a loop may reach its time limit before its CPU limit on a busy machine), and none is a failure of the sandbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from isocost import methods
from isocost.envs.sandbox.client import Limits, Sandbox
from isocost.envs.threads import in_thread
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.recipe import paced
from isocost.steps.settings import setting_with
from isocost.types import Fault, Problem, Rollout, Shown
from isocost.world import Environment, Luck
from isocost.worlds.setting import open_setting

B, N, STEPS, PAIRS, LIMIT, SLOW = 50, 10, 3, 5, 2.0, 0.3
KINDS = {"raises when opened": 6, "raises": 6, "hangs when opened": 6, "hangs": 6, "blocks a thread": 6, "reports": 5,
         "slow": 5, "raises when closed": 5, "hangs when closed": 5}
SCORED = ("", "slow", "raises when closed", "hangs when closed")
CLAIM = 1.25


class Broken(RuntimeError):
    """What a faulty environment raises."""


class Faulty:
    """An environment with a fault of a kind; "" for none. Says when it ended, and that its answer was read."""

    def __init__(self, inner: Environment, kind: str, ended: Callable[[str], None], read: Callable[[str], None]):
        self.inner, self.kind, self.ended, self.read, self.turn = inner, kind, ended, read, 0

    async def open(self) -> Shown:
        if self.kind == "raises when opened":
            raise Broken(self.kind)
        if self.kind == "hangs when opened":
            await asyncio.Event().wait()
        return await self.inner.open()

    async def step(self, said: str, luck: Luck) -> Shown:
        self.turn += 1
        if self.kind == "slow":
            await asyncio.sleep(SLOW)
        if self.turn == 2:
            if self.kind == "raises":
                raise Broken(self.kind)
            if self.kind == "hangs":
                await asyncio.Event().wait()
            if self.kind == "blocks a thread":
                await in_thread(time.sleep, 30)
            if self.kind == "reports":
                return Shown(fault=Fault.environment("the backend is gone"))
        shown = await self.inner.step(said, luck)
        # An episode that ends with its first turn would not reach its fault.
        return Shown(shown.messages, False, 0.0, shown.key) if self.kind not in SCORED and shown.over else shown

    def final(self) -> str:
        self.read(self.kind)
        return self.inner.final()

    async def close(self) -> None:
        self.ended(self.kind)
        if self.kind == "raises when closed":
            raise Broken(self.kind)
        if self.kind == "hangs when closed":
            await asyncio.Event().wait()
        await self.inner.close()


def kinds(seed: int, faulty: bool) -> Iterator[str]:
    """The kind of each episode in the order in which they are made: 50 faulty ones in each 500."""
    rng = np.random.default_rng(seed)
    every = [k for k, count in KINDS.items() for _ in range(count)]
    block = every + [""] * (B * N - len(every))
    while True:
        yield from ([block[i] for i in rng.permutation(len(block))] if faulty else [""] * len(block))


async def run(seed: int, faulty: bool) -> dict[str, Any]:
    """One run: fates, the tokens of the first step, and when its sound episodes ended."""
    opened = open_setting(setting_with(env="rooms", temperature=1.0))
    world, ledger = opened.world, Ledger(seed)
    made = world.env
    order, ends, by_attempt = kinds(seed, faulty), list[tuple[str, float]](), list[str]()
    began, read = 0.0, list[str]()        # kinds of the episodes that ended without a failure

    def make(problem: Problem) -> Environment:
        kind = next(order)
        by_attempt.append(kind)
        return Faulty(made(problem), kind, lambda k: ends.append((k, time.perf_counter() - began)), read.append)

    world.env, world.env_seconds = make, LIMIT
    recipe = paced(methods.recipe("grpo", groups=B, rollouts=N), max_turns=opened.setting.lengths.max_turns,
                   max_tokens=opened.setting.lengths.max_tokens)
    first: dict[str, list[int]] = {}
    seen = Counter[tuple[int, int, int]]()
    lost: list[int] = []
    loop_late, stop = [0.0], asyncio.Event()
    watch = asyncio.create_task(_late(loop_late, stop))
    began, cpu = time.perf_counter(), time.process_time()
    first_ends: list[float] = []
    try:
        async for step in train(recipe, world, ledger, {"rollouts": B * N * STEPS}):
            if not first_ends:
                first_ends = sorted(t for k, t in ends if k == "")
                first = {f"{g.place.slot}/{r.attempt}": _tokens(r) for g in step.groups for r in g.rollouts}
            lost.append(sum(f == "lost" for line in ledger.fresh for f in line["fates"]))
    finally:
        stop.set()
        await watch
        opened.close()
    for line in ledger.fresh:
        seen.update((line["wave"], line["slot"], a) for a in line["attempts"])
    return {
        "seed": seed, "faulty": faulty, "rollouts": world.meter.of().rollouts, "fates": dict(ledger.fates),
        "attempts": len(seen), "more_than_once": sum(c > 1 for c in seen.values()),
        "lost_by_step": np.diff([0, *lost]).tolist(), "made": dict(Counter(by_attempt)),
        "ended_without_failure": dict(Counter(read)),
        "last_sound_episode": round(first_ends[-1], 3), "median_sound_episode": round(float(np.median(first_ends)), 3),
        "seconds": round(time.perf_counter() - began, 2), "cpu_seconds": round(time.process_time() - cpu, 2),
        "latest_turn_of_the_loop": round(max(loop_late), 3), "env_steps": world.meter.of().env_steps,
        "sound": [i for i, k in enumerate(by_attempt[: B * N]) if k == ""], "_first": first,
    }


async def _late(worst: list[float], stop: asyncio.Event) -> None:
    """How late the event loop wakes a task that sleeps 10 ms."""
    while not stop.is_set():
        before = time.perf_counter()
        await asyncio.sleep(0.01)
        worst.append(time.perf_counter() - before - 0.01)


def _tokens(rollout: Rollout) -> list[int]:
    return [int(t) for s in rollout.segments for t in s.tokens]


def pair(seed: int) -> dict[str, Any]:
    """A run with faults and one without, in an order that alternates, and what differs."""
    runs = {f: asyncio.run(run(seed, f)) for f in ((True, False) if seed % 2 else (False, True))}
    with_faults, without = runs[True], runs[False]
    same = [a for a in with_faults["_first"] if with_faults["_first"][a] == without["_first"].get(a)]
    out = {
        "faulty": {k: v for k, v in with_faults.items() if k not in ("_first", "sound")},
        "without": {k: v for k, v in without.items() if k not in ("_first", "sound")},
        "compared": len(with_faults["_first"]), "equal": len(same),
        "ratio_of_last": round(with_faults["last_sound_episode"] / without["last_sound_episode"], 3),
        "ratio_of_median": round(with_faults["median_sound_episode"] / without["median_sound_episode"], 3),
    }
    for one in runs.values():
        assert one["attempts"] <= one["rollouts"]
    return out


PROGRAMS = {
    "error": ["1 / 0"] * 7 + ["import sys; sys.exit(3)"] * 6, "memory": ["bytearray(1 << 30)"] * 6,
    "cpu": ["while True: pass"] * 6, "time": ["import time; time.sleep(60)"] * 7,
    "disk": ["import time\nfor i in range(400): open(str(i), 'w')\ntime.sleep(1)"] * 6,
    "output": ["while True: print('x' * 1000)"] * 6, "killed": ["import os; os.abort()"] * 6,
}


async def programs(seed: int) -> dict[str, Any]:
    """500 programs at once, a tenth of them faulty."""
    faulty = [(how, code) for how, codes in PROGRAMS.items() for code in codes]
    every = faulty + [("ok", f"print({i} ** 2)") for i in range(B * N - len(faulty))]
    order = np.random.default_rng(seed).permutation(len(every))
    began = time.perf_counter()
    with Sandbox(Limits(cpu=1, wall=3.0)) as sandbox:
        async def one(how: str, code: str) -> tuple[str, str, float]:
            with sandbox.folder() as folder:
                result = await sandbox.run(code, folder)
            return how, result.how, time.perf_counter() - began

        found = await asyncio.gather(*(one(*every[i]) for i in order))
        record = sandbox.record()["layers"]
    sound = sorted(t for how, _, t in found if how == "ok")
    return {
        "programs": len(found), "faulty": len(faulty),
        "as_expected": sum(b == a or (a, b) == ("cpu", "time") for a, b, _ in found),
        "otherwise": [f"{a}: {b}" for a, b, _ in found if a != b], "at_once": sandbox.at_once,
        "seconds": round(time.perf_counter() - began, 2), "median_sound": round(sound[len(sound) // 2], 3),
        "last_sound": round(sound[-1], 3), "layers": record,
    }


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the record to write")
    asked = parser.parse_args()
    logging.getLogger("isocost").setLevel(logging.ERROR)      # each faulty episode is a warning
    pairs = [pair(seed) for seed in range(PAIRS)]
    ratios = sorted(p["ratio_of_last"] for p in pairs)
    runs = [p[k] for p in pairs for k in ("faulty", "without")]
    claims = {
        "one_fate_each": all(
            sum(r["fates"].values()) == r["rollouts"] == r["attempts"] and not r["more_than_once"] for r in runs),
        "lost_are_the_faulty": all(
            r["lost_by_step"] == [35 * r["faulty"]] * STEPS
            and r["ended_without_failure"] == {k: v for k, v in r["made"].items() if k in SCORED} for r in runs),
        "others_unchanged": all(p["equal"] == p["compared"] > 0 for p in pairs),
        "engine_goes_on": ratios[len(ratios) // 2] <= CLAIM,
    }
    sandbox = asyncio.run(programs(0))
    claims["one_result_each"] = sandbox["as_expected"] == sandbox["programs"]
    record = {
        "misses": [k for k, held in claims.items() if not held], "claims": claims,
        "ratio_of_last": {"median": ratios[len(ratios) // 2], "low": ratios[0], "high": ratios[-1]},
        "pairs": pairs, "sandbox": sandbox, "cores": os.cpu_count(), "limit_seconds": LIMIT,
    }
    asked.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in record.items() if k not in ("pairs", "sandbox")}, indent=1))


if __name__ == "__main__":
    main()
