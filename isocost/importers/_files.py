"""Plain text logs: JSON, JSON lines, CSV. A broken file is a UserError; a torn last line is named and not read."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.importers import Row


def metrics_file(path: Path, below: tuple[str, ...] = ("metrics.jsonl",)) -> Path | None:
    """The metrics of a run's folder, at the first of these places that there is; or a JSON-lines file as it is."""
    if path.is_file():
        return path if path.suffix == ".jsonl" else None
    return next((p for p in (path / name for name in below) if p.is_file()), None)


def json_of(path: Path) -> Any:
    """A JSON document. Raises UserError where it is not whole."""
    try:
        return json.loads(_text(path))
    except json.JSONDecodeError as e:
        raise UserError(f"{path} is not whole JSON (line {e.lineno}): {e.msg}") from None


def json_rows(path: Path) -> tuple[list[Row], list[str]]:
    """(objects, what was left out) of a JSON-lines file. Raises UserError for a broken line that is not the last."""
    rows: list[Row] = []
    lines = [(i, x) for i, x in enumerate(_text(path).split("\n"), 1) if x.strip()]
    for i, line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as e:
            if i == lines[-1][0]:
                return rows, [f"the last line of {path.name} is torn and left out"]
            raise UserError(f"{path}, line {i}: not JSON: {e.msg}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {i}: a {type(row).__name__}, expected an object")
        rows.append(row)
    return rows, []


def csv_rows(path: Path, skip: int = 0) -> tuple[list[Row], list[str]]:
    """(rows, what was left out) of a CSV file with a header, cells as numbers where they are. `skip` lines before it.

    Raises UserError for a row that is longer or shorter than the header, unless it is the last.
    """
    reader = csv.reader(io.StringIO("\n".join(_text(path).split("\n")[skip:])))
    try:
        every = [row for row in reader if row]
    except csv.Error as e:
        raise UserError(f"{path} is not CSV: {e}") from None
    if not every:
        raise UserError(f"{path} is empty")
    rows: list[Row] = []
    head = [name.strip() for name in every[0]]
    for i, cells in enumerate(every[1:], 2 + skip):
        if len(cells) != len(head):
            if i == len(every) + skip:
                return rows, [f"the last line of {path.name} is torn and left out"]
            raise UserError(f"{path}, line {i}: {len(cells)} cells where the header has {len(head)}")
        rows.append({k: cell(v) for k, v in zip(head, cells, strict=True)})
    return rows, []


def cell(text: str) -> Any:
    """A CSV cell as a number, as nothing where it is empty, or as the text it is."""
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text


def number(x: Any) -> float | None:
    """A finite number, or None for anything else."""
    if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x):
        return None
    return float(x)


def whole(x: Any) -> int | None:
    """A whole number, from a number or its spelling; None for anything else."""
    value = number(cell(x) if isinstance(x, str) else x)
    return int(value) if value is not None and value == int(value) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text") from None
