"""Completions that were sampled before, with their rewards: read from a .jsonl or .parquet file, row by row.

A row is one attempt, or all attempts at one problem where its cells are lists. Columns are found by their usual names
or named by the user, with dots for what is inside an object ("usage.completion_tokens").
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from isocost.disk.shape import LARGEST
from isocost.errors import UserError
from isocost.screen.words import counted
from isocost.tasks.load import MOST_BROKEN, BadRow, Report
from isocost.tasks.rows import rows_of

# What a row may hold, and the names that columns of it usually have.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "problem": ("problem_id", "prompt_id", "question_id", "task_id", "problem", "prompt", "question", "messages", "id"),
    "prompt": ("prompt", "question", "problem", "messages"),
    "completion": ("completion", "response", "output", "generation", "completions", "responses", "outputs",
                   "generations", "text"),
    "reward": ("reward", "score", "correct", "is_correct", "passed", "rewards", "scores"),
    "tokens": ("tokens", "completion_tokens", "num_tokens", "n_tokens", "output_tokens", "usage.completion_tokens",
               "token_ids", "lengths"),
    "prompt_tokens": ("prompt_tokens", "input_tokens", "usage.prompt_tokens"),
    "stop": ("finish_reason", "stop_reason", "stop"),
    "level": ("level", "difficulty"),
}
# The same where a scorer's number and an answer to vote by are wanted: "score" is then not a name of the reward.
SCORED: Mapping[str, tuple[str, ...]] = {
    **COLUMNS,
    "reward": ("reward", "right", "correct", "is_correct", "passed", "rewards"),
    "score": ("score", "scores", "scorer", "verifier_score", "reward_model"),
    "answer": ("answer", "answers", "final_answer", "extracted_answer", "prediction", "pred"),
}
NEEDED = ("problem", "reward")
MOST_TOKENS = 2**24     # of one prompt or completion: no model reads or writes more, and sums stay whole numbers
MOST_LEFT_OUT = 0.05                # of the rows, that --skip-broken leaves out: the rest would be another sample
CUT = ("length", "max_tokens")      # reasons to stop of a completion that was cut
TAKES = {
    "reward": "a number, or true or false (null: the attempt was not scored)",
    "tokens": f"how many tokens the completion has: a whole number up to {MOST_TOKENS:,}, or the list of its token ids",
    "prompt_tokens": f"how many tokens the prompt has: a whole number up to {MOST_TOKENS:,}",
    "completion": "text", "stop": "text", "level": "a number or text", "answer": "text or a number",
    "score": "a number from 0 to 1, larger for a better completion: of a model's logit, its sigmoid",
    "problem": "the problem's id or prompt: text, a number, or a list of messages",
}


class OutOfRange(ValueError):
    """A reward that is not within the scale."""

    def __init__(self, why: str, value: float):
        super().__init__(why)
        self.value = value


@dataclass(frozen=True)
class Attempt:
    """One completion: its reward from 0 to 1 (None: not scored), text, tokens (None: not counted), if it was cut."""

    reward: float | None
    text: str = ""
    tokens: int | None = None
    cut: bool | None = None
    score: float | None = None      # of a scorer, and the answer to vote by: None where there is no such column
    answer: str | None = None


@dataclass(frozen=True)
class Attempted:
    """A problem and the attempts at it, in the order of the file."""

    id: str
    prompt: str
    level: int | float | str | None
    prompt_tokens: int | None
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class Completions:
    """Stored completions: the problems in the order of the file, which column held what, and the rows left out."""

    problems: tuple[Attempted, ...]
    columns: Mapping[str, str]
    report: Report


def read_completions(
    path: Path, columns: Mapping[str, str] | None = None, *, skip_broken: bool = False,
    scale: tuple[float, float] = (0.0, 1.0), names: Mapping[str, tuple[str, ...]] = COLUMNS,
) -> Completions:
    """The completions in a file. `columns` names the column of each key of `names` that has another name.

    `scale`: the least and the largest reward; `Attempt.reward` is 0 for the least and 1 for the largest. Raises
    UserError for a file that cannot be read; for a column that is missing or not named; for rewards outside the scale;
    and for rows that cannot be used, each with its line and what would be right, unless `skip_broken` leaves them out,
    which may be 5 % of the rows.
    """
    columns = dict(columns or {})
    if unknown := [k for k in columns if k not in names]:
        raise UserError(f"--map {unknown[0]}={columns[unknown[0]]}: the names are {', '.join(names)}")
    if not path.is_file():
        raise UserError(f"{path} does not exist, or is not a file")
    rows = rows_of(path, "completions")
    first = next(rows, None)
    if first is None:
        raise UserError(f"{path} has no rows")
    found = _columns(path, first[1], columns, names)
    broken: list[BadRow] = []
    by: dict[str, tuple[dict[str, Any], list[Attempt]]] = {}
    count, beyond = 0, list[float]()
    for where, row in chain([first], rows):
        count += 1
        try:
            key, about, attempts = _row(row, found, scale)
        except ValueError as e:
            broken.append(BadRow(where, str(e)))
            beyond += [e.value] if isinstance(e, OutOfRange) else []
            if len(broken) == MOST_BROKEN:
                break
            continue
        by.setdefault(key, (about, []))[1].extend(attempts)
    report = Report(count, tuple(broken))
    few = bool(by) and not beyond and len(broken) <= MOST_LEFT_OUT * count
    if broken and not (skip_broken and few):
        shown = "\n  ".join(report.lines())
        if beyond:
            how = (f"{len(beyond):,} of them for a reward outside {scale[0]:g} to {scale[1]:g}: give the least and the "
                   f"largest reward, such as --scale {_suggested([*beyond, *scale])}")
        elif few:
            how = "--skip-broken leaves them out"
        else:
            how = f"--skip-broken leaves out at most {MOST_LEFT_OUT:.0%} of the rows: the rest may be another sample"
        raise UserError(f"{path}: {len(broken):,} of {count:,} rows cannot be used ({how}):\n  {shown}")
    problems = tuple(Attempted(key, attempts=tuple(each), **about) for key, (about, each) in by.items())
    return Completions(problems, found, report)


def _suggested(rewards: Sequence[float]) -> str:
    """LOW,HIGH that holds these rewards, in round numbers."""
    low, high = (min((x for x in (1, 5, 10, 100, 1000) if x >= size), default=size)
                 for size in (max(0.0, -min(rewards)), max(rewards)))
    return f"{-low if min(rewards) < 0 else 0:g},{high:g}"


def _columns(
    path: Path, row: Any, named: Mapping[str, str], usual: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """The column of each key, by the user's names and those of the first row."""
    if isinstance(row, Exception) or not isinstance(row, Mapping):
        why = row if isinstance(row, Exception) else f"a row is an object, not {type(row).__name__}"
        raise UserError(f"{path}: its first row cannot be read: {why}")
    out = {}
    for key, names in usual.items():
        if key in named:
            if not _has(row, named[key]):
                raise UserError(f"{path} has no column {named[key]!r} (--map {key}={named[key]}); it has "
                                f"{', '.join(map(str, row))}")
            out[key] = named[key]
        elif there := next((name for name in names if _has(row, name)), None):
            out[key] = there
        elif key in NEEDED:
            raise UserError(f"{path} has no column for the {key} ({', '.join(names)}); it has "
                            f"{', '.join(map(str, row))}: name it with --map {key}=COLUMN")
    return out


