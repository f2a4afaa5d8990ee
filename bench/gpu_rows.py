"""What `bench.gpu` measures: the rows of its stages. Random weights for speed, the built-in model for runs."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from bench import roofline, roofs
from bench.cases import step
from bench.machine import versions_of
from bench.models import random_folder
from bench.options import Options
from bench.roofline import Peaks
from bench.task import VOCAB, Task
from bench.worker import ROOT, Failed
from isocost import methods
from isocost.batch import Batch
from isocost.local.decoder import Backend, Config, Decoder
from isocost.local.engine import LocalEngine
from isocost.local.learner import LocalLearner
from isocost.local.static import StaticCache
from isocost.meter import Meter
from isocost.pack import pack
from isocost.types import Group, Place, Problem, Role, Rollout, Score, Segment

BARS = {torch.float32: 1e-5, torch.bfloat16: 2e-2}      # mean |Δ log-prob| of sampler and learner, at most
Row = tuple[str, Callable[[], dict[str, Any]]]          # its name in the record, and what measures it


def shape(vocab: int, hidden: int, layers: int, heads: int, kv: int, mlp: int, dim: int = 0, **more: Any) -> Config:
    return Config(vocab, hidden, layers, heads, kv, dim or hidden // heads, mlp, max_len=4096, **more)


MODELS = {      # the shapes of SmolLM2-135M, Qwen3-0.6B and Qwen2.5-1.5B
    "135M": shape(49152, 576, 30, 9, 3, 1536),
    "0.6B": shape(151936, 1024, 28, 16, 8, 3072, 128, qk_norm=True, family="qwen3"),
    "1.5B": shape(151936, 1536, 28, 12, 2, 8960, qkv_bias=True, family="qwen2"),
}
TOY = {"toy": shape(512, 64, 2, 4, 2, 128)}
ROWS = (16, 64, 256, 1, 1024)       # in flight, in the order of their worth
ALSO_PLAIN = (16, 256)              # also measured kernel by kernel


@dataclass
class Bench:
    """The device, the sizes, and the folder of runs."""

    device: torch.device
    tiny: bool
    work: Path
    deadline: float = field(default_factory=lambda: time.perf_counter() + 540.0)    # of the stage
    _peaks: Peaks | None = None

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def models(self) -> dict[str, Config]:
        return TOY if self.tiny else MODELS

    @property
    def left(self) -> float:
        """Seconds of the stage that are left; at least 10, so that a row can end."""
        return max(self.deadline - time.perf_counter(), 10.0)

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

    ends: tuple[int, ...] = (1,)

    def decode(self, tokens: Any) -> str: return ""
    def encode(self, text: str) -> list[int]: return []
    def prompt(self, messages: Any) -> list[int]: return []
    def answer(self, messages: Any) -> list[int]: return []


def opened(
    b: Bench, config: Config, body: torch.dtype, slots: int = 512, kernels: str = "graphs"
) -> tuple[LocalEngine, LocalLearner]:
    """An engine and a learner with the same random weights."""
    torch.manual_seed(0)
    named = Decoder(config, body=torch.float32, device="cpu" if b.tiny else b.device).named_parameters()
    weights = {k: torch.randn_like(v).mul_(0.02 if v.ndim > 1 else 0.0).add_(float(v.ndim == 1)).detach()
               for k, v in named}
    meter, room = Meter(), 2**28
    if b.cuda:
        room = torch.cuda.mem_get_info(b.device)[0] // 3
    engine = LocalEngine(config, Silent(), meter, Backend(b.device, body, kernels), max_slots=slots, cache_bytes=room)
    learner = LocalLearner(config, weights, meter, Backend(b.device, body), ends=Silent.ends)
    engine.restore(learner.weights(), 0)
    return engine, learner


def graphs_of(engine: LocalEngine) -> dict[str, Any]:
    """How many ticks were captured, and why others could not be."""
    cache = engine.cache
    return {"captured": cache.captured, "not_captured": cache.why or None} if isinstance(cache, StaticCache) else {}


def groups(
    engine: LocalEngine, config: Config, B: int, n: int, prompt: int, new: int, wave: int = 0, ragged: int = 8
) -> list[Group]:
    """B groups of n rollouts, sampled from random prompts of up to `ragged` - 1 tokens more."""
    def start(i: int) -> Segment:
        ids = np.random.default_rng(i).integers(2, config.vocab, prompt + i % ragged)
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
            for kernels in ("graphs", "torch"):
                said = f"gap {name} {str(body)[6:]}, {'graphs' if kernels == 'graphs' else 'no graphs'}"
                yield said, lambda name=name, body=body, kernels=kernels: _gap(b, b.models[name], body, kernels)


def _gap(b: Bench, config: Config, body: torch.dtype, kernels: str) -> dict[str, Any]:
    """|Δ log-prob| of sampled tokens between sampler and learner; and which rollouts are the same again."""
    B, n, new = (2, 4, 8) if b.tiny else (16, 16, 64)
    engine, learner = opened(b, config, body, kernels=kernels)
    first, again, alone = (groups(engine, config, k, n, 32, new) for k in (B, B, 1))
    batch = pack(first, 0)
    gaps = (learner.score(batch).logp.cpu() - batch.logp)[batch.mask].abs().double()

    def same(one: list[Group], other: list[Group]) -> float:
        pairs = [(x, y) for g, h in zip(one, other, strict=False) for x, y in zip(g.rollouts, h.rollouts, strict=True)]
        return float(np.mean([np.array_equal(x.segments[0].tokens, y.segments[0].tokens) for x, y in pairs]))

    return {
        "mean": float(gaps.mean()), "p99": float(gaps.quantile(0.99)), "max": float(gaps.max()), "bar": BARS[body],
        "sound": float(gaps.mean()) <= BARS[body], "same_twice": same(first, again), "same_alone": same(first, alone),
        **graphs_of(engine),
    }


def speed(b: Bench) -> Iterator[Row]:
    """Decoding and learning, beside the roofline."""
    for name in b.models:
        for rows in (8, 1) if b.tiny else ROWS:
            yield f"decode {name} {rows}", lambda name=name, rows=rows: _decode(b, b.models[name], rows)
        yield f"learn {name}", lambda name=name: _learn(b, b.models[name])


def _decode(b: Bench, config: Config, rows: int) -> dict[str, Any]:
    """Seconds of a tick, from the difference between long and short answers, so that prompts do not count."""
    prompt, few, many = (8, 2, 10) if b.tiny else (64, 8, 72)
    n = min(rows, 16)

    def tick(kernels: str) -> tuple[float, LocalEngine]:
        engine, learner = opened(b, config, torch.bfloat16, slots=max(rows, 16), kernels=kernels)
        del learner
        b.free()

        def seconds(new: int, wave: int) -> float:
            return b.seconds(lambda: groups(engine, config, rows // n, n, prompt, new, wave, ragged=1))

        seconds(many, 0)            # captures
        pairs = [(seconds(few, k), seconds(many, k)) for k in (1, 2, 3)]
        return max(median(y - x for x, y in pairs), 1e-9) / (many - few), engine

    took, engine = tick("graphs")
    work = roofline.decode_work(config, rows, prompt + (few + many) / 2, body=2)
    found = {
        "tokens_per_s": rows / took, "ms_per_tick": 1e3 * took, "share_of_bandwidth": work.bytes / took / b.peaks.bytes,
        "share_of_roofline": roofline.floor(work, b.peaks, "bf16") / took, "GB": b.memory(), **graphs_of(engine),
    }
    del engine
    if b.tiny or rows in ALSO_PLAIN:
        found["ms_no_graphs"] = 1e3 * tick("torch")[0]
    return found


def _learn(b: Bench, config: Config) -> dict[str, Any]:
    """An update on groups of equal prompts. Counted are the operations that any learner needs, prompts read once."""
    B, n, prompt, new = (2, 4, 8, 8) if b.tiny else (16, 16, 128, 128)
    engine, learner = opened(b, config, torch.bfloat16)
    recipe, found = methods.recipe("grpo"), list[Group]()
    sample = b.seconds(lambda: found.extend(groups(engine, config, B, n, prompt, new, ragged=1)))
    batch = credited(found)
    update = median(b.seconds(lambda: learner.update(batch, recipe.loss, lr=1e-6)) for _ in range(4))
    load = b.seconds(lambda: asyncio.run(engine.load(learner.weights())))
    work = roofs.learning(config, roofs.Phase(B, n, prompt, new), "bf16", b.peaks)
    return {
        "tokens_per_s": int(batch.length.sum()) / update, "mfu": work["flops"] / update / b.peaks.flops["bf16"],
        "sample_s": sample, "update_s": update, "load_s": load, "GB": b.memory(),
    }


def rl(b: Bench) -> Iterator[Row]:
    """The RL step against TRL's GRPOTrainer: the same weights, prompts, reward and loss."""
    for name, config in b.models.items():
        if b.tiny or name != "1.5B":
            yield f"step {name}", lambda name=name, config=config: _step(b, name, config)


