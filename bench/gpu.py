"""What to measure on a GPU, in the order of its worth: `python -m bench gpu [STAGE ...]`, or `make bench-gpu`.

Stages of at most nine minutes each. Every row is written to the record as it is measured, and rows that are there are
not measured again, so a stage that was stopped goes on. All stages run at toy size on a processor:
`python -m bench gpu --device cpu --tiny`. Random weights for speed, the built-in model for runs.

  check   the peaks; sampler against learner, in fp32 and bf16; the same twice, and in company
  speed   decoding by rows in flight, and its share of the memory's bandwidth; learning, and its share of the peak
  graphs  one decode tick as it is, and replayed as a CUDA graph: what launches cost
  runs    runs side by side on one device; a run that is killed and continued
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.__main__ import OUT, WORK, rounded
from bench.machine import machine
from isocost import methods
from isocost.batch import Batch
from isocost.local import roofline
from isocost.local.decoder import Config, Decoder
from isocost.local.engine import LocalEngine
from isocost.local.learner import LocalLearner
from isocost.local.roofline import Peaks
from isocost.meter import Meter
from isocost.pack import pack
from isocost.types import Group, Place, Problem, Role, Rollout, Score, Segment

LIMIT = 540.0       # seconds of one stage
BARS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}      # mean |Δ log-prob| of sampler and learner, at most
Row = tuple[str, Callable[[], dict[str, Any]]]          # its name in the record, and what measures it


def shape(vocab: int, hidden: int, layers: int, heads: int, kv: int, mlp: int, dim: int = 0) -> Config:
    return Config(vocab, hidden, layers, heads, kv, dim or hidden // heads, mlp, max_len=4096)


MODELS = {
    "135M": shape(49152, 576, 30, 9, 3, 1536), "0.6B": shape(151936, 1024, 28, 16, 8, 3072, 128),
    "1.7B": shape(151936, 2048, 28, 16, 8, 6144, 128),
}
TOY = {"toy": shape(512, 64, 2, 4, 2, 128)}


@dataclass
class Bench:
    """The device, the sizes, and the folder of runs."""

    device: torch.device
    tiny: bool
    work: Path
    _peaks: Peaks | None = None

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def models(self) -> dict[str, Config]:
        return TOY if self.tiny else MODELS

    @property
    def peaks(self) -> Peaks:
        """Measured once in a process."""
        self._peaks = self._peaks or roofline.measure(1, self.device.type, 0.1 if self.tiny else 1.5)
        return self._peaks

    def sync(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def seconds(self, call: Callable[[], Any]) -> float:
        self.sync()
        began = time.perf_counter()
        call()
        self.sync()
        return time.perf_counter() - began

    def memory(self) -> float | None:
        """GB at the peak since the last row."""
        return torch.cuda.max_memory_allocated() / 1e9 if self.cuda else None

    def free(self) -> None:
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


class Silent:
    """A text of which only the end token matters, and which is hardly ever drawn."""

    ends = (1,)

    def decode(self, tokens: Any) -> str: return ""
    def encode(self, text: str) -> list[int]: return []
    def prompt(self, messages: Any) -> list[int]: return []
    def answer(self, messages: Any) -> list[int]: return []


def opened(b: Bench, config: Config, body: torch.dtype, slots: int = 512) -> tuple[LocalEngine, LocalLearner]:
    """An engine and a learner with the same random weights."""
    torch.manual_seed(0)
    named = Decoder(config, body=torch.float32, device="cpu" if b.tiny else b.device).named_parameters()
    weights = {k: torch.randn_like(v).mul_(0.02 if v.ndim > 1 else 0.0).add_(float(v.ndim == 1)).detach()
               for k, v in named}
    meter, room = Meter(), 2**28
    if b.cuda:
        room = torch.cuda.mem_get_info(b.device)[0] // 3
    engine = LocalEngine(config, Silent(), meter, device=b.device, body=body, max_slots=slots, cache_bytes=room)
    learner = LocalLearner(config, weights, meter, ends=Silent.ends, device=b.device, body=body)
    engine.restore(learner.weights(), 0)
    return engine, learner


def groups(
    engine: LocalEngine, config: Config, B: int, n: int, prompt: int, new: int, wave: int = 0
) -> list[Group]:
    """B groups of n rollouts, sampled from random prompts."""
    def start(i: int) -> Segment:
        ids = np.random.default_rng(i).integers(2, config.vocab, prompt + i % 8)
        return Segment.empty().read(ids, Role.PROMPT)

    async def one(i: int) -> Group:
        first, problem, place = start(i), Problem(id=str(i), prompt=()), Place(0, wave, i)
        said = await engine.generate(first, range(n), place=place, turn=0, max_tokens=new)
        rollouts = (Rollout(problem, (first.wrote(x),), "", x.stop, j, Score(float(j % 2))) for j, x in enumerate(said))
        return Group(problem, tuple(rollouts), place)

    async def every() -> list[Group]:
        return list(await asyncio.gather(*(one(i) for i in range(B))))

    return asyncio.run(every())


def credited(found: list[Group]) -> Batch:
    """A batch with random advantages and the mean over tokens."""
    batch = pack(found, 0)
    advantage = torch.randn(batch.tokens.shape, generator=torch.Generator().manual_seed(0)) * batch.mask
    return batch.but(advantage=advantage, weight=batch.mask / batch.mask.sum())


# the stages ---------------------------------------------------------------------------------------------------------


def check(b: Bench) -> Iterator[Row]:
    """Does it compute the right thing there?"""
    def ceilings() -> dict[str, Any]:
        return {"tflops": {k: v / 1e12 for k, v in b.peaks.flops.items()}, "GB_per_s": b.peaks.bytes / 1e9}

    yield "ceilings", ceilings
    for name in list(b.models)[:2]:
        for body in BARS:
            yield f"gap {name} {str(body)[6:]}", lambda name=name, body=body: _gap(b, b.models[name], body)


def _gap(b: Bench, config: Config, body: torch.dtype) -> dict[str, Any]:
    """|Δ log-prob| of sampled tokens between sampler and learner; and which rollouts are the same again."""
    B, n, new = (2, 4, 8) if b.tiny else (16, 16, 64)
    engine, learner = opened(b, config, body)
    first, again, alone = (groups(engine, config, k, n, 32, new) for k in (B, B, 1))
    batch = pack(first, 0)
    gaps = (learner.score(batch).logp.cpu() - batch.logp)[batch.mask].abs().double()

    def same(one: list[Group], other: list[Group]) -> float:
        pairs = [(x, y) for g, h in zip(one, other, strict=False) for x, y in zip(g.rollouts, h.rollouts, strict=True)]
        return float(np.mean([np.array_equal(x.segments[0].tokens, y.segments[0].tokens) for x, y in pairs]))

    return {
        "mean": float(gaps.mean()), "p99": float(gaps.quantile(0.99)), "max": float(gaps.max()), "bar": BARS[body],
        "sound": float(gaps.mean()) <= BARS[body], "same_twice": same(first, again), "same_alone": same(first, alone),
    }


def speed(b: Bench) -> Iterator[Row]:
    """Decoding and learning, beside the roofline."""
    for name in b.models:
        for rows in (1, 8) if b.tiny else (1, 16, 64, 256, 1024):
            yield f"decode {name} {rows}", lambda name=name, rows=rows: _decode(b, b.models[name], rows)
        yield f"learn {name}", lambda name=name: _learn(b, b.models[name])


def _decode(b: Bench, config: Config, rows: int) -> dict[str, Any]:
    new, n = 8 if b.tiny else 64, min(rows, 16)
    engine, learner = opened(b, config, torch.bfloat16, slots=max(rows, 16))
    parameters = learner.parameters
    del learner
    groups(engine, config, rows // n, n, 64, 4)
    seconds = b.seconds(lambda: groups(engine, config, rows // n, n, 64, new, wave=1))
    row = 2 * config.layers * config.kv_heads * config.head_dim * 2 * (64 + new / 2)   # bytes of its keys and values
    return {
        "tokens_per_s": rows * new / seconds, "ms_per_tick": 1e3 * seconds / new, "GB": b.memory(),
        "share_of_bandwidth": (2 * parameters + rows * row) / (seconds / new) / b.peaks.bytes,
    }


def _learn(b: Bench, config: Config) -> dict[str, Any]:
    B, n, prompt, new = (2, 4, 8, 8) if b.tiny else (16, 16, 128, 128)
    engine, learner = opened(b, config, torch.bfloat16)
    recipe, found = methods.recipe("grpo"), list[Group]()
    sample = b.seconds(lambda: found.extend(groups(engine, config, B, n, prompt, new)))
    batch = credited(found)
    times = sorted(b.seconds(lambda: learner.update(batch, recipe.loss, lr=1e-6)) for _ in range(4))
    load = b.seconds(lambda: asyncio.run(engine.load(learner.weights())))
    tokens, update = int(batch.length.sum()), times[1]
    return {
        "tokens_per_s": tokens / update, "mfu": 6 * learner.parameters * tokens / update / b.peaks.flops["bf16"],
        "sample_s": sample, "update_s": update, "load_s": load, "GB": b.memory(),
    }


def graphs(b: Bench) -> Iterator[Row]:
    """What launching a tick's kernels costs."""
    for name in b.models:
        for rows in (4,) if b.tiny else (1, 16, 256):
            yield f"tick {name} {rows}", lambda name=name, rows=rows: _tick(b, b.models[name], rows)


