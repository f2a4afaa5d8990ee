"""Weights & Biases: offline folders (`*.wandb`, read without wandb), and exports of a run's history as CSV or JSON.

An offline file holds history and configuration. `run.history()` written out holds `_step`, `_runtime` and the
columns. A chart's CSV export has one column per run, `NAME - METRIC`, and gives one log per run. The columns are
those of the trainer that logged, recognised by its names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import Names, facts_of, spoken
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.text import csv_rows, head, json_table
from isocost.trainers.reading.wire import offline
from isocost.trainers.trl import BOARD

TITLE = "Weights & Biases"
READS = "wandb offline folders, CSV and JSON exports"
GIVES = "every logged number, seconds; n, B, rate and seed from the configuration of an offline folder"
LACKS = "n, B and seed in exports; rollouts before filtering, by trainer; a second held-out half"
OFFLINE = ":W&B"  # the first characters of an offline file
CHART = re.compile(r"^(?P<run>.+) - (?P<metric>.+?)(?P<bound>__MIN|__MAX)?$")


def recognise(path: Path) -> bool:
    """A folder is one run's; a `wandb/` folder of several is read run by run, so that an empty one can be skipped."""
    if path.is_dir():
        return _offline(path) is not None
    if path.suffix == ".wandb":
        return True
    text = head(path, 4096)
    if text.startswith(OFFLINE):
        return True
    if text.lstrip().startswith(("{", "[")):
        return '"_step"' in text or '"_runtime"' in text
    names = [c.strip().strip('"') for c in text.split("\n")[0].split(",")]
    return "_step" in names or (path.suffix == ".csv" and any(c and CHART.match(c) for c in names[1:]))


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    if path.is_dir():
        found = _offline(path)
        if found is None:
            raise UserError(f"{path} holds no run of wandb: expected one .wandb file in a folder offline-run-*")
        return _of_file(found, columns)
    text = head(path, 16)
    if path.suffix == ".wandb" or text.startswith(OFFLINE):
        return _of_file(path, columns)
    if text.lstrip().startswith(("{", "[")):
        rows, missing = json_table(path)
        # pandas holds NaN where a row has no such column; a NaN that was logged is the text "NaN" here.
        rows = [{k: v for k, v in row.items() if not (isinstance(v, float) and isnan(v))} for row in rows]
    else:
        rows, missing = csv_rows(path)
        if rows and "_step" not in rows[0]:
            return _of_chart(path, rows, columns, missing)
    return _of_rows(path, [path], rows, columns, missing, {}, {}, None)


def _offline(path: Path) -> Path | None:
    """The .wandb file of a run's folder; None if the folder has none, or several."""
    found = sorted(path.glob("*.wandb"))
    return found[0] if len(found) == 1 else None


def _of_file(path: Path, columns: Mapping[str, str]) -> list[Log]:
    rows, config, run = offline(path)
    facts, about = facts_of({k: v for k, v in config.items() if k != "_wandb"})
    return _of_rows(path, [path], rows, columns, [], facts, about, run.get("name"))


def _of_rows(
    path: Path,
    files: Sequence[Path],
    rows: list[Row],
    columns: Mapping[str, str],
    missing: list[str],
    facts: Mapping[str, Any],
    about: Mapping[str, Any],
    name: str | None,
) -> list[Log]:
    known = spoken(rows) or Names("", "_step", ())
    # wandb's own count is the trainer's step, except with transformers, where it counts logged lines.
    if known is not BOARD and not any(known.step in row for row in rows):
        known = replace(known, step="_step")
    counted = known is BOARD or any(known.per_step in row for row in rows)
    if not known.span:
        known = replace(known, seconds="_runtime")
    return logs_of(
        "wandb",
        path,
        files,
        rows,
        known,
        columns,
        facts=facts,
        about=about,
        missing=missing,
        uncounted="" if counted else "the log counts steps, and C is steps x n x B",
        name=name,
        clock="_step",
    )


def _of_chart(path: Path, rows: list[Row], columns: Mapping[str, str], missing: list[str]) -> list[Log]:
    """A chart's export: one metric, one column per run, the bounds of its smoothing left out."""
    step = next(iter(rows[0])) if rows else ""
    if step.startswith(("Relative Time", "Wall Time")):
        raise UserError(f"{path} is a chart over {step}: export it over steps")
    found = {
        c: m
        for c in (rows[0] if rows else {})
        if c != step and (m := CHART.match(c)) and not m["bound"] and not m["metric"].endswith("_step")
    }
    if not found:
        raise UserError(f"{path} is no export of a run's history or of a chart: it has neither _step nor NAME - METRIC")
    out = []
    for column, match in found.items():
        own = [{"step": r[step], match["metric"]: r[column]} for r in rows if r[column] is not None]
        held = match["metric"].startswith(("eval", "val", "test"))
        asked = {**columns, "step": "step", ("held_out" if held else "reward"): match["metric"]}
        out += logs_of(
            "wandb",
            path,
            [path],
            own,
            Names("", "step", ()),
            asked,
            missing=missing,
            uncounted="the chart counts steps, and C is steps x n x B",
            name=match["run"],
        )
    return out