def contenders(b: Bench) -> list[step.Contender]:
    """A batch in four parts keeps TRL's activations in memory; isocost divides its own."""
    if not b.cuda:
        return [step.Contender("isocost", "isocost", {"dtype": "fp32", "kernels": "graphs"}),
                step.Contender("TRL", "trl", {"bf16": False, "parts": 2})]
    bf16: dict[str, Any] = {"bf16": True, "parts": 4}
    vllm = {**bf16, "use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3,
            "vllm_max_model_length": 512, "generation_kwargs": {"ignore_eos": True}}   # its folder names an end token
    return [step.Contender("isocost", "isocost", {"dtype": "bf16", "kernels": "graphs"}),
            step.Contender("TRL with vLLM", "trl", vllm), step.Contender("TRL", "trl", bf16)]


def _step(b: Bench, name: str, config: Config) -> dict[str, Any]:
    """Seconds of a step, with a Llama of these widths and a vocabulary of 64, whose tokenizer both sides can have."""
    c = config
    small = Config(VOCAB, c.hidden, c.layers, c.heads, c.kv_heads, c.head_dim, c.mlp, max_len=1024)
    task = Task("gpu", prompt=64, new=128, lr=1e-6, block=2, steps=8)
    if b.tiny:
        task = Task("toy", prompt=4, new=4, lr=1e-6, prompts=2, rollouts=4, block=1, steps=2)
    some, skipped, python = contenders(b), dict[str, str](), sys.executable
    try:
        python = step.trl_python()
    except Failed as e:
        skipped = {c.name: str(e) for c in some if c.side == "trl"}
    for c in some:
        if c.how.get("use_vllm") and c.name not in skipped and not _has(python, "vllm"):
            skipped[c.name] = f"{python} has no vllm: install it there, such as by `pip install 'trl[vllm]'`"
    some = [c for c in some if c.name not in skipped]
    found = step.race(some, random_folder(small, b.work, f"step-{name}"), task, 0, b.device.type, python, Options(
        threads=1 if b.tiny else os.cpu_count() or 1, limit=b.left / len(some), work=b.work,
    ))
    skipped |= {name: x["why"] for name, x in found.items() if "why" in x}
    steps = {name: [s for block in x["steps"][1:] for s in block] for name, x in found.items() if "why" not in x}
    seconds = {name: median(s["seconds"] for s in each) for name, each in steps.items()}
    ours = seconds.get("isocost")
    return {
        "s_per_step": seconds, "tokens_per_step": {k: median(s["tokens"] for s in each) for k, each in steps.items()},
        "times_as_fast_as": {k: v / ours for k, v in seconds.items() if k != "isocost"} if ours else {},
        **({"skipped": skipped} if skipped else {}), **({"versions": versions_of(python)} if len(steps) > 1 else {}),
    }