def _has(row: Mapping[str, Any], name: str) -> bool:
    return name in row or _inside(row, name) is not None


def _inside(row: Mapping[str, Any], name: str) -> Any:
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _row(row: Any, columns: Mapping[str, str], scale: tuple[float, float]) -> tuple[str, dict[str, Any], list[Attempt]]:
    """(the problem's key, what is known of it, attempts). Raises ValueError that names the error and what is right."""
    if isinstance(row, Exception):
        raise row
    if not isinstance(row, Mapping):
        raise ValueError(f"a row is an object with {' and '.join(map(repr, NEEDED))}, not {type(row).__name__}")
    cells = {key: row[name] if name in row else _inside(row, name) for key, name in columns.items()}
    problem = cells["problem"]
    if problem is None or problem in ("", []) or isinstance(problem, bool | float | Mapping):
        raise _wrong("problem", columns, problem)
    level = cells.get("level")
    if isinstance(level, bool) or not isinstance(level, str | int | float | None):
        raise _wrong("level", columns, level)
    about = {
        "prompt": _text(cells.get("prompt", problem)), "level": level,
        "prompt_tokens": _count(_first(cells.get("prompt_tokens")), "prompt_tokens", columns),
    }
    return _key(problem), about, list(_attempts(cells, columns, scale))


