"""Plain JSON lines, or a JSON list of objects: its keys are named with --map, or have the names that `csv` knows.

An object inside an object is read by its path: {"metrics": {"reward": 0.5}} has the column metrics.reward.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from isocost.errors import UserError
from isocost.trainers.csv import plain
from isocost.trainers.reading.logs import Log
from isocost.trainers.reading.names import flattened
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import head, json_table

TITLE = "JSON lines"
READS = "JSON lines with a column map"
GIVES = "what its lines hold"
LACKS = "what they do not"


def recognise(path: Path) -> bool:
    if not path.is_file():
        return False
    first = head(path).lstrip().lstrip("[").lstrip().split("\n", 1)[0].rstrip(" ,\r")
    if not first.startswith("{"):
        return False
    try:
        row = json.loads(first)
    except json.JSONDecodeError:
        return False
    return isinstance(row, dict) and "step" in row and bool(row.keys() & {"reward", "held_out"})


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    if path.is_dir():
        raise UserError(f"{path} is a folder, and no file in it has lines with step and reward or held_out: name its "
                        "files")
    found, missing = json_table(path)
    rows = [flattened(row) for row in found]
    own = {k: k for k in ("rollouts",) if rows and k in rows[0]}
    uncounted = "the lines count steps, and C is steps x n x B"
    return logs_of("jsonl", path, [path], rows, plain(rows), {**own, **columns}, missing=missing, uncounted=uncounted)
