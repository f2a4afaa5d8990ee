"""verl (0.7): the file logger's JSON lines, {"step": ..., "data": {...}}, or the console's `step:1 - key:value` lines.

trainer.logger=[console,file] writes PROJECT/EXPERIMENT.jsonl (verl/utils/tracking.py). Steps count from 1; step 0 is
the evaluation before training. Neither holds the configuration: n, B and seed are given, or read from a Hydra
`.hydra/config.yaml` by whoever calls. With filtered groups (DAPO) a step begins train/num_gen_batches
batches of data.gen_batch_size problems, which no log holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from isocost.errors import UserError
from isocost.importers import Log, Row
from isocost.importers._files import cell, json_rows
from isocost.importers._names import VERL, log_of

TITLE = "verl file or console log"
GIVES = "training and held-out reward, steps, learning rate, seconds, answer lengths"
LACKS = "n, B and seed; rollouts before filtering; a second held-out half"
BATCHES = "train/num_gen_batches"
LINE = re.compile(r"(?:^|\s)step:(\d+) - (\S+:.*)$")


def recognise(path: Path) -> bool:
    return path.is_file() and (_is_lines(path) or _is_console(path))


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    if not path.is_file():
        raise UserError(f"{path} is a folder; name verl's .jsonl of one run, or its console output")
    rows, missing = _lines(path) if _is_lines(path) else (_console(path), [])
    uncounted = (
        f"{BATCHES} counts batches of a size that the log does not hold, so more were begun than C = steps x n x B"
        if any(BATCHES in row for row in rows)
        else "if groups were filtered (DAPO), more were begun than steps x n x B"
    )
    return [log_of("verl", path, [path], rows, VERL, columns, missing=missing, uncounted=uncounted)]


def _is_lines(path: Path) -> bool:
    head = _head(path)
    return head.startswith('{"step":') and '"data":' in head


def _is_console(path: Path) -> bool:
    return any(LINE.search(line) for line in _head(path, 200_000).splitlines())


def _head(path: Path, size: int = 200) -> str:
    with path.open("rb") as f:
        return f.read(size).decode("utf-8", "replace")


def _lines(path: Path) -> tuple[list[Row], list[str]]:
    rows, left = json_rows(path)
    return [{"step": row.get("step"), **(row.get("data") or {})} for row in rows], left


def _console(path: Path) -> list[Row]:
    """Every `step:` line; values are plain numbers, or numpy's spelling of one."""
    out: list[Row] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        found = LINE.search(line)
        if not found:
            continue
        row: Row = {"step": float(found[1])}
        for part in found[2].split(" - "):
            key, _, value = part.rpartition(":")
            row[key] = cell(re.sub(r"^np\.\w+\((.*)\)$", r"\1", value.strip()))
        out.append(row)
    return out