def _tick(b: Bench, config: Config, rows: int) -> dict[str, Any]:
    """One token of each row, with 256 positions of keys and values: as it is, and as a CUDA graph."""
    decoder = Decoder(config, body=torch.bfloat16, device=b.device).requires_grad_(False)
    tokens = torch.zeros(rows, dtype=torch.long, device=b.device)
    keys = torch.zeros(rows, config.kv_heads, 256, config.head_dim, dtype=torch.bfloat16, device=b.device)

    def look(layer: int) -> Any:
        def attend(q: Any, k: Any, v: Any) -> Any:
            q = q.unflatten(-2, (config.kv_heads, -1))
            return torch.nn.functional.scaled_dot_product_attention(q, keys, keys).flatten(1, 2)
        return attend

    turn = decoder.turns[tokens]

    def tick() -> Any:
        return decoder.logits(decoder.run(tokens, turn, look))

    with torch.inference_mode():
        for _ in range(3):
            tick()
        plain = sorted(b.seconds(tick) for _ in range(5 if b.tiny else 20))[2 if b.tiny else 10]
        if not b.cuda:
            return {"ms_plain": 1e3 * plain, "ms_graph": None}
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tick()
        replayed = sorted(b.seconds(graph.replay) for _ in range(20))[10]
    return {"ms_plain": 1e3 * plain, "ms_graph": 1e3 * replayed}


