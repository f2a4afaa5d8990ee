"""From a log's rows to points: which policy a logged number belongs to, and what had been spent by then.

A trainer's step is one of two kinds. Where steps count from 1, the training reward at step s was earned before the
s-th update, so by a policy with s - 1 updates; averaged over k steps, with s - (k + 1) / 2. Where they count from 0
it is of a policy with s updates. Held-out rewards are measured between updates.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

from isocost.errors import UserError, naming
from isocost.runs.files import DIVERGED
from isocost.runs.measure import HELD_OUT, TRAINING
from isocost.screen.words import counted
from isocost.trainers.reading.lines import named, numbered, one_a_step, rises, united
from isocost.trainers.reading.logs import DECAYED, STACKED, Empty, Log, Point, Row
from isocost.trainers.reading.names import EVALUATED, Names, columns_of, match
from isocost.trainers.reading.stitch import Columns, attempts_of, clocked, spaced, stitch
from isocost.trainers.reading.text import collapsed, number, unread, whole

RISEN = 0.99  # share of its maximum at which a learning rate has ended its warm-up
CONSTANT = 0.9  # a learning rate that never falls below this share of its maximum counts as constant
SUM = re.compile(r"(.*?)reward")  # TRL's sum of reward functions; each has a column of its own, with {0} before it:
PART = r"{0}rewards ?[/.] ?(?P<name>[^/.]+?)( ?[/.] ?mean)?"
FEW = 0.1  # largest share of a table's lines at which its steps go back, for it to be one run that was resumed
RENAMED = ("reward", "held_out")  # columns that --map may give several names of
PLAIN = "plain"  # the trainer of tables of unknown origin
MOST = 20  # columns whose pairs are tried to separate the runs of one table


def logs_of(
    source: str, path: Path, files: Sequence[Path], rows: Sequence[Row], names: Names, columns: Mapping[str, str], *,
    facts: Mapping[str, Any] | None = None, name: str | None = None, **options: Any,
) -> list[Log]:
    """Rows as logs, by a trainer's names or those that the user gave instead; the options are fields of
    `LoggedRows`.

    One log, or one for each value of the columns that the user gave for seed, n, B and run (`STACKED`): the rows of
    several runs in one table. Raises UserError for a column that is not there, for a seed, n or B that is no integer,
    and for steps that go back or are below 0; Empty where no row holds a reward.
    """
    if not rows:
        raise Empty(f"{path} holds no logged line")
    there = columns_of(rows)
    asked = [c for key, text in columns.items() for c in (named(text, there) if key in RENAMED else [text])]
    wrong = next((c for c in asked if c not in there), None)
    if wrong is not None:
        raise UserError(f"{path} has no column {wrong!r}; it has {_some(there)}")
    by = {k: columns[k] for k in STACKED if k in columns}
    own = {k: v for k, v in columns.items() if k not in by}
    plain = name or (path.stem if path.is_file() else path.resolve().name)
    found = []
    for key, block in _blocks(path, rows, by).items():
        stated = {k: v for k, v in key if k != "run"}
        parts = [str(v) if k == "run" else f"{'s' if k == 'seed' else k}{v}" for k, v in key]
        label = "-".join([*([] if "run" in by else [plain]), *parts])
        known = {**(facts or {}), **stated}
        table = LoggedRows(source, label, path, tuple(files), block, names.mapped(own), own, known, **options)
        found.append(table.log())
    return found


def _blocks(path: Path, rows: Sequence[Row], by: Mapping[str, str]) -> dict[tuple[tuple[str, Any], ...], list[Row]]:
    """((fact, value), ...) -> its rows, in order of appearance, for the columns `by` fact."""
    out: dict[tuple[tuple[str, Any], ...], list[Row]] = {}
    for row in rows:
        key: list[tuple[str, Any]] = []
        for fact, column in by.items():
            cell = row.get(column)
            value = whole(cell)
            if cell in (None, ""):
                raise UserError(f"{path}: {column} is empty in a line, so its run is not known")
            if value is None and fact != "run":
                raise UserError(f"{path}: expected an integer in {column}, got {cell!r}: give --map run={column}")
            key.append((fact, cell if value is None else value))
        out.setdefault(tuple(key), []).append(row)
    return out


@dataclass(frozen=True)
class LoggedRows:
    """The rows of one run, and what is known of its log beside them.

    names: the trainer's columns, or those in `given`, which the user named, by our names. facts: n, B, lr and seed as
    far as they are known, each at most `rounding` from its logged value; about: the settings to record. missing: notes
    on what such logs lack; uncounted: what C is if no column counts rollouts. every: updates between evaluations, where
    that is known. clock: a column that counts lines. settled: the rows are one curve already, with the columns and the
    steps that `names` says. joined: the rows are of one run, out of several logs.
    """

    source: str
    name: str
    path: Path
    files: tuple[Path, ...]
    rows: Sequence[Row]
    names: Names
    given: Mapping[str, str]
    facts: Mapping[str, Any]
    about: Mapping[str, Any] | None = None
    missing: Sequence[str] = ()
    uncounted: str = ""
    rounding: Mapping[str, float] | None = None
    every: int | None = None
    clock: str = ""
    settled: bool = False
    joined: bool = False

    def log(self) -> Log:
        """The run, by its rows.

        Its columns are chosen first. The rows are then made the lines of one curve (one line a step, steps as the
        trainer's names count them, what a resume repeated left out), and their order is checked. What is left is read
        as it stands.
        """
        names, there = self.names, columns_of(self.rows)
        step = names.step
        reward, held = self._rewards(there)

        rows, said = self.rows, list[str]()
        if not self.settled:
            rows, reward, held, said = _one_curve(self, reward, held)
            one = self.joined or (rises(rows, self.clock) if self.clock else names.trainer not in ("", PLAIN))
            names = replace(names, appends=names.appends or _continued(rows, step, reward or held, one))
        rows, resumed = _stitched(rows, Columns(step, reward, held, names.first, names.policy), names, self.every)
        for column in (reward, held):
            _in_order(self.path, rows, step, column)

        rates, warmed = _numbers(rows, names.lr), _warmed(rows, step, names.lr, names.first)
        facts, about = dict(self.facts), dict(self.about or {})
        if rates and facts.get("lr") is None:
            facts["lr"] = max(rates)
        if warmed:
            about.setdefault("warmup", warmed)

        counted_by = (names.rollouts or names.per_step, names.epoch, names.lr, names.length, names.span)
        lacks = [*self.missing, *said, *resumed, *unread(rows, (step, reward, held, names.seconds, *counted_by))]
        if self.uncounted and not names.rollouts:
            lacks.append(f"rollouts before filtering: {self.uncounted}")
        lacks += decayed(rates)
        there = columns_of(rows)
        if "held_out" not in self.given:
            lacks += _others(names.held, there, held, reward)

        if names.appends:
            rows = clocked(rows, names.seconds)
        if any(b < a for a, b in pairwise(_numbers(rows, names.seconds))):
            lacks.append(f"seconds: {names.seconds} decreases, so the time of a step is not known")
            names = replace(names, span="", seconds="")
        return Log(
            self.source, self.name, self.files,
            tuple(_train(rows, reward, names)) if reward else (), tuple(_held(rows, held, names)) if held else (),
            reward or None, held or None, facts, about, missing=tuple(lacks),
            end=DIVERGED if collapsed(rows, held or reward or "") else None, rate=_rate(rows, step, names.rollouts),
            parts={TRAINING: _parts(reward, there), HELD_OUT: _parts(held, there)}, rounding=dict(self.rounding or {}),
            rows=tuple(self.rows), remade=lambda rows: replace(self, rows=rows, joined=True).log(),
        )

    def _rewards(self, there: Sequence[str]) -> tuple[str | None, str | None]:
        """The columns of the training and of the held-out reward. Raises UserError without a column of steps, Empty
        without a reward."""
        names = self.names
        if names.step not in there:
            raise UserError(f"{self.path} has no column {names.step!r}, which counts steps; it has {_some(there)}: "
                            "name it with --map step=COLUMN")
        reward = self.given.get("reward") or _first(names.reward, there, ())
        held = self.given.get("held_out") or _first(names.held, there, (reward,))
        if not reward and not held:
            raise Empty(f"{self.path} has no column {_plain(names.reward)}; it has {_some(there)}: name the one that "
                        "holds rewards with --map reward=COLUMN (training) or --map held_out=COLUMN")
        return reward, held


def _one_curve(
    table: LoggedRows, reward: str | None, held: str | None
) -> tuple[Sequence[Row], str | None, str | None, list[str]]:
    """(rows, columns of the training and of the held-out reward, what to say) of a log whatever it calls its rewards,
    however many lines a step has, and wherever its steps begin.

    Raises UserError where rewards and steps are never in one line.
    """
    rows, names, clock, step = table.rows, table.names, table.clock, table.names.step
    reward_known, held_known = (() if option in table.given else patterns
                                for option, patterns in (("reward", names.reward), ("held_out", names.held)))
    rows, reward, said = united(rows, reward, reward_known, [step, clock, held], "reward")
    rows, held, also = united(rows, held, held_known, [step, clock, reward], "held_out")
    for column in (reward, held):
        _together(table.path, rows, step, column)
    rows, mean = one_a_step(rows, step, reward or held, clock)
    with naming(table.path):
        rows, moved = numbered(rows, step, reward, held, names)
    return rows, reward, held, [*said, *also, *mean, *moved]


def _together(path: Path, rows: Sequence[Row], step: str, column: str | None) -> None:
    """Raises UserError if no line with this column has a step, but others have."""
    own = [row for row in rows if column and number(row.get(column)) is not None]
    others = sum(number(row.get(step)) is not None for row in rows)
    if own and others and all(number(row.get(step)) is None for row in own):
        raise UserError(
            f"{path}: {column} is in {counted(len(own), 'line')}, and {step} in none of them but in {others} others, "
            "so their policies are not known: log both in one line, or name a column that counts updates in the lines "
            "with rewards (--map step=COLUMN)"
        )


def _parts(reward: str | None, there: Sequence[str]) -> list[str]:
    """The columns whose sum a column is, one for each reward function, in TRL's names; none of another column."""
    found = SUM.fullmatch(reward or "")
    pattern = PART.format(re.escape(found[1])) if found else None
    parts = {m["name"]: c for c in reversed(there) if pattern and (m := re.fullmatch(pattern, c))}
    return list(reversed(parts.values()))


def _in_order(path: Path, rows: Sequence[Row], step: str, column: str | None) -> None:
    """Raises UserError if the steps of the lines with this column go back or repeat: then the table holds several runs,
    or one that was resumed, and the policy of a line is not known."""
    lines = [row for row in rows if column and None not in (number(row.get(step)), number(row.get(column)))]
    for before, after in pairwise(row[step] for row in lines):
        if before < after:
            continue
        moved = f"goes back from {before:g} to {after:g}" if after < before else f"is {after:g} in two lines"
        apart = sorted((STACKED.index(_fact(c)), c) for c in _apart(lines, step, column))
        options = " ".join(f"--map {STACKED[place]}={c}" for place, c in apart)
        how = options or (
            "--map seed=COLUMN (or n=, B=, run=), or import each from its own file; of a resumed run, remove the lines "
            "that were logged again"
        )
        raise UserError(
            f"{path}: {step} {moved}, so this is more than one run, or one that was resumed: separate the runs with "
            f"{how}"
        )


def _apart(lines: Sequence[Row], step: str, column: str | None) -> tuple[str, ...]:
    """The columns, one or two, by which these lines are runs whose steps only rise; none where no columns do it."""
    few = [
        c for c in columns_of(lines)
        if c not in (step, column) and 1 < len({str(row.get(c)) for row in lines}) <= len(lines) / 2
    ]
    few.sort(key=lambda c: -STACKED.index(_fact(c)))  # a seed first, a column of unknown meaning last
    for columns in (*((c,) for c in few), *combinations(few[:MOST], 2)):
        runs: dict[tuple[Any, ...], list[float]] = {}
        for row in lines:
            runs.setdefault(tuple(row.get(c) for c in columns), []).append(row[step])
        if len({_fact(c) for c in columns}) == len(columns) and all(
            a < b for steps in runs.values() for a, b in pairwise(steps)
        ):
            return columns
    return ()


def _fact(column: str) -> str:
    """Which of `STACKED` a column tells, by its name."""
    if "seed" in column.lower():
        return "seed"
    return "n" if column in ("n", "num_generations", "group_size") else "B" if column == "B" else "run"


def _stitched(
    rows: Sequence[Row], columns: Columns, names: Names, every: int | None
) -> tuple[Sequence[Row], list[str]]:
    """The rows of a trainer that repeats lines when a run is resumed as those of one curve, and what was left out."""
    if not (names.again or names.appends):
        return rows, []
    planned = spaced(rows, columns, every)
    made = stitch(attempts_of(rows, columns) if names.appends else [rows], columns, planned)
    held, out = columns.held, []
    if made.lost:
        steps = f"{columns.step} {min(made.lost):g} to {max(made.lost):g}"
        out.append(
            f"what a resume lost: the run was continued {counted(len(made.resumed) - 1, 'time')}, and "
            f"{counted(len(made.lost), 'line')} ({steps}) were logged again; the later ones are read, and the rollouts "
            "of the earlier ones are not in C"
        )
    if made.repeated:
        out.append(
            f"a single evaluation per policy: {held} was measured again at {columns.step} {_list(made.repeated)} (a "
            "resumed run evaluates again at its start); the first is used"
        )
    if made.unplanned:
        out.append(
            f"evaluations at {columns.step} {_list(made.unplanned)}: a resumed run's, between those every {every} "
            "updates, and left out"
        )
    return made.rows, out


def _continued(rows: Sequence[Row], step: str, column: str | None, one: bool) -> bool:
    """Whether lines are those of one resumed run: steps go back seldom, never to the first; or they are of `one`."""
    lines = [row for row in rows if column and None not in (number(row.get(step)), number(row.get(column)))]
    steps = [row[step] for row in lines]
    back = [b for a, b in pairwise(steps) if b <= a]
    if not back or min(back) <= steps[0]:
        return False
    return one or (len(back) <= max(1.0, FEW * len(steps)) and not _apart(lines, step, column))


def _list(steps: Sequence[float]) -> str:
    return _some([f"{s:g}" for s in sorted(set(steps))], 4)


def _rate(rows: Sequence[Row], step: str, column: str | None) -> float | None:
    """The least of rollouts / steps in a row. The policy of a row has had as many updates as its step, or one fewer."""
    counts = [(number(row.get(column)), number(row.get(step))) for row in rows] if column else []
    return min((count / at for count, at in counts if count is not None and at), default=None)


def _warmed(rows: Sequence[Row], step: str, column: str, first: int) -> int | None:
    """Updates before the first line with the highest learning rate; None if that is the first line with a rate."""
    rates = [(number(r.get(step)), number(r.get(column))) for r in rows]
    lines = [(at, lr) for at, lr in rates if at is not None and lr is not None]
    highest = max((lr for _, lr in lines), default=0.0)
    top = next((at for at, lr in lines if lr >= RISEN * highest), None)
    return None if top is None or top == lines[0][0] else round(top - first + 1)


def decayed(rates: Sequence[float]) -> list[str]:
    """What is missing if a logged learning rate, in order of time, falls after its maximum."""
    after = rates[rates.index(max(rates)) :] if rates else ()
    if not after or min(after) >= CONSTANT * after[0]:
        return []
    return [f"{DECAYED} the logged one decayed, so the middle of a run does not predict the end of a shorter run"]


def _others(patterns: Sequence[str], there: Sequence[str], held: str | None, reward: str | None) -> list[str]:
    """What is missing if a log has several held-out rewards and one of them is read."""
    left = [c for c in there if held and c not in (held, reward) and any(re.fullmatch(p, c) for p in patterns)]
    return [f"other held-out rewards: {held} is read, {_some(left)} not (--map held_out=COLUMN)"] if left else []


@dataclass(frozen=True)
class _Total:
    """What a run had spent after `updates` updates; None if the log does not count it."""

    updates: float
    rollouts: float | None
    seconds: float | None
    epoch: float | None


def _totals(rows: Sequence[Row], names: Names) -> list[_Total]:
    """Totals after rows that count something, in order. A row of fewer updates than those before it replaces them."""
    out: list[_Total] = []
    started = clock = last = 0.0
    counts = times = False
    for row in rows:
        at = number(row.get(names.step))
        own, span = (number(row.get(k)) if k else None for k in (names.per_step, names.span))
        counted, when = (number(row.get(k)) if k else None for k in (names.rollouts, names.seconds))
        clock += next((x for k in EVALUATED if (x := number(row.get(k))) is not None), 0.0)
        if at is None or all(x is None for x in (own, span, counted, when)):
            continue
        done = at - names.first + 1
        new = max(0.0, done - last)  # two rows of one step, a sampler's and a trainer's, count once
        started = counted if counted is not None else started + new * (own or 0.0)
        clock = when if when is not None else clock + new * (span or 0.0)
        counts, times = counts or (counted, own) != (None, None), times or (when, span) != (None, None)
        last = max(last, done)
        epoch = number(row.get(names.epoch))
        while out and out[-1].updates >= done:
            out.pop()
        out.append(_Total(done, started if counts else None, clock if times else None, epoch))
    return out


def _spent(totals: Sequence[_Total], updates: float) -> _Total:
    """Totals at this number of updates; nothing is spent before the first."""
    if updates <= 0:
        counts, times = (any(getattr(t, k) is not None for t in totals) for k in ("rollouts", "seconds"))
        return _Total(0.0, 0.0 if counts else None, 0.0 if times else None, None)
    at = bisect_right(totals, updates, key=lambda t: t.updates)
    return totals[at - 1] if at else _Total(updates, None, None, None)


def _train(rows: Sequence[Row], reward: str, names: Names) -> list[Point]:
    out: list[Point] = []
    totals = _totals(rows, names)
    lines = [
        (row, at, x)
        for row in rows
        if (at := number(row.get(names.step))) is not None and (x := number(row.get(reward))) is not None
    ]
    # A log that begins late, as of a resumed run, begins with a mean over no more steps than its next line's.
    last = max(0.0, 2 * lines[0][1] - lines[1][1] - names.first + 1) if len(lines) > 1 else 0.0
    for row, at, value in lines:
        done = at - names.first + 1
        k = done - last
        policy = max(0.0, done - (k + 1) / 2)
        spent = _spent(totals, policy)
        more = {ours: x for ours, theirs in names.more.items() if (x := number(row.get(theirs))) is not None}
        length = number(row.get(names.length))
        if length is not None:
            turns = number(row.get(names.turns))
            more["completions/mean_length"] = length * (1.0 if turns is None else turns)
        epoch = number(row.get(names.epoch))
        out.append(
            Point(policy, value, spent.rollouts, spent.seconds, epoch, done, _spent(totals, done).rollouts, more)
        )
        last = done
    return out


def _held(rows: Sequence[Row], held: str, names: Names) -> list[Point]:
    out: list[Point] = []
    totals = _totals(rows, names)
    for row in rows:
        at, value = number(row.get(names.step)), number(row.get(held))
        if at is None or value is None:
            continue
        policy = next(
            (
                x
                for k, v in row.items()
                if names.policy and re.fullmatch(names.policy, k)
                if (x := number(v)) is not None
            ),
            at,
        )
        spent = _spent(totals, policy)
        own, when = (number(row.get(k)) if k else None for k in (names.rollouts, names.seconds))
        out.append(
            Point(
                policy, value, spent.rollouts if own is None else own, spent.seconds if when is None else when,
                number(row.get(names.epoch)),
            )
        )
    return out


def _numbers(rows: Sequence[Row], column: str) -> list[float]:
    return [x for x in (number(row.get(column)) for row in rows) if x is not None]


def _first(patterns: Sequence[str], columns: Sequence[str], but: Any) -> str | None:
    left = [c for c in columns if c not in but]
    return next((c for p in patterns if (c := match(p, left))), None)


def _some(columns: Sequence[str], most: int = 8) -> str:
    return ", ".join(columns[:most]) + (f" and {len(columns) - most} more" if len(columns) > most else "")


def _plain(patterns: Sequence[str]) -> str:
    return " or ".join(repr(re.sub(r"\(\?:.*?\)\?|\\d\+", "N", p)) for p in patterns) or "for the reward"
