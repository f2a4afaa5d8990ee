"""How runs of a trainer are driven: what the file of a trainer here gives as its `DRIVE`, and what several share.

isocost writes the configuration of every attempt of a run, and reads what the attempt has logged while it trains. Both
are functions of the trainer's own file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from pathlib import Path
from typing import Any

from isocost.disk.jsonfile import line as json_line
from isocost.errors import UserError
from isocost.trainers.driving.command import METRICS, Sizes
from isocost.trainers.driving.export import Prescription
from isocost.trainers.reading.logs import Row
from isocost.trainers.reading.names import Names, flattened

ASIDE = "passed-over-"  # before the name of a checkpoint that no attempt continues from


@dataclass(frozen=True)
class Begin:
    """An attempt that is about to start: what its run is asked to do, where the trainer writes (`out`, the same for
    every attempt), the attempt's own folder, the updates whose evaluations are still `missing` in the log of the
    attempts before it, and the words of the user's command."""

    sizes: Sizes
    out: Path
    folder: Path
    missing: frozenset[int] = frozenset()
    words: tuple[str, ...] = ()

    @property
    def attempt(self) -> int:
        """Its number, from 0."""
        return int(self.folder.name)

    @property
    def every(self) -> int:
        """Updates between evaluations of a trainer that makes none after its last update unless they divide it."""
        return gcd(*self.sizes.evals)

    def prescription(self, problems: int | None = None) -> Prescription:
        """The run's sizes as a configuration is written from; the method is the trainer's own."""
        s = self.sizes
        return Prescription(s.name, s.n, s.B, s.M, s.lr, s.warmup, s.seed, problems=problems)

    def newest(self, checkpoints: Iterable[int], *, again: bool) -> int | None:
        """The newest checkpoint (in updates) before, or evaluated `again` at, every missing evaluation; None
        without."""
        fits = (c for c in checkpoints if not any(u < c or (u == c and not again) for u in self.missing))
        return max(fits, default=None)


@dataclass(frozen=True)
class Setup:
    """What an attempt is started with: words in braces of the command, options, environment variables, and what its
    launch.json keeps (`newest`: updates of the newest checkpoint that was there)."""

    values: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Drive:
    """How one trainer is driven.

    `prepare` writes an attempt's configuration, and `words` are those in braces that a command may take it by (one is
    needed). `rows(log, attempt's folder, launch.json, earlier rows)` are the lines that an attempt has logged so far,
    and `names` the columns of such lines. `log` is where an attempt logs: {out}, {folder} (the attempt's) and the other
    words in braces. `base` is whether it evaluates before its first update. `ends` is whether it ends after M updates;
    otherwise it is ended once its last evaluation is logged. `late` is whether updates may be missing at the end of a
    killed attempt's log. `lacks` are limits of what it logs, for the notes of every run. `evaluates` is what makes it
    evaluate, for a run without held-out rewards, and `saves` what makes a script of its kind write into {out}.
    """

    prepare: Callable[[Begin], Setup]
    rows: Callable[[Path, Path, Mapping[str, Any], Sequence[Row]], list[Row]]
    names: Callable[[Sequence[Row]], Names]
    words: tuple[str, ...] = ("options",)
    log: str = METRICS
    base: bool = True
    ends: bool = True
    late: bool = False
    lacks: tuple[str, ...] = ()
    evaluates: str = ""
    saves: str = ""


def appended(log: Path, folder: Path, launch: Mapping[str, Any], earlier: Sequence[Row]) -> list[Row]:
    """The lines of a JSON-lines file since the attempt began: those behind what was there, or, of a file that the
    attempt began anew, all but the earlier lines that it restored."""
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return []
    size = int(launch.get("size", 0))
    if size and len(data) >= size and hashlib.sha256(data[:size]).hexdigest() == launch["sha256"]:
        return rows_of(data[size:], log)
    rows = rows_of(data, log)
    same = next((i for i, (a, b) in enumerate(zip(rows, earlier, strict=False)) if json_line(a) != json_line(b)), None)
    return rows[min(len(rows), len(earlier)) if same is None else same:]


def rows_of(data: bytes, path: Path) -> list[Row]:
    """The whole lines of JSON lines as flat objects; an unfinished last line is left out."""
    lines, out = data.split(b"\n"), []
    for i, text in enumerate(lines):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except ValueError:
            if i == len(lines) - 1:
                break
            raise UserError(f"{path}: a line is not JSON: {text[:80].decode('utf-8', 'replace')!r}; the trainer's log "
                            "has one JSON object a line (name another file with --metrics)") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}: a line is a {type(row).__name__}, expected an object such as "
                            '{"step": 1, "reward": 0.5}')
        out.append(flattened(row))
    return out


def quoted(path: Path) -> str:
    """A path as the value of an override, which Hydra and YAML read alike."""
    text = str(path)
    if re.fullmatch(r"[A-Za-z0-9_./@+-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def marked(file: Path) -> int:
    """The number in the file that a trainer writes once its newest checkpoint is whole; -1 without one."""
    try:
        return int(file.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return -1


def checkpoints(folder: Path, prefix: str, *holding: str) -> dict[int, Path]:
    """The folders `prefix`N in a folder that hold each of these files or folders, by N."""
    found = {p.name.removeprefix(prefix): p for p in folder.glob(f"{prefix}*") if p.is_dir()}
    return {int(n): p for n, p in found.items() if n.isdecimal() and all((p / name).exists() for name in holding)}


def pass_over(folders: Iterable[Path], attempt: int) -> None:
    """Rename checkpoints that the attempt must not continue from, for a trainer that takes the newest one."""
    for folder in folders:
        folder.rename(folder.with_name(f"{ASIDE}{folder.name}-{attempt}"))