def runs(b: Bench) -> Iterator[Row]:
    """Runs of the built-in model."""
    for k in (1, 2) if b.tiny else (1, 2, 4, 8, 16):
        yield f"side by side {k}", lambda k=k: _side_by_side(b, k)
    yield "killed", lambda: _killed(b)


def _command(b: Bench, out: Path, seed: int, rollouts: int) -> list[str]:
    return [
        sys.executable, "-c", "from isocost.cli import main; main()", "train", "grpo", "--data", "sums:level=1",
        "--device", b.device.type, "--budget", f"{rollouts}-rollouts", "--lr", "8e-5", "--seed", str(seed),
        "--out", str(out),
    ]


def _side_by_side(b: Bench, k: int) -> dict[str, Any]:
    """Runs per hour with k processes on the device."""
    budget = 512 if b.tiny else 6144
    outs = [b.work / f"side-{k}-{i}-{time.time_ns()}" for i in range(k)]
    began = time.perf_counter()
    some = [subprocess.Popen(_command(b, out, i, budget), stdout=subprocess.DEVNULL) for i, out in enumerate(outs)]
    ended = [p.wait() for p in some].count(0)
    seconds = time.perf_counter() - began
    return {"ended": ended, "of": k, "rollouts_each": budget, "runs_per_hour": 3600 * ended / seconds}


