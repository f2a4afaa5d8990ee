"""Decoding against Hugging Face `generate`: equal prompts, equal numbers of new tokens, no end token."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench import roofs, stats
from bench.models import random_folder, shape, smollm2_folder
from bench.options import Options
from bench.roofline import Peaks
from bench.roofs import Phase
from bench.worker import ROOT, Failed, Worker
from isocost.errors import UserError
from isocost.local.decoder import Config
from isocost.local.models import load
from isocost.local.weights import load_folder

WARM = 4        # tokens written before the clock starts
JUDGED = 64     # rows whose recorded log-probs are compared with a float32 forward pass


@dataclass(frozen=True)
class Subject:
    """A model and what it is asked to write."""

    name: str
    folder: Path
    prompt: int
    new: int
    batches: tuple[int, ...]
    dtypes: tuple[str, ...] = ("fp32", "bf16")
    device: str = "cpu"


OWN = {f"isocost, {k}": {"kernels": k} for k in ("native", "torch")}
HUB = {f"generate, {c} cache": {"cache": c} for c in ("dynamic", "static")}


def subjects(work: Path) -> Iterator[Subject]:
    """The tiny model, SmolLM2 where its package is installed, and random shapes of up to 1.5B on a GPU."""
    yield Subject("tiny 0.86M", random_folder(shape(), work, "tiny-decode"), 32, 64, (1, 16, 64, 256))
    yield Subject("SmolLM2-135M", smollm2_folder(work), 16, 32, (1, 16, 64, 256))
    if torch.cuda.is_available():
        for name, hidden, layers in (("0.1B", 768, 12), ("0.5B", 1280, 24), ("1.5B", 2048, 28)):
            folder = random_folder(shape(hidden, layers, vocab=32_000), work, f"random-{name}")
            yield Subject(f"random {name}", folder, 64, 128, (1, 16, 64, 256), ("bf16",), "cuda")


def decode(options: Options) -> dict[str, Any]:
    """One row per model, precision and batch; and how far SmolLM2's recorded log-probs are from float32."""
    rows: list[dict[str, Any]] = []
    logps: list[dict[str, Any]] = []
    missing: list[str] = []
    try:
        for subject in subjects(options.work):
            machine = roofs.Machine(options.threads, subject.device)
            for dtype in subject.dtypes:
                found, judged, why = _compare(subject, dtype, options)
                machine.look()
                config = load_folder(subject.folder).config
                rows += [_finished(row, config, machine.peaks) for row in found]
                logps, missing = logps + judged, missing + why
    except UserError as e:
        missing.append(f"SmolLM2-135M: {e}")
    return {"rows": rows, "logp": logps, "missing": missing, "gpu_rows": torch.cuda.is_available()}


def prompts(subject: Subject, vocab: int) -> list[list[int]]:
    """Stretches of the licence for a model of words; random tokens for one of random weights."""
    if subject.name.startswith("SmolLM2"):
        words = load("smollm2").text.encode((ROOT / "LICENSE").read_text())
        starts = range(0, 7 * max(subject.batches), 7)
        return [words[a : a + subject.prompt] for a in starts]
    rng = random.Random(0)
    return [[rng.randrange(1, vocab) for _ in range(subject.prompt)] for _ in range(max(subject.batches))]


def _compare(subject: Subject, dtype: str, options: Options) -> tuple[list, list, list]:
    config = load_folder(subject.folder).config
    asked = prompts(subject, config.vocab)
    given = {
        "folder": str(subject.folder), "prompts": asked, "threads": options.threads, "dtype": dtype,
        "device": subject.device,
    }
    live: dict[str, Worker] = {}
    missing: list[str] = []
    try:
        for name, how in (OWN | HUB).items():
            live[name] = Worker(name, sys.executable, "bench.own" if name in OWN else "bench.hf_side", options.threads)
            try:
                live[name].ask("open_decoding", **given, **how)
            except Failed as e:
                live.pop(name).close()
                missing.append(f"{subject.name} {dtype}: {e}")
        rows: list[dict[str, Any]] = []
        for batch in subject.batches:
            if (turn := _expected(rows, batch)) > options.budget:
                missing.append(f"{subject.name} {dtype} batch {batch}: one turn would take about {turn:.0f} s, above "
                               f"the {options.budget:.0f} s that --budget allows")
                continue
            try:
                rows.append(_row(subject, dtype, batch, live, options))
            except Failed as e:
                missing.append(f"{subject.name} {dtype} batch {batch}: {e}")
                live = {n: w for n, w in live.items() if w.alive()}
        judged = _judged(subject, dtype, given, live, options) if subject.name.startswith("SmolLM2") else []
    finally:
        for worker in live.values():
            worker.close()
    return rows, judged, missing