def _has(python: str, package: str) -> bool:
    code = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
    return subprocess.run([python, "-c", code]).returncode == 0


def runs(b: Bench) -> Iterator[Row]:
    """Runs of the built-in model."""
    yield "one run", lambda: _study(b, "one", 1)
    yield f"study of {2 if b.tiny else 30} runs", lambda: _study(b, "all", 2 if b.tiny else min(os.cpu_count() or 1, 8))
    yield "resume", lambda: _killed(b)


def _study(b: Bench, which: str, workers: int) -> dict[str, Any]:
    """Runs of a study, so many side by side on the device, until they have ended or the stage's time is over."""
    home = b.work / f"study-{which}"
    shutil.rmtree(home, ignore_errors=True)
    began = time.perf_counter()
    command = [sys.executable, "-m", "bench.gpu_study", str(home), b.device.type, which, str(workers)]
    one = subprocess.Popen([*command, *(["--tiny"] if b.tiny else [])], cwd=ROOT, start_new_session=True)
    try:
        failed = one.wait(b.left)
        cut = False
    except subprocess.TimeoutExpired:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        failed, cut = 0, True
    if failed:
        raise Failed(f"{' '.join(command[1:])} ended with {failed}")
    seconds = time.perf_counter() - began
    ends = [json.loads(p.read_text()) for p in home.glob("*/end.json")]
    rollouts = sum(e["bill"].get("train", {}).get("rollouts", 0) for e in ends)
    return {
        "side_by_side": workers, "ended": len(ends), "out_of_time": cut, "rollouts": rollouts,
        "runs_per_hour": 3600 * len(ends) / seconds, "rollouts_per_s": rollouts / seconds,
    }


