"""Two hundred harnesses at once of which a tenth is faulty: one fate for each rollout, and the others go on.

    python experiments/many_harnesses.py --out experiments/results/many_harnesses.json

Design, fixed before the run. GRPO on `rooms` with the shipped model, B = 25 problems and n = 8 attempts: 200
harnesses at once, three steps. Each is a plain function in a thread of its own, which plays rooms over HTTP with one
connection. Of each 200 rollouts 20 are faulty, at random places: 4 raise after a turn, 4 make no request after a turn
(the limit is 10 s), 4 return no reward, 4 go away during a request and come back with the same one, 4 go away and
raise. The fourth kind is sound. The claims to hold, in three seeds:

1. Every rollout that was charged has one fate: the sum of fates is the meter's count of rollouts.
2. Exactly 16 of each 200 are lost.
3. Every rollout of the first step that has a score has the tokens and log-probs that it has in `--env rooms`.
4. No session, thread of the server or task is left at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from isocost import methods
from isocost.envs.harness.driven import Driven, Seat
from isocost.envs.harness.gateway import Gateway
from isocost.envs.threads import in_thread
from isocost.envs.tiny.rooms import Rooms, Walk, problems
from isocost.ledger import Ledger
from isocost.loop import train
from isocost.recipe import paced
from isocost.steps.settings import setting_with
from isocost.types import Rollout
from isocost.worlds.setting import open_setting

B, N, STEPS, LIMIT = 25, 8, 3, 10.0
KINDS = {"raises": 4, "hangs": 4, "no reward": 4, "comes back": 4, "goes away": 4}
LOST = ("raises", "hangs", "no reward", "goes away")
HOUSE = {p.id: p for p in problems(Rooms())}


def kinds(seed: int) -> Iterator[str]:
    """The kind of each harness in the order in which they start: 20 faulty ones in each 200."""
    rng = np.random.default_rng(seed)
    every = [k for k, count in KINDS.items() for _ in range(count)]
    block = every + [""] * (B * N - len(every))
    while True:
        yield from (block[i] for i in rng.permutation(len(block)))


def play(seat: Seat, kind: str) -> float | None:
    """Rooms over HTTP, with what goes wrong."""
    walk, url = Walk(HOUSE[seat.task["id"]]), urlsplit(seat.base_url)
    messages = [{"role": "user", "content": walk.asked[0].content}]
    there = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    try:
        for turn in range(100):
            body = json.dumps({"messages": messages})
            if turn == 1 and kind == "raises":
                raise KeyError(kind)
            if turn == 1 and kind == "hangs":
                time.sleep(2 * LIMIT)
            if turn == 1 and kind == "no reward":
                return None
            if kind in ("comes back", "goes away") and turn == 0:
                gone = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
                gone.request("POST", f"{url.path}/chat/completions", body)
                gone.close()
                if kind == "goes away":
                    raise ConnectionError(kind)
            there.request("POST", f"{url.path}/chat/completions", body)
            said = json.loads(there.getresponse().read())
            if "error" in said:
                return 0.0
            (choice,) = said["choices"]
            try:
                walk.step(choice["message"]["content"], lambda: np.random.default_rng(0)).send(None)
            except StopIteration as done:
                shown = done.value
            if kind in ("raises", "hangs", "no reward"):
                continue
            if shown.over or choice["finish_reason"] == "length":
                return float(shown.reward)
            messages += [choice["message"], {"role": "tool", "content": shown.messages[0].content}]
        return 0.0
    finally:
        there.close()


async def run(seed: int, driven: bool) -> dict[str, Any]:
    """One run: fates, and the rollouts of the first step."""
    opened = open_setting(setting_with(env="rooms"))
    world, ledger, order = opened.world, Ledger(seed), kinds(seed)
    if driven:
        async def one(seat: Seat) -> Any:
            return await in_thread(play, seat, next(order))

        world.env = lambda problem: Driven(problem, one, LIMIT)
    recipe = paced(methods.recipe("grpo", groups=B, rollouts=N), max_turns=opened.setting.lengths.max_turns,
                   max_tokens=opened.setting.lengths.max_tokens)
    first: dict[tuple[int, int], Rollout] = {}
    began, cpu = time.perf_counter(), time.process_time()
    async for step in train(recipe, world, ledger, {"rollouts": B * N * STEPS}):
        if not first:
            first = {(g.place.slot, r.attempt): r for g in step.groups for r in g.rollouts}
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    sessions = len(Gateway.here().sessions)
    opened.close()
    bill = world.meter.of()
    return {
        "first": first, "fates": {str(k): v for k, v in ledger.fates.items() if v}, "rollouts": bill.rollouts,
        "env_steps": bill.env_steps, "sessions_left": sessions, "tasks_left": len(asyncio.all_tasks()) - 1,
        "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2),
    }


def same(one: Rollout, other: Rollout) -> bool:
    return all(np.array_equal(s.tokens, t.tokens) and np.array_equal(s.logp, t.logp)
               for s, t in zip(one.segments, other.segments, strict=True))


def main(out: Path | None, seeds: int) -> None:
    logging.getLogger("isocost").setLevel(logging.ERROR)
    found = []
    for seed in range(seeds):
        whole, faulty = asyncio.run(run(seed, False)), asyncio.run(run(seed, True))
        there = whole.pop("first")
        first = faulty.pop("first")
        equal = [same(r, there[key]) for key, r in first.items() if key in there]
        threads = [t for t in threading.enumerate() if t.name == "isocost-environment"]
        for thread in threads:              # those that hang end after twice the limit
            thread.join(2 * LIMIT)
        found.append({
            "seed": seed, "rooms": whole, "harnesses": faulty, "compared": len(equal), "equal": sum(equal),
            "one_fate_each": sum(faulty["fates"].values()) == faulty["rollouts"],
            "lost_as_planned": faulty["fates"].get("lost", 0) == STEPS * sum(KINDS[k] for k in LOST),
            "threads_left": sum(t.is_alive() for t in threads),
        })
        print(json.dumps(found[-1]), flush=True)
    said = {
        "what": "200 harnesses at once of which 20 are faulty; GRPO on rooms, three steps of 25 problems x 8",
        "command": "python experiments/many_harnesses.py --out experiments/results/many_harnesses.json",
        "limit_seconds": LIMIT, "kinds": KINDS, "holds": all(
            f["one_fate_each"] and f["lost_as_planned"] and f["equal"] == f["compared"] > 0
            and not f["harnesses"]["sessions_left"] and not f["harnesses"]["tasks_left"] for f in found),
        "runs": found,
    }
    if out:
        out.write_text(json.dumps(said, indent=1) + "\n")
    print("holds" if said["holds"] else "DOES NOT HOLD")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--out", type=Path)
    options.add_argument("--seeds", type=int, default=3)
    asked = options.parse_args()
    main(asked.out, asked.seeds)
