"""TensorBoard event files, read without TensorBoard: the scalars that TRL or verl wrote, or columns you name.

transformers writes its training arguments as text into the same file, and they are read for n, B, learning rate and
seed. Seconds are wall time since the first event.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.trainers.driving.drive import Begin, Drive, Setup
from isocost.trainers.reading.logs import Log, Row
from isocost.trainers.reading.names import Names, facts_of, spoken
from isocost.trainers.reading.points import logs_of
from isocost.trainers.reading.wire import arguments_of, events, is_events
from isocost.trainers.trl import BOARD

TITLE = "TensorBoard"
READS = "TensorBoard event files"
GIVES = "every scalar with step and wall time; n, B, rate and seed where transformers wrote its arguments"
LACKS = "n, B and seed elsewhere; rollouts before filtering; a second held-out half"
PATTERN = "events.out.tfevents.*"
FOLDER = "board"       # of an attempt that is driven
DATED = re.compile(r"\w+\d\d_\d\d-\d\d-\d\d_.+")  # %b%d_%H-%M-%S_HOST, as PyTorch's writer has it
UNKNOWN = Names("", "step", (), seconds="wall")


def recognise(path: Path) -> bool:
    return bool(files_of(path))


def read(path: Path, columns: Mapping[str, str]) -> list[Log]:
    found = files_of(path)
    if not found:
        raise UserError(f"{path} holds no event file ({PATTERN})")
    rows, texts = board(found)
    arguments = arguments_of(texts)
    facts, about = facts_of(arguments) if arguments else ({}, {})
    known = spoken(rows) or UNKNOWN
    counted = known is BOARD
    known = replace(stepped(known), appends=True)
    return logs_of(
        "tensorboard",
        path,
        found,
        rows,
        known,
        columns,
        facts=facts,
        about=about,
        uncounted="" if counted else "the log counts steps, and C is steps x n x B",
        name=name_of(found[0].parent) if ".tfevents." in found[0].name else None,
    )


def files_of(path: Path) -> list[Path]:
    """The event files of a path, not of folders in it, in order of name, which is that of time."""
    if path.is_file():
        return [path] if is_events(path) else []
    return sorted(path.glob(PATTERN))


def logged(log: Path, folder: Path, launch: Mapping[str, Any], earlier: Sequence[Row]) -> list[Row]:
    """What an attempt has logged below the folder `log` (`Drive.rows`), which PyTorch writes two minutes late."""
    rows, _ = board(events_below(log))
    return rows


def drive(prepare: Callable[[Begin], Setup], names: Names, **more: Any) -> Drive:
    """How a trainer is driven whose attempts log into `FOLDER` of their own; `more` are other fields of `Drive`."""
    return Drive(prepare, logged, lambda rows: stepped(names), log="{folder}/" + FOLDER, late=True, **more)


def events_below(folder: Path) -> list[Path]:
    """The event files in a folder and the folders in it, in order of time; one that was just started is left out."""
    found = sorted(folder.rglob(PATTERN), key=lambda p: (p.name, str(p)))
    return [p for p in found if p.is_file() and is_events(p)]


def stepped(names: Names) -> Names:
    """A trainer's names, with the step and the time of TensorBoard's own events."""
    return replace(names, step="step", span="", seconds="wall")


def name_of(folder: Path) -> str:
    """What a run is called: the nearest folder that is neither `runs` nor, as transformers has it, a date inside it."""
    folder = folder.resolve()
    if folder.parent.name == "runs" and DATED.fullmatch(folder.name):
        folder = folder.parent
    return folder.parent.name if folder.name == "runs" else folder.name


def board(paths: list[Path], *, apart: bool = False) -> tuple[list[Row], dict[str, str]]:
    """(one row per step with its scalars, texts). `wall` is seconds from the first event to the step's first scalar.

    A process that continues a run writes a file of its own: where most scalars of a file begin at a step that earlier
    ones had reached, its rows come behind theirs, and else between them. Several values of one scalar at one step are
    averaged; `apart` gives every event a row of its own instead: episodes may end together.
    """
    attempts: list[dict[tuple[int, int], Row]] = [{}]
    texts: dict[str, str] = {}
    start: float | None = None
    for path in paths:
        own: dict[tuple[int, int], Row] = {}
        counts: Counter[tuple[int, str]] = Counter()
        for step, wall, scalars, said in events(path):
            start = wall if start is None else start
            texts |= said
            if scalars:
                row = own.setdefault((step, len(own) if apart else 0), {"step": step, "wall": wall - start})
                for tag, value in scalars.items():
                    many = counts[step, tag] = 1 if apart else counts[step, tag] + 1
                    row[tag] = value if many == 1 else row[tag] + (value - row[tag]) / many
        if apart or not _again(own, attempts[-1]):
            number = len(attempts[-1]) if apart else 0
            for (step, i), row in own.items():
                attempts[-1][step, i + number] = {**attempts[-1].get((step, i + number), {}), **row}
        else:
            attempts.append(own)
    return [rows[at] for rows in attempts for at in sorted(rows)], texts


def _again(own: Mapping[tuple[int, int], Row], before: Mapping[tuple[int, int], Row]) -> bool:
    """Whether most scalars that two sets of rows share begin in one where the other has been."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for rows, ends in ((own, first), (before, last)):
        for step, i in sorted(rows, reverse=rows is own):
            ends |= dict.fromkeys((k for k in rows[step, i] if k not in ("step", "wall")), step)
    shared = first.keys() & last.keys()
    return bool(shared) and sum(first[k] <= last[k] for k in shared) * 2 > len(shared)
