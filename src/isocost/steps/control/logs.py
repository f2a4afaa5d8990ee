"""Import learning curves of value-based control from the logs of another trainer.

Monitor files hold returns, lengths and times, and no setting. So the first import writes a table of the runs with what
the logs say, and the rest empty; once it is filled, the same command makes a study of it.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.disk.jsonfile import line, write_json, write_text
from isocost.errors import UserError
from isocost.laws.value_fit import check_sigma
from isocost.planner.control.curves import RETURN
from isocost.runs import files as records
from isocost.runs import source
from isocost.runs.arm import Arm
from isocost.runs.files import read_json
from isocost.screen.display import Result, Row
from isocost.screen.words import counted, csv_text, grouped, word
from isocost.steps.events import SILENT, Observer, Skipped
from isocost.steps.folder import writing
from isocost.steps.outside.importing import mapped_of
from isocost.trainers.reading import logs
from isocost.trainers.reading.logs import Log, Point

TABLE = "arms.csv"
COLUMNS = {"updates per sample": "sigma", "batch": "batch", "rate": "rate", "seed": "seed"}     # of it: in an arm


@dataclass(frozen=True)
class ControlTable(Result):
    """A table of runs whose settings no log holds: `empty` are the columns in which cells are to be filled in."""

    path: Path
    runs: int
    empty: tuple[str, ...]

    @property
    def heading(self) -> str:
        return f"{counted(self.runs, 'run')} found"

    def rows(self) -> list[Row]:
        """What to do next."""
        return [Row("", f"fill in {', '.join(self.empty)} in {self.path}, then run the same command again"),
                Row("", "SB3: updates per sample = gradient_steps / (train_freq x n_envs); with gradient_steps -1 it "
                        "is 1")]

    def to_dict(self) -> dict[str, Any]:
        return {"table": str(self.path), "runs": self.runs, "empty": list(self.empty)}


@dataclass(frozen=True)
class ImportedControl(Result):
    """The runs that were imported into the study `path`: (name, log, arm, seed, samples, last return) of each."""

    path: Path
    runs: tuple[tuple[str, str, Arm, int, float, float], ...]

    def rows(self) -> list[Row]:
        """A line per run, and what to do next."""
        return [*(Row("", f"{name}  from {log}: sigma {arm['sigma']:g}, batch {arm['batch']:g}, rate {arm['rate']:g}, "
                          f"seed {seed}; {grouped(samples)} samples; last return {last:.4g}", "command")
                  for name, log, arm, seed, samples, last in self.runs),
                Row("next", f"isocost fit {word(self.path)}", "command")]

    def to_dict(self) -> dict[str, Any]:
        keys = ("run", "log", "arm", "seed", "samples", "return")
        return {"study": str(self.path), "runs": [dict(zip(keys, r, strict=True)) | {"arm": r[2].data()}
                                                  for r in self.runs]}


def import_control(
    sources: Sequence[str | Path], out: Path, task: str, *, trainer: str | None = None, columns: Sequence[str] = (),
    observer: Observer = SILENT,
) -> ControlTable | ImportedControl:
    """Make a study of the runs in these logs, or the table of their settings where that has empty cells. `columns` are
    NAME=COLUMN as for other logs: of a CSV, step is its samples. Raises UserError for a log that cannot be read, a cell
    of the table that is not a number, two runs of one arm and seed, and a folder with another study."""
    found: list[tuple[Path, Log]] = []
    skipped: list[str] = []
    for path in map(Path, sources):
        try:
            found += [(path, log) for log in logs.logs(path, trainer, mapped_of(columns), skipped)]
        except logs.Empty as e:
            skipped.append(str(e))
    if not found:
        raise UserError(skipped[0])
    for text in skipped:
        observer.on(Skipped(text))
    with writing(out):
        return _import(found, out, task)


def _import(found: Sequence[tuple[Path, Log]], out: Path, task: str) -> ControlTable | ImportedControl:
    if (out / "study.json").exists() and source.of(read_json(out / "study.json")) is not source.CONTROL_LOGS:
        raise UserError(f"{out} is another study; choose another --out")
    names = _names(found)
    rows = _table(out / TABLE, found, names)
    empty = [c for c in COLUMNS if any(not row[c] for row in rows)]
    if empty:
        write_text(out / TABLE, csv_text([{"folder": name, **row} for name, row in zip(names, rows, strict=True)]))
        return ControlTable(out / TABLE, len(rows), tuple(empty))
    arms = [_arm(row, out / TABLE, at) for at, row in enumerate(rows, start=2)]
    runs: list[tuple[str, str, Arm, int, float, float]] = []
    for (_, log), name, (arm, seed) in zip(found, names, arms, strict=True):
        own = f"pilot-{arm.label}-s{seed}"
        if other := next((r for r in runs if r[0] == own), None):
            raise UserError(f"{name} and {other[1]} are both {arm.label}, seed {seed} in {out / TABLE}: a run counts "
                            "once; give the seeds or settings that they were run with")
        points = _points(log)
        runs.append((own, name, arm, seed, points[-1][0], points[-1][1]))
        folder = out / "runs" / own
        digest = hashlib.sha256(repr(points).encode()).hexdigest()
        about = {"source": log.source, "name": name, "files": [{"path": str(f)} for f in log.files], "digest": digest}
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "metrics.jsonl", "".join(
            line({"step": i, "env_steps": s, RETURN: r}) + "\n" for i, (s, r) in enumerate(points)))
        write_json(folder / "run.json", {
            "schema": records.SCHEMA, "name": own, "kind": "control", "purpose": "pilot", "seed": seed,
            "arm": arm.data(), "task": {"name": task}, "method": log.source, "source": source.CONTROL_LOGS.name,
            "log": about})
        write_json(folder / "end.json", {"schema": records.SCHEMA, "reason": "spent", "detail": "the log ends here"})
    for name in ("law.json", "plan.json"):
        (out / name).unlink(missing_ok=True)
    write_json(out / "study.json", {
        "schema": records.SCHEMA, "kind": "control", "source": source.CONTROL_LOGS.name, "task": task, "method": None,
        "seed": 0, "phases": {}, "code": records.code()})
    return ImportedControl(out, tuple(runs))


def _names(found: Sequence[tuple[Path, Log]]) -> list[str]:
    """A name of each log for the table: its own where that is unique, else with the folder above it."""
    short = [log.name for _, log in found]
    return [name if short.count(name) == 1 else f"{log.files[0].parent.parent.name}/{name}-{i}"
            for i, (name, (_, log)) in enumerate(zip(short, found, strict=True))]


def _table(path: Path, found: Sequence[tuple[Path, Log]], names: Sequence[str]) -> list[dict[str, str]]:
    """A row for each log: what the table says, else what the log does; seeds that neither says are numbered."""
    said = {row.get("folder", ""): row for row in _read(path)} if path.exists() else {}
    rows = []
    for i, ((_, log), name) in enumerate(zip(found, names, strict=True)):
        known = {**log.about, **log.facts, "rate": log.about.get("rate", log.facts.get("lr"))}
        row = {c: str((said.get(name) or {}).get(c) or known.get(k) or "").strip() for c, k in COLUMNS.items()}
        if not row["seed"]:
            row["seed"] = str(known["seed"] if known.get("seed") is not None else i)
        rows.append(row)
    return rows


def _read(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return [{str(k).strip(): str(v or "") for k, v in row.items()} for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise UserError(f"{path} cannot be read as CSV: {e}") from None


def _arm(row: Mapping[str, str], path: Path, at: int) -> tuple[Arm, int]:
    values = {}
    for column, name in COLUMNS.items():
        try:
            values[name] = float(row[column])
        except ValueError:
            raise UserError(f"{path}, line {at}: {column} is {row[column]!r}, expected a number") from None
    check_sigma(values["sigma"], f"{path}, line {at}")
    arm = {k: int(v) if v == int(v) else v for k, v in values.items()}
    return Arm({k: v for k, v in arm.items() if k != "seed"}), int(values["seed"])


def _points(log: Log) -> list[tuple[float, float]]:
    """(samples, return) of its evaluations, else of its episodes; several at one number of samples are averaged."""
    by: dict[float, list[float]] = {}
    for point in log.held or log.train:
        if (at := _samples(point)) > 0:
            by.setdefault(at, []).append(point.reward)
    if not by:
        raise UserError(f"{log.name}: no return of it has a number of samples above 0")
    return [(at, sum(own) / len(own)) for at, own in sorted(by.items())]


def _samples(point: Point) -> float:
    """Samples until a return was seen: environment steps where the log counts them, else its steps."""
    ends = (point.after, point.rollouts, point.done, point.updates)
    return next((float(x) for x in ends if x is not None and x == x), 0.0)
