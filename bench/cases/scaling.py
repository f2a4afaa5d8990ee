"""Cost against batch, length, width and group size, with what the roofline allows beside each point."""

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

POINTS: tuple[tuple[str, int, int, Phase], ...] = (      # axis, its value, width, phase
    *(("batch", b, 128, Phase(b, 1, 8, 24)) for b in (1, 4, 16, 64, 256, 512)),
    *(("length", t, 128, Phase(16, 4, 8, t)) for t in (8, 32, 128, 512)),
    *(("width", w, w, Phase(16, 4, 8, 24)) for w in (64, 128, 256, 512, 1024)),
    *(("group size", n, 128, Phase(256 // n, n, 64, 24)) for n in (1, 2, 4, 16, 64)),
)


def scaling(options: Options) -> dict[str, Any]:
    """The default kernels (native where they are available), in both precisions."""
    rows: list[dict[str, Any]] = []
    missing: list[str] = []
    seen: dict[str, Any] = {}
    for device in ["cpu"] + (["cuda"] if torch.cuda.is_available() else []):
        machine, raw = roofs.Machine(options.threads, device), list[dict[str, Any]]()
        for dtype in ("fp32", "bf16"):
            for width in sorted({w for _, _, w, _ in POINTS}):
                found, why = _width(width, dtype, device, options)
                raw, missing = raw + found, missing + why
                machine.look()
        seen[device] = roofs.peaks_data(machine.peaks)
        rows += [_finished(row, machine.peaks) for row in raw]
    return {"rows": rows, "missing": missing, "peaks": seen}


def _width(width: int, dtype: str, device: str, options: Options) -> tuple[list[dict[str, Any]], list[str]]:
    """All points of one width in one process, with native kernels or, where there are none, torch's."""
    folder, why = random_folder(shape(width), options.work, f"random-{width}x4"), ""
    for kernels in ("native", "torch"):
        with Worker(f"{width} wide {dtype}", sys.executable, "bench.own_parts", options.threads) as worker:
            given = {"threads": options.threads, "dtype": dtype, "kernels": kernels, "device": device}
            try:
                worker.ask("open_parts", folder=str(folder), **given)
                return [_point(worker, p, dtype, kernels, device, options) for p in POINTS if p[2] == width], []
            except Failed as e:
                why = str(e)
    return [], [why]


def _point(
    worker: Worker, point: tuple[str, int, int, Phase], dtype: str, kernels: str, device: str, options: Options
) -> dict[str, Any]:
    axis, value, width, phase = point
    took: dict[str, list[float]] = {"sample": [], "learn": []}
    spent = 0.0
    for turn in range(options.repeats + 1):
        for what in took:
            seconds = worker.ask(what, **(asdict(phase) if what == "sample" else {}))["seconds"]
            spent += seconds
            if turn:
                took[what].append(seconds)
        if turn and spent > options.budget:
            break
    tokens, seconds = phase.rows * phase.new, {what: stats.spread(x) for what, x in took.items()}
    each = (f"{what} {1e6 * x['median'] / tokens:.1f}" for what, x in seconds.items())
    options.say(f"{axis} {value} {dtype} {kernels}: us/token: {', '.join(each)}")
    return {
        "axis": axis, "value": value, "hidden": width, **asdict(phase), "dtype": dtype, "kernels": kernels,
        "device": device, "tokens": tokens, "peak_mb": worker.peak_mb, "seconds": seconds,
    }


def _finished(row: dict[str, Any], peaks: Peaks) -> dict[str, Any]:
    """A point with its floors, by the highest peaks that the machine showed."""
    phase, config = Phase(row["groups"], row["n"], row["prompt"], row["new"]), shape(row["hidden"])
    for what, count in (("sample", roofs.sampling), ("learn", roofs.learning)):
        needs, seconds = count(config, phase, row["dtype"], peaks), row["seconds"][what]
        row[what] = {
            "us_per_token": 1e6 * seconds["median"] / row["tokens"],
            "floor_us_per_token": 1e6 * needs["floor"] / row["tokens"],
            "seconds": seconds, **needs, "of_floor": needs["floor"] / seconds["median"],
        }
    return {k: v for k, v in row.items() if k != "seconds"}
