"""What a command's options ask for, with the defaults that depend on model, problems and machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from isocost.console import console
from isocost.problems.family import Sums, is_sums, listed
from isocost.problems.mix import parts
from isocost.setting import Setting

SMALL = 20_000_000  # bytes of weights below which one thread per run is the fastest use of the cores


def setting_of(asked: Mapping[str, Any]) -> Setting:
    """The setting that a command's options ask for. Threads default to one for small models, else every core."""
    fields = {
        k: asked[k]
        for k in (
            "model",
            "data",
            "verifier",
            "held_out",
            "held_out_data",
            "limit",
            "skip_broken",
            "system",
            "temperature",
            "top_p",
            "top_k",
            "samples",
            "device",
            "dtype",
            "kernels",
        )
    }
    threads = asked.get("threads") or (1 if is_small(fields["model"]) else os.cpu_count() or 1)
    return Setting(
        **fields, max_tokens=asked.get("max_tokens") or answer_room(fields["data"]), threads=threads
    )


def is_small(model: str) -> bool:
    """Whether one thread per run is the fastest use of the cores."""
    folder = Path(model)
    return model == "tiny" or (
        folder.is_dir() and sum(f.stat().st_size for f in folder.glob("*.safetensors")) < SMALL
    )


def answer_room(data: str) -> int:
    """Tokens an answer may take where nobody said: the built-in problems' own longest answer and its end, else 64."""
    specs = [part.spec for part in parts(data)]
    if not all(map(is_sums, specs)):
        return 64
    return 1 + max(len(str(p.meta["solution"])) for spec in specs for p in listed(Sums.of(spec)))


def workers_of(setting: Setting, asked: int | None) -> int:
    """Runs side by side: as many as their threads leave room for."""
    return asked or max(1, (os.cpu_count() or 1) // setting.threads)


def console_of(quiet: bool) -> Console:
    return console(quiet=quiet)