def _killed(b: Bench) -> dict[str, Any]:
    """A run killed twice by SIGKILL while it trains, and continued: its record beside one that was not killed."""
    budget = 1024 if b.tiny else 12288
    whole, parts = (b.work / f"{x}-{time.time_ns()}" for x in ("whole", "parts"))
    subprocess.run(_command(b, whole, 3, budget), stdout=subprocess.DEVNULL, check=True)
    lines = len((whole / "metrics.jsonl").read_text().splitlines())
    kills = 0
    for share in (0.3, 0.6):
        one = subprocess.Popen(_command(b, parts, 3, budget), stdout=subprocess.DEVNULL)
        while one.poll() is None:
            seen = parts / "metrics.jsonl"
            if seen.exists() and len(seen.read_text().splitlines()) >= share * lines:
                os.kill(one.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        one.wait()
    subprocess.run(_command(b, parts, 3, budget), stdout=subprocess.DEVNULL, check=True)

    def digest(run: Path, name: str) -> str:
        return hashlib.sha256((run / name).read_bytes()).hexdigest()

    ends = [json.loads((run / "end.json").read_text()) for run in (whole, parts)]
    return {
        "kills": kills, "equal": {x: digest(whole, x) == digest(parts, x) for x in ("metrics.jsonl", "journal.jsonl")},
        "rollouts": [sum(e["bill"][k]["rollouts"] for k in e["bill"] if k != "evaluation") for e in ends],
    }


STAGES: dict[str, Callable[[Bench], Iterator[Row]]] = {"check": check, "speed": speed, "graphs": graphs, "runs": runs}


# the record ---------------------------------------------------------------------------------------------------------


def measure(b: Bench, names: list[str], path: Path, *, again: bool = False, limit: float = LIMIT) -> dict[str, Any]:
    """Run stages and write the record after every row. Rows that are in it are kept, unless `again`.

    A row that raises an error is recorded with it; one for which no time is left is measured by the next call.
    """
    record = json.loads(path.read_text()) if path.exists() else {}
    record = {"schema": 1, "case": "gpu", "rows": {}, **record, "machine": machine(1), "tiny": b.tiny,
              "device": torch.cuda.get_device_name(b.device) if b.cuda else "cpu"}
    for name in names:
        began = time.perf_counter()
        for row, call in STAGES[name](b):
            there = record["rows"].get(row)
            if there is not None and "error" not in there and not again:
                continue
            if time.perf_counter() - began > limit:
                print(f"{name}: {limit:.0f} s are over; run it again for the rest", flush=True)
                break
            b.free()
            at = time.perf_counter()
            try:
                found = call()
            except Exception as error:      # the other rows are worth having
                found = {"error": f"{type(error).__name__}: {error}"[:500]}
            record["rows"][row] = rounded({"stage": name, **found, "seconds": time.perf_counter() - at})
            print(row, json.dumps(record["rows"][row]), flush=True)
            part = path.with_suffix(".part")
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(record, indent=1) + "\n")
            part.replace(path)
    return record


def page(records: list[dict[str, Any]]) -> str:
    """The tables of docs/gpu.md."""
    out = [
        "# On a GPU", "",
        "`make bench-gpu` measures isocost on the GPU of this machine, in four stages of at most nine minutes each. "
        "Every row\nis recorded as it is measured, and the same command goes on where it was stopped. "
        "`python -m bench gpu page` writes\nthis page from the records.", "",
    ]
    records = [r for r in records if not r["tiny"]]
    if not records:
        out += ["No GPU is on record yet. At toy size every row runs on a processor, in the tests:\n"
                "`python -m bench gpu --device cpu --tiny`."]
    for r in records:
        out += [f"## {r['device']}", "", "| row | measured |", "| --- | --- |"]
        for name, row in r["rows"].items():
            said = ", ".join(f"{k} {v}" for k, v in row.items() if k not in ("stage", "seconds") and v is not None)
            out.append(f"| {name} | {said} |")
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the stages that are named, all of them by default, or write the page."""
    p = argparse.ArgumentParser("python -m bench gpu", description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("stages", nargs="*", metavar="STAGE", help=f"any of {', '.join(STAGES)}; or page")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="toy sizes")
    p.add_argument("--again", action="store_true", help="measure what is in the record, too")
    p.add_argument("--limit", type=float, default=LIMIT, help="seconds of a stage (default: 540)")
    p.add_argument("--out", type=Path, default=OUT, help="where records go (default: experiments/results/bench)")
    p.add_argument("--work", type=Path, default=WORK / "gpu", help="for runs (default: build/bench/gpu)")
    asked = p.parse_args(arguments)
    if asked.stages == ["page"]:
        found = [json.loads(f.read_text()) for f in sorted(asked.out.glob("gpu-*.json"))]
        (Path(__file__).parent.parent / "docs" / "gpu.md").write_text(page(found))
        return 0
    if unknown := [s for s in asked.stages if s not in STAGES]:
        p.error(f"no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    if asked.device == "cuda" and not torch.cuda.is_available():
        p.error("torch finds no GPU here; --device cpu --tiny runs every row at toy size")
    b = Bench(torch.device(asked.device), asked.tiny, asked.work.resolve())
    b.work.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if b.cuda else "cpu"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ("-tiny" if b.tiny else "")
    record = measure(b, asked.stages or list(STAGES), asked.out / f"gpu-{slug}.json", again=asked.again,
                     limit=asked.limit)
    return 1 if any("error" in row for row in record["rows"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
