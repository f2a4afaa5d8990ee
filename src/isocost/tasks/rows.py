"""The rows of a .jsonl or .parquet file, each with its place; a row that cannot be read is its error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from isocost.errors import UserError, foreign

LONGEST, DEEPEST = 2**26, 100                 # bytes of a row of JSON, and lists in lists
BATCH, GROUP = 1024, 2**28                    # of Parquet: rows and bytes that are decoded together
UNPACKED = 1000                               # bytes decoded per byte of a Parquet file; about ten for text
ROOM, COUNT = 2**28, 2**24                    # bytes, and rows or values, below which a Parquet file is never rejected
ABSURD = "such a file is broken or made to fill the memory; write it again, or as .jsonl"
Row = tuple[str, Any]                         # its place ("line 3"), and what was read there


def rows_of(path: Path, what: str) -> Iterator[Row]:
    """The rows of a .jsonl or .parquet file, each with its place, or its error. Raises UserError for another kind."""
    if path.suffix == ".parquet":
        return _parquet(path)
    if path.suffix in (".jsonl", ".ndjson"):
        return _lines(path)
    how = _CONVERT.get(path.suffix)
    way = f"; convert it: python -c {how.format(path)!r} > {path.with_suffix('.jsonl')}" if how else ""
    raise UserError(f"{path}: {what} are read from .jsonl or .parquet files, not {path.suffix or 'others'}{way}")


_CONVERT = {        # Python that prints a file as JSON lines
    ".json": "import json; [print(json.dumps(row)) for row in json.load(open('{}'))]",
    ".csv": "import csv, json; [print(json.dumps(row)) for row in csv.DictReader(open('{}'))]",
    ".tsv": "import csv, json; [print(json.dumps(row)) for row in csv.DictReader(open('{}'), delimiter='\t')]",
}


def numbered(noun: str, items: Iterator[Any]) -> Iterator[Row]:
    for i, item in enumerate(items, 1):
        yield f"{noun} {i}", item


def _lines(path: Path) -> Iterator[Row]:
    """Rows of a JSON-lines file, or their errors; only the beginning of a line that is too long is kept."""
    with path.open("rb") as file:
        for i, raw in enumerate(iter(partial(file.readline, LONGEST + 1), b""), 1):
            if len(raw) > LONGEST:
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LONGEST)
                yield f"line {i}", ValueError(f"longer than {LONGEST:,} bytes, the limit for a problem")
                continue
            if i == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
            if raw.strip():
                yield f"line {i}", _json(raw)


def _json(raw: bytes) -> Any:
    try:
        row = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
        if b"\\ud" in raw.lower():
            json.dumps(row, ensure_ascii=False).encode("utf-8")
        return ValueError(f"nested more than {DEEPEST} deep") if _deep(raw) else row
    except UnicodeEncodeError:
        return ValueError("text with half of a surrogate pair (\\ud800 to \\udfff), which is not a character")
    except UnicodeDecodeError as e:
        return ValueError(f"not UTF-8 text (byte {e.start + 1})")
    except json.JSONDecodeError as e:
        return ValueError(f"not JSON: {e.msg} at character {e.pos + 1}")
    except ValueError as e:
        return ValueError(f"not JSON: {e}")
    except RecursionError:
        return ValueError("not JSON that can be read: nested too deeply")


def _deep(raw: bytes) -> bool:
    """Whether JSON nests deeper than `DEEPEST`: what writes a row again, deeper in the stack, would raise."""
    if raw.count(b"[") + raw.count(b"{") <= DEEPEST:
        return False
    depth = deepest = 0
    for found in re.findall(rb'"(?:[^"\\]|\\.)*"|[\[{\]}]', raw, re.DOTALL):
        depth += (found in (b"[", b"{")) - (found in (b"]", b"}"))
        deepest = max(deepest, depth)
    return deepest > DEEPEST


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")


def _parquet(path: Path) -> Iterator[Row]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as e:
        raise UserError("Parquet files need pyarrow: pip install pyarrow") from e
    with foreign(path, "write it again, or as .jsonl"):
        file = parquet.ParquetFile(path, page_checksum_verification=True)
    return numbered("row", _rows(path, file, _batch(path, file.metadata)))


def _rows(path: Path, file: Any, batch: int) -> Iterator[Any]:
    """The rows of a Parquet file. Raises UserError if a page is broken, or the rows decode to an implausible size."""
    batches, decoded, most = file.iter_batches(batch), 0, UNPACKED * path.stat().st_size + GROUP
    while True:
        with foreign(path, "a page of it is broken: write it again, or as .jsonl"):
            rows = next(batches, None)
            columns = [_spelled_out(c) for c in rows.columns] if rows is not None else []
        if rows is None:
            return
        decoded += sum(c.nbytes for c in columns)
        if decoded > most:
            raise UserError(f"{path} of {path.stat().st_size:,} bytes decodes to more than {most:,}: {ABSURD}")
        values = [c.to_pylist() for c in columns]
        yield from (dict(zip(rows.schema.names, row, strict=True)) for row in zip(*values, strict=True))


def _spelled_out(column: Any) -> Any:
    """A column with a value for every row instead of an index into a dictionary, so that its size is known."""
    return column.dictionary_decode() if hasattr(column, "dictionary_decode") else column


def _batch(path: Path, about: Any) -> int:
    """How many rows of a Parquet file can be decoded together within `GROUP` bytes, by what its footer says.

    Raises UserError for a footer that promises more than any file of this size holds: a few bytes of it can stand for
    gigabytes of equal values.
    """
    size, largest = path.stat().st_size, 1
    if about.num_rows > size + COUNT:
        raise UserError(f"{path} declares {about.num_rows:,} rows in {size:,} bytes: {ABSURD}")
    for group in map(about.row_group, range(about.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            small, large = column.total_compressed_size, column.total_uncompressed_size
            name = f"its column {column.path_in_schema!r}"
            if large > UNPACKED * small + ROOM:
                raise UserError(f"{path}: {name} unpacks from {small:,} bytes to {large:,}: {ABSURD}")
            if column.num_values > UNPACKED * size + COUNT:
                raise UserError(f"{path}: {name} has {column.num_values:,} values in {size:,} bytes: {ABSURD}")
            largest = max(largest, large)      # a dictionary may hold one value of all of it, and every row be that
    return max(1, min(BATCH, GROUP // largest))