def _first(cell: Any) -> Any:
    return cell[0] if isinstance(cell, Sequence) and not isinstance(cell, str) and cell else cell


def _attempts(cells: Mapping[str, Any], columns: Mapping[str, str], scale: tuple[float, float]) -> Iterator[Attempt]:
    """The attempts of a row: as many as it has rewards."""
    rewards = cells["reward"]
    several = isinstance(rewards, list | tuple)
    k = len(rewards) if several else 1
    each: dict[str, Sequence[Any]] = {"reward": rewards if several else [rewards]}
    for key in ("completion", "tokens", "stop", "score", "answer"):
        cell = cells.get(key)
        if several and isinstance(cell, list | tuple) and len(cell) != k:
            raise ValueError(f"{columns[key]!r} has {counted(len(cell), 'entry').replace('entrys', 'entries')} and "
                             f"{columns['reward']!r} has {k}: give one for each attempt")
        each[key] = cell if several and isinstance(cell, list | tuple) else [cell] * k
    for reward, text, tokens, stop, score, answer in zip(*each.values(), strict=True):
        if isinstance(text, list | tuple | Mapping):
            text = _text(text)
        if not isinstance(text, str | None):
            raise _wrong("completion", columns, text)
        yield Attempt(
            _reward(reward, columns, scale), text or "", _count(tokens, "tokens", columns),
            None if stop is None else str(stop) in CUT, _scored(score, columns), _answer(answer, columns),
        )


def _scored(value: Any, columns: Mapping[str, str]) -> float | None:
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not 0 <= value <= 1:      # also for NaN
        raise _wrong("score", columns, value)
    return float(value)


def _answer(value: Any, columns: Mapping[str, str]) -> str | None:
    if not isinstance(value, str | int | float | None):
        raise _wrong("answer", columns, value)
    return None if value is None else str(value).strip()


def _reward(value: Any, columns: Mapping[str, str], scale: tuple[float, float]) -> float | None:
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not abs(value) < LARGEST:      # also for NaN
        raise _wrong("reward", columns, value)
    low, high = (0.0, 1.0) if isinstance(value, bool) else scale
    if not low <= value <= high:
        raise OutOfRange(f"{columns['reward']!r} is {value:g}; expected a number from {low:g} to {high:g}", value)
    return (value - low) / (high - low)


def _count(value: Any, key: str, columns: Mapping[str, str]) -> int | None:
    if value is None:
        return None
    if key == "tokens" and isinstance(value, list | tuple):
        return len(value)
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    if not whole or value != int(value):
        raise _wrong(key, columns, value)
    return int(value)


def _wrong(key: str, columns: Mapping[str, str], value: Any) -> ValueError:
    said = json.dumps(value, default=str)
    return ValueError(f"{columns[key]!r} is {said if len(said) <= 60 else said[:57] + '...'}; expected {TAKES[key]}")


def _text(value: Any) -> str:
    """Text, or messages as text."""
    if isinstance(value, list | tuple):
        return "\n".join(_text(x) for x in value)
    if isinstance(value, Mapping):
        return str(value.get("content") or "")
    return "" if value is None else str(value)


def _key(problem: Any) -> str:
    """A problem's id: the cell itself if it is short, else a hash of it."""
    if isinstance(problem, str | int) and len(str(problem)) <= 40 and "\n" not in str(problem):
        return str(problem)
    return hashlib.sha256(json.dumps(problem, sort_keys=True, default=str).encode()).hexdigest()[:16]