def _expected(rows: list[dict[str, Any]], batch: int) -> float:
    """Seconds of one turn of all contenders at this batch, from the batch before, if rows cost what they did there."""
    if not rows:
        return 0.0
    last = rows[-1]
    return sum(batch * last["new"] / rate for rate in last["tokens_per_second"].values())


def _row(subject: Subject, dtype: str, batch: int, live: dict[str, Worker], options: Options) -> dict[str, Any]:
    """Contenders in turn, until the repeats are done or the point's budget is spent; a few tokens warm each up."""
    seconds: dict[str, list[float]] = {name: [] for name in live}
    cpu: dict[str, list[float]] = {name: [] for name in live}
    spent = 0.0
    for worker in live.values():
        worker.ask("decode", batch=batch, new=WARM)
    for _ in range(options.repeats):
        for name, worker in live.items():
            took = worker.ask("decode", batch=batch, new=subject.new)
            if took["tokens"] != batch * subject.new:
                raise Failed(f"{name} wrote {took['tokens']} tokens where {batch * subject.new} were asked")
            spent += took["seconds"]
            seconds[name].append(took["seconds"])
            cpu[name].append(took["cpu_seconds"])
        if spent > options.budget:
            break
    tokens = batch * subject.new
    out = {
        "model": subject.name, "dtype": dtype, "device": subject.device, "batch": batch, "prompt": subject.prompt,
        "new": subject.new, "turns": len(next(iter(seconds.values()), [])),
        "tokens_per_second": {n: tokens / stats.spread(s)["median"] for n, s in seconds.items()},
        "cpu_seconds": {n: stats.spread(c)["median"] for n, c in cpu.items()},
        "peak_mb": {n: w.peak_mb for n, w in live.items()},
    }
    hub = min((n for n in seconds if n in HUB), key=lambda n: stats.spread(seconds[n])["median"], default=None)
    if hub:
        out |= {"best_hub": hub, "ratio": {n: stats.paired(seconds[hub], seconds[n]) for n in seconds if n in OWN}}
    rates = {n: f"{v:.0f}" for n, v in out["tokens_per_second"].items()}
    options.say(f"{subject.name} {dtype} batch {batch}: tokens/s {rates}")
    return out


def _finished(row: dict[str, Any], config: Config, peaks: Peaks) -> dict[str, Any]:
    """A row with what the roofline allows, and the share of memory bandwidth that the fastest of ours moves at."""
    phase = Phase(row["batch"], 1, row["prompt"], row["new"])
    needs = roofs.sampling(config, phase, row["dtype"], peaks)
    fastest = max([v for n, v in row["tokens_per_second"].items() if n in OWN], default=0.0)
    tokens = row["batch"] * row["new"]
    return {
        **row, "bound": needs["bound"], "floor_tokens_per_second": tokens / needs["floor"],
        "share_of_bandwidth": needs["bytes"] * fastest / tokens / peaks.bandwidth(needs["bytes"] / row["new"]),
    }


def _judged(subject: Subject, dtype: str, given: dict, live: dict[str, Worker], options: Options) -> list[dict]:
    """How far the log-probs recorded while decoding are from Hugging Face's own forward pass in float32."""
    out = []
    with Worker("judge", sys.executable, "bench.hf_side", options.threads) as judge:
        judge.ask("open_decoding", **{**given, "dtype": "fp32"}, cache="dynamic")
        for name in (n for n in live if n in OWN):
            live[name].ask("decode", batch=min(JUDGED, max(subject.batches)), new=subject.new)
            written = live[name].ask("written")
            right = np.array(judge.ask("judge", tokens=written["tokens"])["logp"])
            out.append(_gap(subject, dtype, name, np.array(written["logp"]), right))
        if dtype != "fp32" and out:
            judge.ask("open_decoding", **given, cache="dynamic")
            same = np.array(judge.ask("judge", tokens=written["tokens"])["logp"])
            out.append(_gap(subject, dtype, "Hugging Face's forward pass", same, right))
    for x in out:
        options.say(f"{x['name']} {dtype}: log-probs off float32 by {x['mean']:.2g}, 99 % by {x['p99']:.2g}")
    return out


def _gap(subject: Subject, dtype: str, name: str, said: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """`mean`, `p99` and `max` are of sizes; `bias` is the mean with its sign."""
    gap = np.abs(said - right)
    return {
        "model": subject.name, "dtype": dtype, "name": name, "tokens": int(gap.size),
        "bias": float((said - right).mean()), "mean": float(gap.mean()),
        "p99": float(np.quantile(gap, 0.99)), "max": float(gap.max()),
    }
