"""Plain text logs: JSON, JSON lines, CSV. A broken file is a UserError; an incomplete last line is left out."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.trainers.reading.logs import Empty, Row

HEAD = 65_536  # bytes of a file that are read to recognise it
_CUT = re.compile(r"[0-9](?:\.|[eE][+-]?0?)$")  # how a number ends that was cut while it was written: 0. or 1e-0


def head(path: Path, size: int = HEAD) -> str:
    """The first `size` bytes of a file as text; bytes that are not UTF-8 are replaced."""
    with path.open("rb") as f:
        return f.read(size).decode("utf-8-sig", "replace")


def metrics_file(path: Path, below: tuple[str, ...] = ("metrics.jsonl",)) -> Path | None:
    """The metrics of a run: the first of these files in its folder, or the file that `path` is, under any name."""
    if path.is_file():
        return path
    return next((p for p in (path / name for name in below) if p.is_file()), None)


def metrics_of(path: Path, who: str, below: tuple[str, ...] = ("metrics.jsonl",)) -> tuple[Path, str | None]:
    """The `metrics_file`, and its run's name where it has its usual one; without it UserError says `who` writes it."""
    found = metrics_file(path, below)
    if found is None:
        raise UserError(f"{path} holds no {below[0]}; {who}")
    return found, found.parent.resolve().name if found.name == below[0] else None


def json_table(path: Path) -> tuple[list[Row], list[str]]:
    """(objects, what was left out) of a JSON list or JSON lines. Raises UserError where the file is neither."""
    if not head(path).lstrip().startswith("["):
        return json_rows(path)
    found = json_of(path)
    wrong = next((x for x in found if not isinstance(x, dict)), None)
    if wrong is not None:
        raise UserError(f"{path}: expected a list of objects, found a {type(wrong).__name__} in it")
    return found, []


def json_of(path: Path) -> Any:
    """A JSON document. Raises UserError if it is not valid."""
    try:
        return json.loads(_text(path))
    except json.JSONDecodeError as e:
        raise UserError(f"{path} is not whole JSON (line {e.lineno}): {e.msg}") from None
    except (ValueError, RecursionError) as e:       # an integer of too many digits; nested too deeply
        raise UserError(f"{path} cannot be read as JSON: {e}") from None


def json_rows(path: Path) -> tuple[list[Row], list[str]]:
    """(objects, what was left out) of a JSON-lines file. Raises UserError for a broken line that is not the last."""
    rows: list[Row] = []
    lines = [(i, x) for i, x in enumerate(_text(path).split("\n"), 1) if x.strip()]
    for i, line in lines:
        try:
            row = json.loads(line)
        except json.JSONDecodeError as e:
            if i == lines[-1][0]:
                return rows, [f"the last line of {path.name} is incomplete and left out"]
            raise UserError(f"{path}, line {i}: not JSON: {e.msg}") from None
        except (ValueError, RecursionError) as e:
            raise UserError(f"{path}, line {i}: not JSON that can be read: {e}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {i}: a {type(row).__name__}, expected an object")
        rows.append(row)
    return rows, []


def csv_rows(path: Path, skip: int = 0) -> tuple[list[Row], list[str]]:
    """(rows, what was left out) of a CSV file with a header, cells as numbers where they are. `skip` lines before it;
    a column without a name, such as pandas' index, is not read.

    Raises UserError for a row that is longer or shorter than the header, unless it is the last; for a header alone,
    with a name twice, or with another separator than a comma.
    """
    text = "\n".join(_text(path).split("\n")[skip:])
    reader = csv.reader(io.StringIO(text))
    try:
        lines = [(reader.line_num + skip, row) for row in reader if row]
    except csv.Error as e:
        raise UserError(f"{path} is not CSV: {e}") from None
    every = [row for _, row in lines]
    if not every:
        raise Empty(f"{path} is empty")
    rows: list[Row] = []
    head = [name.strip() for name in every[0]]
    other = next((mark for mark in (";", "\t") if len(head) == 1 and mark in head[0]), None)
    if other is not None:
        raise UserError(f"{path}: its cells are separated by {other!r}; write it with commas, and points in numbers")
    twice = next((name for name in head if name and head.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{path} has the column {twice!r} twice; rename or remove the wrong one")
    if len(every) == 1:
        raise Empty(f"{path} holds a header ({', '.join(head)}) and no line below it")
    for i, cells in lines[1:]:
        last = i == lines[-1][0]
        if len(cells) != len(head) or (last and not text.endswith("\n") and _CUT.search(cells[-1])):
            if last:
                return rows, [f"the last line of {path.name} is incomplete and left out"]
            raise UserError(f"{path}, line {i}: {len(cells)} cells where the header has {len(head)}")
        rows.append({k: cell(v) for k, v in zip(head, cells, strict=True) if k})
    return rows, []


def cell(text: str) -> Any:
    """A CSV cell as a number, None if it is empty, else its text."""
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return text


def unread(rows: Sequence[Row], columns: Iterable[str | None]) -> list[str]:
    """How many cells of these columns are neither empty nor finite numbers, and so left out: for the list `missing`."""
    out = []
    for column in dict.fromkeys(c for c in columns if c):
        cells = [row[column] for row in rows if row.get(column) not in (None, "")]
        lost = sum(number(x) is None for x in cells)
        if lost:
            out.append(f"{column} in {lost} of {len(cells)} lines: NaN, infinite or text, and left out")
    return out


def collapsed(rows: Sequence[Row], column: str) -> bool:
    """Whether a column with numbers is NaN or infinite to its end, for longer than any earlier gap."""
    cells = [x for x in (_float(row.get(column)) for row in rows) if x is not None]
    gaps = [len(list(own)) if lost else 0 for lost, own in groupby(cells, key=lambda x: not math.isfinite(x))]
    return len(gaps) > 1 and gaps[-1] > max(gaps[:-1])


def _float(x: Any) -> float | None:
    """A number, including NaN and infinities, from a number or its text; None for anything else."""
    if isinstance(x, str):
        x = cell(x)
    if isinstance(x, bool) or not isinstance(x, int | float):
        return None
    try:
        return float(x)
    except OverflowError:       # an integer beyond all floats
        return math.inf if x > 0 else -math.inf


def number(x: Any) -> float | None:
    """A finite number, or None for anything else."""
    value = None if isinstance(x, str) else _float(x)
    return value if value is not None and math.isfinite(value) else None


def whole(x: Any) -> int | None:
    """An integer, from a number or its text; None for anything else."""
    value = number(cell(x) if isinstance(x, str) else x)
    return int(value) if value is not None and value == int(value) else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")  # Excel begins its CSV with a byte-order mark
    except UnicodeDecodeError:
        raise UserError(f"{path} is not text in UTF-8: save it in that encoding") from None
