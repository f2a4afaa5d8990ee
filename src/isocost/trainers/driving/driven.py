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
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from isocost import trainers
from isocost.disk.jsonfile import line as json_line
from isocost.disk.jsonfile import write_json, write_text
from isocost.errors import UserError
from isocost.runs.arm import Arm
from isocost.runs.files import SCHEMA, read_json
from isocost.runs.launch.launcher import OUTPUT, Launch
from isocost.runs.measure import HELD_OUT
from isocost.screen.words import counted
from isocost.trainers.csv import plain
from isocost.trainers.driving.command import METRICS, Sizes, Trainer, environment, filled, line, names_in
from isocost.trainers.driving.drive import Begin, Drive, Setup, appended, rows_of
from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import columns_of, match
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.record import ImportOptions, about, end_of, resolve, write_lines
from isocost.trainers.reading.stitch import Columns, Stitched, clocked, stitch

LAUNCH, LOGGED, CLOCK, ENDED = "launch.json", "log.jsonl", "clock.json", "ended.json"
TRAINER, ATTEMPTS = "trainer", "attempts"
SHOWN = 1500  # characters of an attempt's last output that an error shows


KINDS: dict[str, Drive] = {
    "cmd": Drive(lambda begin: Setup(), appended, plain, words=()),
    **{name: module.DRIVE for name, module in trainers.modules("DRIVE").items()},
}


