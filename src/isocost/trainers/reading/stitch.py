"""One curve from the log of a run that was stopped and continued.

A run that continues from a checkpoint repeats what it had done since. Its log then has some steps twice: a trainer
that appends to its log (prime-rl) writes them again behind the first, one that restores its history (TRL) evaluates
the checkpoint again, and one that truncates its log (verl) has a file for each attempt. An *attempt* is the lines that
one process wrote. Of steps that were made twice, the later attempt's are those that the run went on from, and the
earlier ones are lost. An evaluation of the checkpoint itself is of one policy in both attempts, and the first is kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from isocost.trainers.reading.logs import Row
from isocost.trainers.reading.text import number


@dataclass(frozen=True)
class Columns:
    """The columns of a log: its step, its training and held-out reward (None if it has none), and its first step.

    `policy` is the pattern of the column with the updates of an evaluated policy; without it they are its step.
    """

    step: str
    reward: str | None
    held: str | None
    first: int = 1
    policy: str = ""

    def trained(self, row: Row) -> float | None:
        """The step of a line with a training reward, else None."""
        return None if self.reward is None or number(row.get(self.reward)) is None else number(row.get(self.step))

    def evaluated(self, row: Row) -> float | None:
        """The updates of the policy of a line with a held-out reward, else None."""
        if self.held is None or number(row.get(self.held)) is None:
            return None
        known = (number(v) for k, v in row.items() if self.policy and re.fullmatch(self.policy, k))
        return next((x for x in known if x is not None), number(row.get(self.step)))

    def updates(self, row: Row) -> float | None:
        """The updates that the run had made when it wrote a line that is no evaluation alone; None without a step."""
        at = number(row.get(self.step))
        return None if at is None else at - self.first + 1


@dataclass(frozen=True)
class Stitched:
    """The lines of one curve. `lost` are the steps of training lines that a later attempt made again, `repeated` those
    of evaluations of a policy that was evaluated already, `unplanned` those of other evaluations that were left out.
    `resumed` has for each attempt that logged something the number of updates that it continued from."""

    rows: tuple[Row, ...]
    lost: tuple[float, ...] = ()
    repeated: tuple[float, ...] = ()
    unplanned: tuple[float, ...] = ()
    resumed: tuple[float, ...] = ()


def attempts_of(rows: Sequence[Row], columns: Columns) -> list[list[Row]]:
    """The lines of a log that resumed runs append to, by attempt: one begins where steps go back or repeat."""
    out: list[list[Row]] = []
    trained = evaluated = float("-inf")
    for row in rows:
        at, seen = columns.trained(row), columns.evaluated(row)
        if not out or (at is not None and at <= trained) or (seen is not None and seen < evaluated):
            out.append([])
            trained = evaluated = float("-inf")
        out[-1].append(row)
        trained, evaluated = at if at is not None else trained, seen if seen is not None else evaluated
    return out


def stitch(
    attempts: Sequence[Sequence[Row]], columns: Columns, planned: Collection[float] | None = None
) -> Stitched:
    """The attempts of one run, in order, as one curve; with `planned`, evaluations after other updates are left out."""
    kept: list[Row] = []
    lost: list[Row] = []
    repeated: list[float] = []
    unplanned: list[float] = []
    resumed: list[float] = []
    for rows in attempts:
        started = _started(rows, columns)
        if started is None:       # it died before it logged anything, and nothing is lost by it
            kept += rows
            continue
        resumed.append(started)
        if kept:
            whole, kept = kept, []
            for row in whole:
                at, seen = columns.trained(row), columns.evaluated(row)
                late = (columns.updates(row) or 0.0) > started
                if at is not None and late:
                    lost.append(row)
                    if seen is not None and seen <= started:
                        kept.append({k: v for k, v in row.items() if k != columns.reward})
                elif seen is not None and seen > started:
                    kept += _unevaluated(row, columns)
                elif seen is not None or not late:
                    kept.append(row)
        there = {seen for row in kept if (seen := columns.evaluated(row)) is not None}
        for row in rows:
            seen = columns.evaluated(row)
            if seen is None or (seen not in there and (planned is None or seen in planned)):
                kept.append(row)
                there |= set() if seen is None else {seen}
                continue
            (repeated if seen in there else unplanned).append(seen)
            kept += _unevaluated(row, columns)
    steps = tuple(at for row in lost if (at := columns.trained(row)) is not None)
    return Stitched(tuple(kept), steps, tuple(repeated), tuple(unplanned), tuple(resumed))


def spaced(rows: Sequence[Row], columns: Columns, every: int | None) -> set[float] | None:
    """The updates of the policies that a trainer evaluates `every` so many, and last; None if that is not known."""
    steps = sorted({seen for row in rows if (seen := columns.evaluated(row)) is not None})
    even = {s for s in steps if every and s % every == 0} | set(steps[-1:])
    return even if every and len(even & set(steps[:-1])) * 2 >= len(steps[:-1]) else None


def clocked(rows: Sequence[Row], column: str) -> list[Row]:
    """The lines of a curve with a clock that goes on over attempts, where each attempt's begins at 0."""
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


def _started(rows: Sequence[Row], columns: Columns) -> float | None:
    """Updates that an attempt continued from: those before its first training line, which may be a mean over several
    steps; where it has none, the first that it evaluated. None if it logged neither."""
    steps = [at for row in rows if (at := columns.trained(row)) is not None]
    seen = [s for row in rows if (s := columns.evaluated(row)) is not None]
    if not steps:
        return min(seen, default=None)
    spacing = min((b - a for a, b in pairwise(steps)), default=1.0)
    started = max(0.0, steps[0] - columns.first + 1 - spacing)
    return max(started, max((s for s in seen if s < steps[0] - columns.first + 1), default=0.0))


def _unevaluated(row: Row, columns: Columns) -> list[Row]:
    """A line without its evaluation; nothing where it is only that."""
    return [] if columns.trained(row) is None else [{k: v for k, v in row.items() if k != columns.held}]
