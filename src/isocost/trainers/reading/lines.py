"""The lines of a log as one curve needs them: one name for a column, one line for a step, and steps that count from
where the trainer's own do.

Logs in the wild differ in three ways that a curve must not depend on. A column may be renamed in the middle of a log,
by a newer version of the trainer. Several lines may have one step, where a second clock counts lines (W&B's `_step`).
Steps may count from 0 where the trainer's usual ones count from 1, or the reverse.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import fmean
from typing import Any

from isocost.errors import UserError
from isocost.trainers.reading.logs import Row
from isocost.trainers.reading.names import EVALUATED, Names, columns_of
from isocost.trainers.reading.text import number

LEAP = 3.0  # largest difference across a renaming over the largest between neighbours, for the two to be one curve


def united(
    rows: Sequence[Row], chosen: str | None, patterns: Sequence[str], but: Sequence[str | None], option: str
) -> tuple[Sequence[Row], str | None, list[str]]:
    """(rows, column, what to say) with a reward that was renamed in the middle of the log under one name.

    `chosen` is a column, or several with commas between them where no column has that name: these are read as one. The
    other columns that a trainer's `patterns` match (none in `but`) are joined to it where one begins as the other ends
    and the rewards go on; where they do not, the message says what is not read.
    """
    there = columns_of(rows)
    if chosen is None:
        return rows, None, []
    if len(parts := named(chosen, there)) > 1:
        return _merged(rows, parts[0], parts[1:]), parts[0], []
    others = [c for c in there if c not in (chosen, *but) and any(re.fullmatch(p, c) for p in patterns)]
    said: list[str] = []
    own = _where(rows, chosen)
    for other in sorted(others, key=lambda c: _apart(own, _where(rows, c))):
        also = _where(rows, other)
        if not set(also) - set(own) or not _goes_on(rows, chosen, own, other, also):
            continue
        before, after = (chosen, other) if own[0] < also[0] else (other, chosen)
        said.append(
            f"one name for {option}: {before} in the first lines, {after} in the later ones, and read as one curve "
            f"(--map {option}={chosen} reads one of them)"
        )
        rows = _merged(rows, chosen, [other])
        own = _where(rows, chosen)
    return rows, chosen, said or _cut_off(rows, chosen, own, [c for c in there if c not in but], option)


def named(text: str, there: Sequence[str]) -> list[str]:
    """The columns that a text names: one, or several with commas between them where no column has that name."""
    return [text] if text in there else [c.strip() for c in text.split(",")]


def _where(rows: Sequence[Row], column: str) -> list[int]:
    """The lines in which a column holds a number."""
    return [i for i, row in enumerate(rows) if number(row.get(column)) is not None]


def _apart(a: Sequence[int], b: Sequence[int]) -> int:
    return min(abs(a[0] - b[-1]), abs(b[0] - a[-1])) if a and b else 0


def _goes_on(rows: Sequence[Row], a: str, own: Sequence[int], b: str, also: Sequence[int]) -> bool:
    """Whether two columns are one curve: equal where both are, else one after the other without a leap."""
    both = sorted(set(own) & set(also))
    if both:
        return all(rows[i][a] == rows[i][b] for i in both)
    if not own or not also or not (own[-1] < also[0] or also[-1] < own[0]):
        return False
    (first, x), (second, y) = ((own, a), (also, b)) if own[0] < also[0] else ((also, b), (own, a))
    each = [[float(rows[i][c]) for i in lines] for lines, c in ((first, x), (second, y))]
    steps = [abs(q - p) for values in each for p, q in pairwise(values)]
    return bool(steps) and abs(each[1][0] - each[0][-1]) <= LEAP * max(steps)


def _merged(rows: Sequence[Row], column: str, others: Sequence[str]) -> list[Row]:
    """Rows whose `column` holds the first number of it and of `others`, which are left out."""
    out = []
    for row in rows:
        values = [row[c] for c in (column, *others) if row.get(c) not in (None, "")]
        rest = {k: v for k, v in row.items() if k not in others}
        out.append({**rest, column: next((v for v in values if number(v) is not None), values[0])} if values else rest)
    return out


def _cut_off(rows: Sequence[Row], chosen: str, own: Sequence[int], there: Sequence[str], option: str) -> list[str]:
    """What is not read where another column of numbers begins in the line after the last of the chosen one, or ends in
    the line before its first: it may be the same one under another name."""
    if not own:
        return []
    filled = {c: lines for c in there if c != chosen and (lines := _where(rows, c))}
    near = sorted(
        c for c, lines in filled.items()
        if len(lines) > 1 and _goes_on(rows, chosen, own, c, lines) and _next_to(rows, chosen, own, lines)
    )
    return [
        f"lines without {chosen}: {name} is in {len(filled[name])} others and not read; if it is the same reward, give "
        f"--map {option}={chosen},{name}" for name in near[:1]
    ]


def _next_to(rows: Sequence[Row], chosen: str, own: Sequence[int], lines: Sequence[int]) -> bool:
    """Whether the lines of another column begin close to the end of the chosen one, by its own spacing, or end so."""
    spacing = 2 * max((b - a for a, b in pairwise(own)), default=1)
    return 0 < lines[0] - own[-1] <= spacing or 0 < own[0] - lines[-1] <= spacing


def one_a_step(rows: Sequence[Row], step: str, reward: str | None, clock: str) -> tuple[Sequence[Row], list[str]]:
    """(rows, what to say) with one line a step, the mean of its lines: a trainer that logs every micro-batch of an
    update has several. `clock` rises from line to line, or all may not be of one process and the rows stay as they are;
    its last value is kept."""
    if step == clock or not reward or not rises(rows, clock):
        return rows, []
    out: list[Row] = []
    most = 0
    for at, lines in groupby(rows, key=lambda row: number(row.get(step))):
        own = list(lines)
        if at is None or len(own) == 1:
            out += own
            continue
        most = max(most, len(_where(own, reward)))
        out.append({c: own[-1][c] if c == clock else _mean([r.get(c) for r in own]) for c in columns_of(own)})
    if most < 2:
        return rows, []
    return out, [f"one line per {step}: {reward} is in up to {most} lines of one, and their mean is read"]


def rises(rows: Sequence[Row], clock: str) -> bool:
    """Whether a column rises from line to line, so that one process wrote all of them."""
    ticks = [number(row.get(clock)) for row in rows]
    return all(a is not None and b is not None and a < b for a, b in pairwise(ticks))


def _mean(cells: Sequence[Any]) -> Any:
    """The mean of the numbers among cells; without any, the last cell."""
    numbers = [x for x in map(number, cells) if x is not None]
    return fmean(numbers) if numbers else cells[-1]


def numbered(
    rows: Sequence[Row], step: str, reward: str | None, held: str | None, names: Names
) -> tuple[Sequence[Row], list[str]]:
    """(rows, what to say) with steps that count from `names.first`, where the training rewards show that these do not.

    Raises UserError for steps below 0, except -1 for an evaluation before the first update of a log that counts from 0.
    """
    trained = [x for row in rows if (x := _at(row, step, reward)) is not None]
    seen = [x for row in rows if (x := _at(row, step, held)) is not None]
    more = names.first - _begins(trained, names.first)
    low = min((x for row in rows if (x := number(row.get(step))) is not None), default=0.0)
    if low < 0 and not (more > 0 and low == min(seen, default=0.0) == -1):
        raise UserError(f"{step} is {low:g}; steps count from 0 or 1, so leave out the lines below 0")
    if not more:
        return rows, []
    later, others = _moves(seen, trained[-1], more)
    out: list[Row] = []
    for row in rows:
        at, alone = number(row.get(step)), number(row.get(reward or "")) is None
        if at is None:
            out.append(row)
            continue
        policy = at + (later if at > 0 else others)
        if _at(row, step, held) is None or alone:
            out.append({**row, step: at + more if _at(row, step, held) is None else policy})
            continue
        measured = [k for k in row if k in (held, *EVALUATED) or (names.policy and re.fullmatch(names.policy, k))]
        evaluation = {**{k: row[k] for k in measured}, step: policy}
        training = {**{k: v for k, v in row.items() if k not in measured}, step: at + more}
        out += [evaluation, training] if policy < at + more else [training, evaluation]
    said = f"steps that count from {names.first}: here {step} = s is update s{1 - names.first + more:+d}"
    where = f", and {held} there of the policy with s{later:+d} updates" if held else ""
    return out, [(said + where).replace("s+0", "s")]


def _at(row: Row, step: str, column: str | None) -> float | None:
    """The step of a line with a number in a column, else None."""
    return None if column is None or number(row.get(column)) is None else number(row.get(step))


def _begins(steps: Sequence[float], usual: int) -> int:
    """The number of a log's first update, 0 or 1, by the steps of its training rewards; else the `usual` one."""
    each = Counter(b - a for a, b in pairwise(steps) if b > a)
    if not each:
        return usual
    spacing = each.most_common(1)[0][0]
    if spacing == 1:
        return int(steps[0]) if steps[0] in (0, 1) else usual
    if 0.0 in steps:
        return usual
    most = {first: sum((s + 1 - first) % spacing == 0 for s in steps) * 2 > len(steps) for first in (0, 1)}
    return next((first for first, holds in most.items() if holds), usual)


def _moves(seen: Sequence[float], last: float, more: int) -> tuple[int, int]:
    """What to add to the steps of evaluations, and of one at 0 or before, to have the updates of their policies."""
    if more < 0:
        return (0, 0) if 0.0 in seen else (more, more)
    if -1.0 in seen:
        return more, more
    after = sorted({s for s in seen if s > 0})
    each = [b - a for a, b in pairwise(after)]
    spacing = Counter(each).most_common(1)[0][0] if each else 0
    late = (after[0] + 1) % spacing == 0 < after[0] % spacing if spacing else after == [last]
    return more if late else 0, 0