@dataclass(frozen=True)
class RunProgress:
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
    def drive(self) -> Drive:
        return KINDS[self.trainer.kind]

    @property
    def ends(self) -> bool:
        """Whether its process ends by itself after its updates."""
        return self.trainer.ends and self.drive.ends

    @property
    def asked(self) -> tuple[int, ...]:
        """The updates after which an evaluation is asked for; 0 is the base."""
        return (0, *self.sizes.evals) if self.drive.base else self.sizes.evals

    @property
    def out(self) -> Path:
        return (self.folder / TRAINER).resolve()

    @property
    def attempts(self) -> list[Path]:
        found = (self.folder / ATTEMPTS).glob("*/" + LAUNCH)
        return sorted((p.parent for p in found), key=lambda p: int(p.name))

    def values(self, attempt: int) -> dict[str, str]:
        bare = self.sizes.values(self.out, attempt, Path())
        own = {**bare, "folder": str((self.folder / ATTEMPTS / str(attempt)).resolve())}
        log = self.trainer.path(bare) if self.drive.log == METRICS else Path(filled(self.drive.log, own, "the log"))
        return {**bare, "log": str(log)}

    def log(self, attempt: int) -> Path:
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
        if self.drive.log == METRICS:
            log.parent.mkdir(parents=True, exist_ok=True)
        there = log.read_bytes() if log.is_file() else b""
        missing = frozenset(self.missing(self.seen()) if number_ else self.asked)
        made = self.drive.prepare(Begin(self.sizes, self.out, folder, missing, self.trainer.words))
        values |= made.values
        key = f"{self.study}/{self.sizes.name}/{number_}"
        env = {**environment(values, key), **made.env}
        words = line(self.trainer.words, values, made.options)
        launch = Launch(key, words, env, folder, Path(self.trainer.cwd))
        state = {"size": len(there), "sha256": hashlib.sha256(there).hexdigest(), "M": self.sizes.M}
        write_json(folder / LAUNCH, {"schema": SCHEMA, **launch.data(), **state, **made.kept})
        return launch

    def close(self, attempt: Path, *, watched: bool) -> None:
        """Keep what an attempt logged and how long it ran: the next attempt may overwrite its log. `watched`: until
        now; otherwise until it was last noted."""
        if not (attempt / ENDED).exists():
            before = [row for rows in self._every(attempt) for row in rows]
            write_text(attempt / LOGGED, "".join(json_line(r) + "\n" for r in self._live(attempt, before)))
            if watched:
                note_clock(attempt)
            write_json(attempt / ENDED, {"schema": SCHEMA, "seconds": _noted(attempt)["seconds"], "watched": watched})

    # reading --------------------------------------------------------------------------------------------------

    def seen(self) -> RunProgress:
        """What it has logged so far."""
        each = self._every()
        rows = [row for own in each for row in own]
        columns = self._columns(rows)
        made = stitch(each, columns, set(self.asked))
        steps = [at for row in made.rows if (at := columns.trained(row)) is not None]
        seen = frozenset(at for row in made.rows if (at := columns.evaluated(row)) is not None)
        return RunProgress(made, columns, max(steps, default=columns.first - 1) - columns.first + 1, seen, len(rows))

    def missing(self, seen: RunProgress) -> list[int]:
        """The updates of policies that were to be evaluated and are not."""
        return [u for u in self.asked if u not in seen.evaluated]

    def _every(self, before: Path | None = None) -> list[list[Row]]:
        """The rows of each attempt, of all or of those before one."""
        out: list[list[Row]] = []
        for attempt in self.attempts:
            if attempt == before:
                break
            out.append(self._own(attempt, [row for rows in out for row in rows]))
        return out

    def _own(self, attempt: Path, before: Sequence[Row]) -> list[Row]:
        kept = attempt / LOGGED
        return rows_of(kept.read_bytes(), kept) if (attempt / ENDED).exists() else self._live(attempt, before)

    def _live(self, attempt: Path, before: Sequence[Row]) -> list[Row]:
        return self.drive.rows(self.log(int(attempt.name)), attempt, read_json(attempt / LAUNCH), before)

    def _columns(self, rows: Sequence[Row]) -> Columns:
        names, mapped, there = self.drive.names(rows), self.trainer.columns, columns_of(rows)
        reward = mapped.get("reward") or next((c for p in names.reward if (c := match(p, there))), None)
        others = [c for c in there if c != reward]
        held = mapped.get("held_out") or next((c for p in names.held if (c := match(p, others))), None)
        return Columns(mapped.get("step", names.step), reward, held, names.first, names.policy)

    # its record -----------------------------------------------------------------------------------------------

    def log_of(self, seen: RunProgress) -> Log:
        """Its log as one curve. Raises UserError for a column that is not there, and without held-out rewards."""
        path = self.log(len(self.attempts) - 1)
        names = self.drive.names(seen.stitched.rows)
        rows = clocked(seen.stitched.rows, self.trainer.columns.get("seconds", names.seconds))
        if not rows:
            raise UserError(f"run {self.sizes.name}: the trainer logged nothing in {path}")
        mapped = dict(self.trainer.columns)
        counts = "rollouts" in mapped or names.per_step in columns_of(rows)
        found = logs_of(
            self.trainer.kind, path, [p for p in (path,) if p.is_file()], rows, names, mapped, name=self.sizes.name,
            uncounted="" if counts else "the log counts steps, and C is steps x n x B", missing=self.drive.lacks,
            settled=True,
        )[0]
        if not found.held:
            own = f"{self.drive.evaluates}, or " if self.drive.evaluates else "" if self.drive.words else (
                f"log `held_out` before the first update, every {self.sizes.eval_every} updates and after the last, or "
            )
            raise UserError(f"run {self.sizes.name}: {path} has no held-out reward; {own}name its column with --map "
                            "held_out=COLUMN")
        return found

    def write(
        self, seen: RunProgress, asked: ImportOptions, more: Mapping[str, Any], *, ended: str = "",
        early: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Write its record as far as it is: run.json, metrics.jsonl, timing.jsonl; with `ended`, end.json too.

        `more` are keys of run.json; `ended` says how its attempts went, and `early` is what end.json has of a run that
        was ended before it had everything. Returns end.json. Raises UserError where the log disagrees with what was
        asked.
        """
        run = resolve(self.log_of(seen), asked)
        assert run.kind == HELD_OUT
        lines = write_lines(run, self.folder)
        known = about(run, self.sizes.name, str(more["purpose"]), self.sizes.seed)
        write_json(self.folder / "run.json", known | dict(more) | {
            "arm": {**known["arm"],
                    **more["arm"]}, "trainer": self.trainer.data(), "budget": {"rollouts": self.sizes.C},
        })
        if not ended:
            return None
        end = end_of(run, lines, ended)
        size = run.batch
        lost = len(seen.stitched.lost)
        bill = {**end["bill"], **({"lost": {"rollouts": lost * size, "updates": lost}} if lost else {})}
        notes = [f"missing: {m}" for m in run.missing]
        dead = len(self.attempts) - 1
        if dead:
            unknown = sum(self._unlogged(seen, k) for k in range(dead))
            notes.append(f"{counted(dead, 'attempt')} ended early: {counted(lost, 'logged update')} lost and charged; "
                         f"of what was under way and not logged, at most {unknown * size:,} rollouts, nothing is known")
        ends = [read_json(a / ENDED) for a in self.attempts]
        if unseen := sum(not e.get("watched") for e in ends):
            notes.append(f"{counted(unseen, 'attempt')} ended while no isocost watched: of that time, what follows "
                         "the last note is not counted")
        end |= {"seconds": round(sum(float(e.get("seconds", 0)) for e in ends), 2), "bill": bill, "notes": notes}
        if early:
            end |= {**early, "detail": ended}
        write_json(self.folder / "end.json", end)
        return end

    @property
    def seconds(self) -> float:
        """How long its attempts have run, up to now for the one that a driver watches."""
        if self.attempts and not (self.attempts[-1] / ENDED).exists():
            note_clock(self.attempts[-1])
        return float(sum(_noted(attempt)["seconds"] for attempt in self.attempts))

    def _unlogged(self, seen: RunProgress, attempt: int) -> int:
        """The most updates that a dead attempt may have made and not logged: one, or those up to a next checkpoint."""
        if not self.drive.late:
            return 1
        rows = self._own(self.attempts[attempt], [])
        logged = max((at for row in rows if (at := seen.columns.updates(row)) is not None), default=0.0)
        newest = int(read_json(self.attempts[attempt + 1] / LAUNCH).get("newest") or 0)
        return max(1, round(newest + self.sizes.eval_every - logged))

    @property
    def given(self) -> str:
        """The words in braces by which its command takes the configuration that isocost writes; empty without one."""
        return " and ".join(f"{{{w}}}" for w in self.drive.words if w in names_in(self.trainer.command))

    def unused(self) -> str:
        """What to change in a command that ended without a file in {out}; empty where there is one."""
        if not self.given or any(self.out.iterdir()):
            return ""
        more = f", and {self.drive.saves}" if self.drive.saves else ""
        return (f"the command ended and wrote nothing in {self.out}: let it train with the settings in {self.given}, "
                f"its output folder among them{more}")

    def last_output(self, attempt: int = -1) -> str:
        """The end of what an attempt printed, by default of the last one; empty if it printed nothing."""
        path = self.attempts[attempt] / OUTPUT
        text = path.read_bytes()[-SHOWN:].decode("utf-8", "replace") if path.exists() else ""
        return text.strip()


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


def asked_of(
    sizes: Sizes, model: str | None, data: str | None, scale: tuple[float, float] | None = None,
    base: float | None = None,
) -> ImportOptions:
    """What is known of a run besides its log."""
    arm = Arm(n=sizes.n, B=sizes.B, lr=sizes.lr)
    return ImportOptions(arm, sizes.seed, model=model, data=data, scale=scale, base=base)
