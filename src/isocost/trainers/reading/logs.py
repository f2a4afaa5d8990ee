"""Runs of other trainers, read from their logs: what a log holds, and how logs are found and recognised.

A file is recognised by its content, so that it may have any name. What a log lacks is left out here and named
by `isocost.trainers.reading.record`, which writes the run records that the other commands read. Nothing is
guessed, unpickled or executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from typing import Any

from isocost import trainers
from isocost.errors import UserError
from isocost.runs.files import DIVERGED
from isocost.units import ENV_STEPS, ROLLOUTS

Row = dict[str, Any]

COLUMNS = ("step", "reward", "held_out", "rollouts", "seconds", "epoch", "lr", "length", "seed", "n", "B", "run")
STACKED = ("run", "n", "B", "seed")  # columns of COLUMNS whose values separate the runs of one table
FACTS = ("n", "B", "lr", "seed")
DECAYED = "a constant learning rate:"  # how an entry of `missing` begins if the rate fell
PART = re.compile(r"[\W_]*(?:part|chunk|resumed?|continued?|cont|attempt|restart(?:ed)?)[\W_]*\d*$", re.I)
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".tgz")


@dataclass(frozen=True)
class Point:
    """One logged line: the policy had made `updates` updates when it earned `reward`.

    `rollouts` started by then, before any filter, `seconds` since the start, `epoch` passes over the problems; None
    if the log lacks them. A training reward is of the step that ended with update `done`, with `after` rollouts
    started. `updates` is NaN where only `rollouts` are counted. `more` are other logged numbers under this
    program's names.
    """

    updates: float
    reward: float
    rollouts: float | None = None
    seconds: float | None = None
    epoch: float | None = None
    done: float | None = None
    after: float | None = None
    more: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """One run, as its log has it.

    `train` are training rewards, `held` held-out ones; `reward_column` and `held_column` the log's names for them.
    `facts` are those of n, B, lr and seed that the log holds; `about` is model, data, temperature, max_tokens and
    other settings to record. `unit` is the unit of `rollouts`, if not rollouts. `missing` are notes on what the log
    lacks; `end` is why the run ended, as in end.json, if the log has it. `rate` is the least of rollouts / updates
    where the log counts both. `parts` are the columns that the fitted reward is the sum of, by the kind of reward.
    `rounding` is how far from its logged value a fact may be, where the log rounds it. `rows` are the lines it was read
    from, and `remade` reads lines as it was read, while another log may still continue it.
    """

    source: str
    name: str
    files: tuple[Path, ...]
    train: tuple[Point, ...] = ()
    held: tuple[Point, ...] = ()
    reward_column: str | None = None
    held_column: str | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    unit: str = ROLLOUTS
    missing: tuple[str, ...] = ()
    end: str | None = None
    rate: float | None = None
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rounding: Mapping[str, float] = field(default_factory=dict)
    rows: tuple[Row, ...] = field(default=(), repr=False, compare=False)
    remade: Callable[[Sequence[Row]], Log] | None = field(default=None, repr=False, compare=False)

    @property
    def updates(self) -> tuple[float, float]:
        """The updates that it begins after and ends with; NaN where it does not count them."""
        if not self.train:
            ends = [p.updates for p in self.held] or [nan]
            return min(ends), max(ends)
        first, last = self.train[0], self.train[-1].done
        if first.done is None or last is None:
            return nan, nan
        return max(0.0, 2 * first.updates - first.done + 1), last


def log_of_steps(
    source: str, name: str, files: Sequence[Path], *, missing: Sequence[str] = (), broken: bool = False, **parts: Any
) -> Log:
    """A log that counts steps of an environment, with other fields of `Log`; `broken` says that its reward ended so."""
    said = ("rollouts: the log counts environment steps, and so does C", *missing)
    return Log(source, name, tuple(files), unit=ENV_STEPS, missing=said, end=DIVERGED if broken else None, **parts)


class Empty(UserError):
    """A log without a reward: a run that crashed early. With other runs it is skipped, and a message names it."""


def names() -> list[str]:
    """All sources, as `--from` takes them, the most specific first."""
    return list(trainers.modules("read"))


def load(name: str) -> Any:
    """The module of a source. Raises UserError if there is none of that name."""
    if name not in names():
        raise UserError(f"unknown source {name!r}; expected one of {', '.join(names())}")
    return trainers.modules("read")[name]


def logs(
    path: Path, source: str | None = None, columns: Mapping[str, str] | None = None, skipped: list[str] | None = None,
) -> list[Log]:
    """The runs that a file or folder holds, by a named source or by the first that recognises it.

    In a folder that no source recognises, every file and folder is tried. Of several runs, those without a reward are
    left out, and the reason for each is added to `skipped`.
    Raises UserError if the path does not exist, nothing is recognised, no run has a reward, or a log cannot be read.
    """
    if not path.exists():
        raise UserError(f"there is no file or folder {path}")
    unknown = sorted(set(columns or {}) - set(COLUMNS))
    if unknown:
        raise UserError(f"--map does not take {unknown[0]!r}; expected one of {', '.join(COLUMNS)}, such as --map "
                        "reward=my_column")
    runs = _runs(path, names() if source is None else [source]) or [(path, source or _by_name(path))]
    once = {at.resolve(): (at, own) for at, own in reversed(runs)}  # a link to a run beside it is that run
    found: list[Log] = []
    empty: list[Empty] = []
    for at, own in reversed(once.values()):
        try:
            for log in _read(at, own, dict(columns or {})):
                add(found, log)
        except Empty as e:
            empty.append(e)
    if empty and not found:
        raise empty[0]
    if skipped is not None:
        skipped += map(str, empty)
    return found


def add(found: list[Log], log: Log, seeds: tuple[int | None, int | None] | None = None) -> None:
    """Add a log to those found before it, or join the two if one continues the other: the same run in two files.

    That is so where one begins late and no later than the other ends, both have the same columns and facts, and either
    the same seed (`seeds`, by default those in the logs) or, without it, the same name but for a word such as part-2.
    Otherwise the one that begins late says so. Lines are kept of the first and of the last log only.
    """
    last = found[-1] if found else None
    if last is not None and last.remade is not None and log.remade is not None:
        first, second = (last, log) if last.updates[0] <= log.updates[0] else (log, last)
        if _continues(first, second):
            a, b = seeds or (last.facts.get("seed"), log.facts.get("seed"))
            alike = last.name != log.name and _stem(last.name) == _stem(log.name)
            if alike if None in (a, b) else a == b:
                made = first.remade([*first.rows, *second.rows])    # type: ignore[misc]
                name = _stem(first.name) or first.name
                found[-1] = replace(made, name=name, files=tuple(dict.fromkeys((*first.files, *second.files))))
                return
            said = (f"its first lines: it begins after update {second.updates[0]:g}, as if it continued {first.name}; "
                    "logs of one run are joined where --seed or the log gives both the same seed")
            if None in (a, b) and said not in second.missing:
                second = replace(second, missing=(*second.missing, said))
                found[-1], log = (second, log) if last.updates[0] > log.updates[0] else (last, second)
    if len(found) > 1:
        found[-1] = replace(found[-1], rows=(), remade=None)
    found.append(log)


def _continues(first: Log, second: Log) -> bool:
    """Whether a log goes on where another ends, or repeats its last lines and goes on."""
    (a, b), (c, d) = first.updates, second.updates
    facts = all(first.facts[k] == second.facts[k] for k in first.facts.keys() & second.facts.keys() - {"seed", "lr"})
    same = first.source == second.source and bool(first.held) == bool(second.held)
    return same and facts and a < c <= b < d


def _stem(name: str) -> str:
    """A name without a word at its end that tells one part of a run from another."""
    return PART.sub("", name)


def _runs(path: Path, sources: Sequence[str], above: tuple[Path, ...] = ()) -> list[tuple[Path, str]]:
    """(path, source) of what is recognised: the path itself, or all that is below it."""
    own = next((n for n in sources if load(n).recognise(path)), None)
    if own is not None:
        return [(path, own)]
    here = path.resolve()
    if not path.is_dir() or here in above:  # a link may lead back to a folder that holds it
        return []
    return [run for child in sorted(path.iterdir()) for run in _runs(child, sources, (*above, here))]


def _by_name(path: Path) -> str:
    """The generic source, which needs --map, of a file that no source recognises: by its name or first character."""
    if path.suffix in PACKED:
        raise UserError(f"{path} is compressed: decompress it first")
    if path.suffix == ".csv":
        return "csv"
    if not (any(path.iterdir()) if path.is_dir() else path.stat().st_size):
        raise UserError(f"{path} is empty: give the folder or the file that the trainer wrote its log to")
    if path.is_dir() and (packed := next((x for x in sorted(path.rglob("*")) if x.suffix in PACKED), None)):
        raise UserError(f"{path} holds no log of a known format ({', '.join(names())}), but {packed.name}, which is "
                        "compressed: decompress it first")
    if path.is_file():
        with path.open("rb") as f:
            first, second = (f.readline(65_536).decode("utf-8-sig", "replace").strip() for _ in range(2))
        if path.suffix == ".jsonl" or first.startswith(("{", "[")):
            return "jsonl"
        if 0 < first.count(",") == second.count(",") and first.isprintable():
            return "csv"
    raise UserError(
        f"{path} is not a log of a known format ({', '.join(names())}): name its format with --from, or write its "
        "numbers as CSV and name the columns with --map"
    )


def _read(path: Path, source: str, columns: dict[str, str]) -> list[Log]:
    found: list[Log] = load(source).read(path, columns)
    if not found:
        raise UserError(f"{path} holds no run that {source} can read")
    return found


REWARD_ONLY = ("cleanrl", "sb3")    # sources with columns of one meaning each: `reward_only`


def reward_only(columns: Mapping[str, str], source: str) -> None:
    """Raises UserError for a column named with --map in a log whose other columns have one meaning."""
    other = next((name for name in columns if name != "reward"), None)
    if other is not None:
        raise UserError(f"--map {other}=... is not for {source}, whose columns are known: it takes reward=COLUMN only")
