"""Plain CSV with a header: its columns are named with --map, or have this program's names.

`step` counts updates from 1, `reward` is training reward, `held_out` or `eval_reward` held-out reward, `rollouts` those
started so far, before any filter, `seconds` those since the start, `lr` or `learning_rate` the learning rate. With
--map seed=COLUMN (also n, B, run) the rows of one table are separated into runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from isocost.errors import UserError
from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import Names
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import csv_rows

TITLE = "CSV"
READS = "CSV with a column map"
GIVES = "what its columns hold"
LACKS = "what they do not"
PLAIN = Names(
    "plain",
    "step",
    (r"reward",),
    (r"held_out", r"eval_reward"),
    lr="lr",
    epoch="epoch",
    seconds="seconds",
    length="length",
)


def recognise(path: Path) -> bool:
    if not (path.is_file() and path.suffix == ".csv"):
        return False
    with path.open("rb") as f:
        names = {c.strip().strip('"') for c in f.readline().decode("utf-8-sig", "replace").split(",")}
    return "step" in names and bool(names & {"reward", "held_out", "eval_reward"})


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    if path.is_dir():
        raise UserError(
            f"{path} is a folder, and no .csv in it has the columns step and reward or held_out: name its files"
        )
    rows, missing = csv_rows(path)
    own = {k: k for k in ("rollouts",) if rows and k in rows[0]}
    asked = {**own, **columns}
    uncounted = "the table counts steps, and C is steps x n x B"
    return logs_of("csv", path, [path], rows, plain(rows), asked, missing=missing, uncounted=uncounted)


def plain(rows: Sequence[Row]) -> Names:
    """The plain names of a table, its learning rate under either of two names."""
    named = any("lr" in row for row in rows) or not any("learning_rate" in row for row in rows)
    return PLAIN if named else replace(PLAIN, lr="learning_rate")
