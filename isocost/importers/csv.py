"""Plain CSV with a header, whoever wrote it: columns are named with --map, or called as this program calls them.

`step` counts updates from 1, `reward` is training reward, `held_out` held-out reward, `rollouts` those begun so far,
before any filter, `seconds` those since the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from isocost.errors import UserError
from isocost.importers import Log
from isocost.importers._files import csv_rows
from isocost.importers._names import Names, log_of

TITLE = "CSV with a column map"
GIVES = "what its columns hold"
LACKS = "what they do not"
PLAIN = Names("CSV", "step", (r"reward",), (r"held_out",), lr="lr", epoch="epoch", seconds="seconds", length="length")


def recognise(path: Path) -> bool:
    if not (path.is_file() and path.suffix == ".csv"):
        return False
    with path.open("rb") as f:
        names = {c.strip().strip('"') for c in f.readline().decode("utf-8-sig", "replace").split(",")}
    return "step" in names and bool(names & {"reward", "held_out"})


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, and no .csv in it has the columns step and reward or held_out: name its files"
        )
    rows, missing = csv_rows(path)
    there = set(rows[0]) if rows else set()
    own = {k: k for k in ("rollouts",) if k in there}
    asked = {**own, **columns}
    uncounted = "the table counts steps, and C is steps x n x B"
    return [log_of("csv", path, [path], rows, PLAIN, asked, missing=missing, uncounted=uncounted)]