def _command(b: Bench, out: Path, seed: int, rollouts: int) -> list[str]:
    return [
        sys.executable, "-c", "from isocost.cli import main; main()", "train", "grpo", "--data", "sums:level=1",
        "--device", b.device.type, "--budget", f"{rollouts}-rollouts", "--lr", "8e-5", "--seed", str(seed),
        "--out", str(out),
    ]


def _killed(b: Bench) -> dict[str, Any]:
    """A run killed twice by SIGKILL while it trains, and continued: its record beside one that was not killed."""
    budget = 1024 if b.tiny else 12288
    whole, parts = (b.work / f"{x}-{time.time_ns()}" for x in ("whole", "parts"))

    def run(out: Path) -> None:
        subprocess.run(_command(b, out, 3, budget), stdout=subprocess.DEVNULL, check=True, timeout=b.left)

    run(whole)
    lines = len((whole / "metrics.jsonl").read_text().splitlines())
    kills = 0
    for share in (0.3, 0.6):
        one, until = subprocess.Popen(_command(b, parts, 3, budget), stdout=subprocess.DEVNULL), time.time() + b.left
        while one.poll() is None:
            seen = parts / "metrics.jsonl"
            enough = seen.exists() and len(seen.read_text().splitlines()) >= share * lines
            if enough or time.time() > until:
                os.kill(one.pid, signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.002)
        one.wait()
    run(parts)

    def digest(run: Path, name: str) -> str:
        return hashlib.sha256((run / name).read_bytes()).hexdigest()

    ends = [json.loads((run / "end.json").read_text()) for run in (whole, parts)]
    return {
        "kills": kills, "equal": {x: digest(whole, x) == digest(parts, x) for x in ("metrics.jsonl", "journal.jsonl")},
        "rollouts": [sum(e["bill"][k]["rollouts"] for k in e["bill"] if k != "evaluation") for e in ends],
    }


STAGES: dict[str, tuple[Callable[[Bench], Iterator[Row]], float]] = {      # with the seconds that each may take
    "check": (check, 240.0), "speed": (speed, 540.0), "step": (rl, 420.0), "runs": (runs, 480.0),
}
