"""its_hub as a client of `isocost serve`, beside the strategies of the server: accuracy, tokens, and what a call costs.

    python -m venv /tmp/hub && /tmp/hub/bin/pip install 'its_hub[lm]==1.2.0'
    python experiments/serving_peer.py --python /tmp/hub/bin/python

One model, `tiny-puzzles`, one exact checker, which its_hub asks by HTTP and the strategies ask in the server, 8 tries.
Both sides are clients in a process of their own (`serving_peer_client.py`), with 8 problems under way. Every repeat
draws new numbers. The difference of accuracies is paired by problem, with its 90 % interval over problems of the means
over repeats. Tokens are those of the server's meter; processor time is without that of its_hub's scorer. `one_token` is
a request for one token by OpenAI's client: what a call costs. Writes results/serving_peer.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit
from starlette.requests import Request
from starlette.routing import Route

from isocost.envs.harness.gateway import json_of
from isocost.local.world import open_world
from isocost.meter import ANSWERS, Meter
from isocost.runs.record import machine
from isocost.seams import Pace
from isocost.serve.server import BytesResponse, Server
from isocost.steps.serving.admission import Admission
from isocost.steps.serving.application import Application
from isocost.steps.serving.choosing import by_strategy
from isocost.tasks.builtin import puzzles

OUT = Path(__file__).parent / "results" / "serving_peer.json"
CLIENT = Path(__file__).with_name("serving_peer_client.py")
SIZE, SURE = 8, 0.9
ALGORITHMS = {      # its_hub's, and the same strategy of the server
    "best-of": f"best-of:n={SIZE},scorer=steps", "vote": f"vote:n={SIZE}",
    "particles": f"particles:n={SIZE},scorer=steps",
}


class Both:
    """A server of answers, and the address of the checker beside it."""

    def __init__(self, problems: list[Any]):
        self.world = open_world("tiny-puzzles", problems, None, meter=Meter())
        self.problems = {p.text: p for p in problems}
        self.app = Application(self.world, "tiny-puzzles", Pace(lr=0.0, max_tokens=128), by_strategy("one"),
                               Admission(2**20, 10_000))
        self.app.app.routes.append(Route("/score", self.score, methods=["POST"]))
        self.requests, self.scoring = 0, 0.0

    async def score(self, request: Request) -> BytesResponse:
        """Scores of texts, as the scorer `steps` gives them."""
        began = time.process_time()
        request.state.connection.owner = self.app
        asked = await json_of(request)
        problem = self.problems[asked["question"]]
        found = [puzzles.check_steps(problem, t) for t in asked["texts"]]
        right = [f[-1] if over else all(f[:-1]) for f, over in zip(found, asked["over"], strict=True)]
        self.scoring += time.process_time() - began
        return BytesResponse({"scores": [SURE if r else 1 - SURE for r in right]})

    async def ask(self, python: str, port: int, side: str, algorithm: str, most: int = 128) -> dict[str, Any]:
        """One side's answers to all problems, with what they took."""
        at = f"http://127.0.0.1:{port}"
        algorithm = ALGORITHMS.get(algorithm, algorithm) if side == "ours" else algorithm
        asked = {"url": f"{at}/v1", "score": f"{at}/score", "side": side, "size": SIZE, "most": most,
                 "algorithm": algorithm, "prompts": list(self.problems)}
        before, cpu, scoring = self.world.meter.of(ANSWERS), time.process_time(), self.scoring
        answered = self.app.counts["answered"]
        work = await asyncio.create_subprocess_exec(
            python, str(CLIENT), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
        out, _ = await work.communicate(json.dumps(asked).encode())
        found = json.loads(out)
        cost, requests = self.world.meter.of(ANSWERS) - before, self.app.counts["answered"] - answered
        right = [bool(a) and puzzles.check_steps(p, a)[-1] for p, a in
                 zip(self.problems.values(), found.pop("answers"), strict=True)]
        spent = time.process_time() - cpu - (self.scoring - scoring)
        return {**found, "right": right, "requests": requests, "completions": cost.rollouts, "written": cost.decode,
                "read": cost.prefill, "reread": cost.reread, "server_cpu": spent}


def cpu(runs: list[dict[str, Any]], problems: int) -> dict[str, float]:
    """Milliseconds of processor time of the client, and of the server with its decoding, a request and an answer."""
    requests, answers = sum(r["requests"] for r in runs), len(runs) * problems
    return {f"{who}_ms_{each}": 1e3 * sum(r[key] for r in runs) / many for who, key in
            (("client", "cpu"), ("server", "server_cpu")) for each, many in
            (("a_request", requests), ("an_answer", answers))}


def compared(sides: dict[str, list[dict[str, Any]]], problems: int) -> dict[str, Any]:
    """Both sides of an algorithm: means over repeats, and the paired difference."""
    rights = {side: np.mean([r["right"] for r in runs], axis=0) for side, runs in sides.items()}
    gap = rights["its_hub"] - rights["ours"]
    half = float(stdtrit(problems - 1, 0.95) * gap.std(ddof=1) / problems**0.5)
    each = {side: {
        "accuracy": float(rights[side].mean()),
        **{k: float(np.mean([r[k] for r in runs]) / problems) for k in
           ("written", "read", "reread", "completions", "requests")},
        "failed": sum(len(r["failed"]) for r in runs), "failures": sorted({x for r in runs for x in r["failed"]})[:3],
        **cpu(runs, problems),
    } for side, runs in sides.items()}
    mean = float(gap.mean())
    return {**each, "repeats": len(sides["ours"]), "difference": mean, "low": mean - half, "high": mean + half}


async def measured(python: str, algorithms: list[str], count: int, repeats: int) -> dict[str, Any]:
    some = list(puzzles.listed(puzzles.Puzzles()))
    both = Both(some[:: len(some) // count][:count])
    server = Server(both.app.app)
    port = server.start()
    try:
        runs: dict[str, Any] = {a: {"its_hub": [], "ours": []} for a in algorithms}
        for algorithm in algorithms:
            for _ in range(repeats):
                for side in ("its_hub", "ours"):
                    runs[algorithm][side].append(await both.ask(python, port, side, algorithm))
                    print(algorithm, side, {k: v for k, v in runs[algorithm][side][-1].items() if k != "right"},
                          np.mean(runs[algorithm][side][-1]["right"]), flush=True)
        short = [await both.ask(python, port, "ours", "one", most=1) for _ in range(repeats)]
    finally:
        await server.stop()
    return {
        "problems": count, "size": SIZE,
        "algorithms": {a: compared(sides, count) for a, sides in runs.items()}, "one_token": cpu(short, count),
        "machine": machine(1, both.world.about),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--python", required=True, help="that has its_hub")
    asked.add_argument("--algorithms", nargs="+", choices=list(ALGORITHMS), default=list(ALGORITHMS))
    asked.add_argument("--problems", type=int, default=120)
    asked.add_argument("--repeats", type=int, default=4)
    asked.add_argument("--out", type=Path, default=OUT)
    options = asked.parse_args()
    found = asyncio.run(measured(options.python, options.algorithms, options.problems, options.repeats))
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
