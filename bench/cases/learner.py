"""The learner by itself: tokens per second, and its share of the machine's measured matmul peak."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import torch

from bench import roofs, stats
from bench.models import random_folder, shape
from bench.options import Options
from bench.roofline import Peaks
from bench.roofs import Phase
from bench.worker import Failed, Worker
from isocost.local.decoder import Config

RL_STEP = Phase(16, 16, 8, 24)
SHAPES = (      # name, width, layers, phase
    ("RL step", 128, 4, RL_STEP),
    ("RL step, prompts of 256", 128, 4, Phase(16, 16, 256, 24)),
    ("256 wide", 256, 4, RL_STEP),
    ("512 wide", 512, 4, RL_STEP),
)
KINDS = tuple((dtype, kernels) for dtype in ("fp32", "bf16") for kernels in ("native", "torch"))


def learner(options: Options) -> dict[str, Any]:
    """Every shape, precision and kernel in turn; a floor and a share beside each."""
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    seen: dict[str, Any] = {}
    for device in ["cpu"] + (["cuda"] if torch.cuda.is_available() else []):
        machine, raw = roofs.Machine(options.threads, device), list[dict[str, Any]]()
        for name, width, layers, phase in SHAPES:
            config = shape(width, layers)
            found, why = _shape(name, config, phase, device, options)
            raw, missing = raw + found, missing + why
            machine.look()
        seen[device] = roofs.peaks_data(machine.peaks)
        rows += [_finished(row, machine.peaks, options) for row in raw]
    return {"rows": rows, "missing": sorted(set(missing)), "peaks": seen}


def _shape(
    name: str, config: Config, phase: Phase, device: str, options: Options
) -> tuple[list[dict[str, Any]], list[str]]:
    folder = random_folder(config, options.work, f"random-{config.hidden}x{config.layers}")
    live: dict[tuple[str, str], Worker] = {}
    missing: list[str] = []
    try:
        for dtype, kernels in KINDS:
            given = {"threads": options.threads, "dtype": dtype, "kernels": kernels, "device": device}
            worker = Worker(f"{dtype} {kernels}", sys.executable, "bench.own_parts", options.threads)
            live[dtype, kernels] = worker
            try:
                worker.ask("open_parts", folder=str(folder), **given)
                worker.ask("sample", **asdict(phase))
            except Failed as e:
                missing.append(str(e))
                live.pop((dtype, kernels)).close()
        took: dict[tuple[str, str], list[dict[str, float]]] = {kind: [] for kind in live}
        for turn in range(options.repeats + 1):
            for kind in list(live):
                try:
                    answer = live[kind].ask("learn")
                except Failed as e:
                    missing.append(f"{name}: {e}")
                    live.pop(kind).close()
                    continue
                if turn:
                    took[kind].append(answer)
        rows = [_row(name, config, phase, kind, took[kind], live[kind].peak_mb, device) for kind in live]
    finally:
        for worker in live.values():
            worker.close()
    return rows, missing


def _row(
    name: str, config: Config, phase: Phase, kind: tuple[str, str], took: list[dict[str, float]], peak_mb: float,
    device: str,
) -> dict[str, Any]:
    """`tokens` are logical: every row whole."""
    dtype, kernels = kind
    seconds = stats.spread([t["seconds"] for t in took])
    tokens = phase.rows * (phase.prompt + phase.new)
    return {
        "shape": name, "hidden": config.hidden, "layers": config.layers, **asdict(phase), "dtype": dtype,
        "kernels": kernels, "device": device, "seconds": seconds,
        "cpu": stats.spread([t["cpu_seconds"] for t in took])["median"], "peak_mb": peak_mb,
        "tokens": tokens, "tokens_per_second": tokens / seconds["median"],
    }


def _finished(row: dict[str, Any], peaks: Peaks, options: Options) -> dict[str, Any]:
    """A row with its shares: of the operations and bytes that the update cannot do without."""
    phase = Phase(row["groups"], row["n"], row["prompt"], row["new"])
    needs = roofs.learning(shape(row["hidden"], row["layers"]), phase, row["dtype"], peaks)
    seconds = row["seconds"]["median"]
    share = needs["flops"] / seconds / peaks.flops[row["dtype"]]
    rate = f"{row['tokens_per_second']:.0f} tokens/s, {share:.0%} of peak"
    options.say(f"learner {row['shape']} {row['dtype']} {row['kernels']}: {rate}")
    return {**row, **needs, "share": share, "of_floor": needs["floor"] / seconds}
