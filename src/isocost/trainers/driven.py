"""A run of a user's trainer: its attempts, what they logged, and its record.

The folder of such a run has, besides the files of every record (docs/records.md):

    trainer/                what the trainer writes: {out}, the same for every attempt
    attempts/K/launch.json  the K-th process: its command and environment, and the state of the log before it
    attempts/K/output.txt   its standard output and errors
    attempts/K/log.jsonl    the lines that it logged, written once it is gone
    attempts/K/clock.json   how long it has run, noted now and then while a driver watches it
    attempts/K/ended.json   how long it had run when it was gone, and whether a driver saw it go

The log is read as it is while the trainer writes. Lines of an attempt that a later one made again are lost: they are
not in the curve, and are charged to the account `lost`.

Seconds are of the clock that counts from the machine's start: processes of one machine share it, and nobody sets it.
What cannot be known by it is not counted: the time behind the last note of an attempt that went unwatched.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.jsonfile import line as json_line
from isocost.jsonfile import write_json, write_text
from isocost.runs.files import SCHEMA, read_json
from isocost.runs.launch.launcher import OUTPUT, Launch
from isocost.runs.measure import HELD_OUT
from isocost.trainers import trl
from isocost.trainers.command import Sizes, Trainer, environment, line
from isocost.trainers.csv import plain
from isocost.trainers.logs import Log, Row
from isocost.trainers.names import Names, columns_of, flattened, match
from isocost.trainers.points import logs_of
from isocost.trainers.record import Asked, about, end_of, resolve, write_lines
from isocost.trainers.stitch import Columns, Stitched, stitch
from isocost.trainers.text import number
from isocost.words import counted

LAUNCH, LOGGED, CLOCK, ENDED = "launch.json", "log.jsonl", "clock.json", "ended.json"
TRAINER, ATTEMPTS = "trainer", "attempts"
SHOWN = 1500  # characters of an attempt's last output that an error shows


@dataclass(frozen=True)
class Kind:
    """How one trainer is driven.

    `command` is its default command. `prepare(sizes, out, attempt folder)` writes its configuration: (words in braces,
    options, what launch.json keeps). `rows(log, attempt folder, launch.json, earlier rows)` are the lines that an
    attempt has logged so far, `names` the columns of such lines.
    """

    command: str
    prepare: Callable[[Sizes, Path, Path], tuple[dict[str, str], list[str], dict[str, Any]]]
    rows: Callable[[Path, Path, Mapping[str, Any], Sequence[Row]], list[Row]]
    names: Callable[[Sequence[Row]], Names]


def _plain(sizes: Sizes, out: Path, attempt: Path) -> tuple[dict[str, str], list[str], dict[str, Any]]:
    return {}, [], {}


def _appended(log: Path, attempt: Path, launch: Mapping[str, Any], earlier: Sequence[Row]) -> list[Row]:
    """The lines of a JSON-lines file since the attempt began: those behind what was there, or, of a file that the
    attempt began anew, all but the earlier lines that it restored."""
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return []
    size = int(launch.get("size", 0))
    if size and len(data) >= size and hashlib.sha256(data[:size]).hexdigest() == launch["sha256"]:
        return _rows(data[size:], log)
    rows = _rows(data, log)
    same = next((i for i, (a, b) in enumerate(zip(rows, earlier, strict=False)) if json_line(a) != json_line(b)), None)
    return rows[min(len(rows), len(earlier)) if same is None else same:]


def _rows(data: bytes, path: Path) -> list[Row]:
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


KINDS: dict[str, Kind] = {
    "cmd": Kind("", _plain, _appended, plain),
    "trl": Kind("", trl.prepared, trl.logged, lambda rows: trl.HISTORY),
}


@dataclass(frozen=True)
class Seen:
    """What a run has logged so far, over its attempts: `trained` updates, and the policies that were evaluated."""

    stitched: Stitched
    columns: Columns
    trained: float
    evaluated: frozenset[float]
    lines: int


@dataclass(frozen=True)
class DrivenRun:
    """A run of a user's trainer in its `folder`, asked for as `sizes`; `study` is the name of its study."""

    trainer: Trainer
    sizes: Sizes
    folder: Path
    study: str

    @property
    def kind(self) -> Kind:
        return KINDS[self.trainer.kind]

    @property
    def out(self) -> Path:
        """Where the trainer writes."""
        return (self.folder / TRAINER).resolve()

    @property
    def attempts(self) -> list[Path]:
        """The folders of its attempts, in order."""
        found = (self.folder / ATTEMPTS).glob("*/" + LAUNCH)
        return sorted((p.parent for p in found), key=lambda p: int(p.name))

    def values(self, attempt: int) -> dict[str, str]:
        """The words in braces of an attempt."""
        bare = self.sizes.values(self.out, attempt, Path())
        log = self.trainer.path(bare)
        return {**bare, "log": str(log)}

    def log(self, attempt: int) -> Path:
        """The file that an attempt logs to."""
        return Path(self.values(attempt)["log"])

    # launching ------------------------------------------------------------------------------------------------

    def next_launch(self) -> Launch:
        """Make the folder of the next attempt, and what is launched there."""
        number_ = len(self.attempts)
        folder = (self.folder / ATTEMPTS / str(number_)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        values = self.values(number_)
        log = self.log(number_)
        log.parent.mkdir(parents=True, exist_ok=True)
        there = log.read_bytes() if log.exists() else b""
        more, options, kept = self.kind.prepare(self.sizes, self.out, folder)
        values |= more
        key = f"{self.study}/{self.sizes.name}/{number_}"
        launch = Launch(
            key, line(self.trainer.words, values, options), environment(values, key), folder, Path(self.trainer.cwd)
        )
        state = {"size": len(there), "sha256": hashlib.sha256(there).hexdigest(), "M": self.sizes.M}
        write_json(folder / LAUNCH, {"schema": SCHEMA, **launch.data(), **state, **kept})
        return launch

    def close(self, attempt: Path, *, watched: bool) -> None:
        """Keep what an attempt logged and how long it ran: the next attempt may overwrite its log. `watched`: until
        now; otherwise until it was last noted."""
        if not (attempt / ENDED).exists():
            before = [row for rows in self._rows_before(attempt) for row in rows]
            write_text(attempt / LOGGED, "".join(json_line(r) + "\n" for r in self._live(attempt, before)))
            if watched:
                note_clock(attempt)
            write_json(attempt / ENDED, {"schema": SCHEMA, "seconds": _noted(attempt)["seconds"], "watched": watched})

    # reading --------------------------------------------------------------------------------------------------

    def seen(self) -> Seen:
        """What it has logged so far."""
        each = self._every()
        rows = [row for own in each for row in own]
        columns = self._columns(rows)
        made = stitch(each, columns, {0, *self.sizes.evals})
        steps = [at for row in made.rows if (at := columns.trained(row)) is not None]
        seen = frozenset(at for row in made.rows if (at := columns.evaluated(row)) is not None)
        return Seen(made, columns, max(steps, default=columns.first - 1) - columns.first + 1, seen, len(rows))

    def missing(self, seen: Seen) -> list[int]:
        """The updates of policies that were to be evaluated and are not."""
        return [u for u in (0, *self.sizes.evals) if u not in seen.evaluated]

    def _every(self) -> list[list[Row]]:
        out: list[list[Row]] = []
        for attempt in self.attempts:
            out.append(self._own(attempt, [row for rows in out for row in rows]))
        return out

    def _rows_before(self, attempt: Path) -> list[list[Row]]:
        out: list[list[Row]] = []
        for other in self.attempts:
            if other == attempt:
                break
            out.append(self._own(other, [row for rows in out for row in rows]))
        return out

    def _own(self, attempt: Path, before: Sequence[Row]) -> list[Row]:
        kept = attempt / LOGGED
        return _rows(kept.read_bytes(), kept) if (attempt / ENDED).exists() else self._live(attempt, before)

    def _live(self, attempt: Path, before: Sequence[Row]) -> list[Row]:
        return self.kind.rows(self.log(int(attempt.name)), attempt, read_json(attempt / LAUNCH), before)

    def _columns(self, rows: Sequence[Row]) -> Columns:
        names, mapped, there = self.kind.names(rows), self.trainer.columns, columns_of(rows)
        reward = mapped.get("reward") or next((c for p in names.reward if (c := match(p, there))), None)
        others = [c for c in there if c != reward]
        held = mapped.get("held_out") or next((c for p in names.held if (c := match(p, others))), None)
        return Columns(mapped.get("step", names.step), reward, held, names.first)

    # its record -----------------------------------------------------------------------------------------------

    def log_of(self, seen: Seen) -> Log:
        """Its log as one curve. Raises UserError for a column that is not there, and without held-out rewards."""
        path = self.log(len(self.attempts) - 1)
        rows = _clocked(seen.stitched.rows, self.trainer.columns.get("seconds", "seconds"))
        names = self.kind.names(rows)
        if not rows:
            raise UserError(f"run {self.sizes.name}: the trainer logged nothing in {path}")
        mapped = dict(self.trainer.columns)
        found = logs_of(
            self.trainer.kind, path, [p for p in (path,) if p.is_file()], rows, names, mapped, name=self.sizes.name,
            uncounted="the log counts steps, and C is steps x n x B" if "rollouts" not in mapped else "",
        )[0]
        if not found.held:
            raise UserError(f"run {self.sizes.name}: {path} has no held-out reward; log `held_out` before the first "
                            f"update, every {self.sizes.eval_every} updates and after the last, or name its column "
                            "with --map held_out=COLUMN")
        return found

    def write(self, seen: Seen, asked: Asked, more: Mapping[str, Any], *, ended: str = "") -> dict[str, Any] | None:
        """Write its record as far as it is: run.json, metrics.jsonl, timing.jsonl; with `ended`, end.json too.

        `more` are keys of run.json; `ended` says how its attempts went. Returns end.json. Raises UserError where the
        log disagrees with what was asked.
        """
        run = resolve(self.log_of(seen), asked)
        assert run.kind == HELD_OUT
        lines = write_lines(run, self.folder)
        known = about(run, self.sizes.name, str(more["purpose"]), self.sizes.seed)
        arm = {**known["arm"], "warmup": self.sizes.warmup, "multiplier": more["multiplier"], "lr": self.sizes.lr}
        others = {k: v for k, v in more.items() if k != "multiplier"}
        write_json(self.folder / "run.json", known | others | {
            "arm": arm, "trainer": self.trainer.data(), "budget": {"rollouts": self.sizes.C},
        })
        if not ended:
            return None
        end = end_of(run, lines, ended)
        size = self.sizes.n * self.sizes.B
        lost = len(seen.stitched.lost)
        bill = {**end["bill"], **({"lost": {"rollouts": lost * size, "updates": lost}} if lost else {})}
        notes = [f"missing: {m}" for m in run.missing]
        dead = len(self.attempts) - 1
        if dead:
            notes.append(f"{counted(dead, 'attempt')} ended early: {counted(lost, 'logged update')} lost and charged; "
                         f"of what was under way and not logged, at most {dead * size:,} rollouts, nothing is known")
        ends = [read_json(a / ENDED) for a in self.attempts]
        if unseen := sum(not e.get("watched") for e in ends):
            notes.append(f"{counted(unseen, 'attempt')} ended while no isocost watched: of that time, what follows "
                         "the last note is not counted")
        end |= {"seconds": round(sum(float(e.get("seconds", 0)) for e in ends), 2), "bill": bill, "notes": notes}
        write_json(self.folder / "end.json", end)
        return end

    def last_output(self) -> str:
        """The end of what its last attempt printed."""
        path = self.attempts[-1] / OUTPUT
        text = path.read_bytes()[-SHOWN:].decode("utf-8", "replace") if path.exists() else ""
        return text.strip() or "it printed nothing"


def note_clock(attempt: Path, *, runs: bool = True) -> None:
    """Count an attempt's time since its last note, and note it. The time behind a note of one that waits (`runs` False)
    is not counted, nor that across a restart of the machine."""
    now, before = time.monotonic(), _noted(attempt)
    known = runs and before["at"] is not None and before["boot"] == _boot()
    more = max(0.0, now - before["at"]) if known else 0.0
    write_json(attempt / CLOCK, {"schema": SCHEMA, "boot": _boot(), "at": now if runs else None,
                                 "seconds": before["seconds"] + more})


def _noted(attempt: Path) -> dict[str, Any]:
    path = attempt / CLOCK
    return read_json(path) if path.exists() else {"boot": "", "at": None, "seconds": 0.0}


@cache
def _boot() -> str:
    """The start of this machine that its clock counts from; where the system does not name it, this process."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"process {os.getpid()}"


def asked_of(sizes: Sizes, model: str | None, data: str | None, scale: tuple[float, float] | None = None) -> Asked:
    """What is known of a run besides its log."""
    return Asked(n=sizes.n, B=sizes.B, lr=sizes.lr, seed=sizes.seed, model=model, data=data, scale=scale)


def _clocked(rows: Sequence[Row], column: str) -> list[Row]:
    """The lines of a curve with a clock that goes on over attempts, where each attempt's begins at 0.

    The time of lost lines is not in it: that is in end.json, with the time to start.
    """
    out: list[Row] = []
    last = offset = before = 0.0
    for row in rows:
        own = number(row.get(column))
        if own is None:
            out.append(row)
            continue
        if own < before:
            offset = last
        before, last = own, own + offset
        out.append({**row, column: last})
    return out
