"""ms-swift (4.0): `logging.jsonl` of a run's folder, one line per logging step and one per evaluation.

Its GRPO trainer is TRL's, and the columns are TRL's. A line's step is in "global_step/max_steps", such as "20/400"
(before version 3 in "global_step"), and its time since the start in "elapsed_time", such as "1h 2m 3s". What it prints
has the same lines as Python dictionaries, which `trl` reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import Settings
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import head, json_rows, metrics_file, metrics_of
from isocost.trainers.trl import HISTORY, stepped

TITLE = "ms-swift"
READS = "ms-swift logging.jsonl"
GIVES = "training and held-out reward, steps, epochs, learning rate, seconds, answer lengths"
LACKS = "n, B and seed; a second held-out half; the number of held-out problems"
PLACES = ("logging.jsonl",)
LINES = re.compile(r'\{.*"global_step(/max_steps)?"\s*:')
SETTINGS = Settings(model=("model",))     # the others are TRL's
LOGGED = replace(HISTORY, trainer="ms-swift", span="", seconds="elapsed_time")
UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def recognise(path: Path) -> bool:
    found = metrics_file(path, PLACES)
    return found is not None and bool(LINES.match(head(found).lstrip())) and '"reward' in head(found)


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found, name = metrics_of(path, "ms-swift writes it into its output folder", PLACES)
    lines, missing = json_rows(found)
    return logs_of("swift", found, [found], [_line(row) for row in lines], LOGGED, columns, missing=missing, name=name)


def _line(row: Row) -> Row:
    """A line with its step as a number, and its time in seconds."""
    parts = re.findall(r"(\d+)\s*([dhms])", str(row.get("elapsed_time", "")))
    seconds = {"elapsed_time": float(sum(int(x) * UNITS[unit] for x, unit in parts))} if parts else {}
    return {**stepped(row), **seconds}
