"""Evaluation files, read by what they hold: the score of each sample of each problem.

    lm-eval       samples_TASK_DATE.jsonl of `--log_samples`
    verifiers     results.jsonl or traces.jsonl
    lighteval     details_TASK_DATE.parquet of `--save-details`
    Inspect       NAME.eval, or its JSON
    rows          JSON lines, JSON, CSV or Parquet with a problem and a score in each row; `--map` names their columns

A file is read by its content, not by its name. Needs no torch, and none of these programs.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from csv import DictReader
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from isocost.errors import UserError, foreign
from isocost.screen.words import counted
from isocost.tasks.rows import rows_of

ZSTD = 93           # compression of the entries of an .eval file, which Python's zipfile reads from 3.14 on
PROBLEM = ("problem", "problem_id", "item_id", "example_id", "task_id", "question_id", "doc_id", "id", "idx", "prompt",
           "question")
SCORE = ("score", "reward", "correct", "is_correct", "acc", "accuracy", "pass", "passed")
MAPPED = ("problem", "score", "cluster", "tokens")      # what --map can name in a file of rows
SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".eval")
GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}       # of Inspect's scorers: correct, incorrect, partial, no answer
Row = Mapping[str, Any]


@dataclass(frozen=True)
class EvaluationScores:
    """The scores of one file. `scores` are those of each problem's samples; `clusters` the cluster of each problem,
    empty without; `metric` is the name of the score; `tokens` what the samples took, None if the file does not say.
    `unscored` samples had no score: they count for nothing, and are named."""

    path: Path
    written_by: str
    metric: str
    scores: Mapping[str, tuple[float, ...]]
    clusters: Mapping[str, str] = field(default_factory=dict)
    tokens: float | None = None
    unscored: int = 0

    @property
    def samples(self) -> int:
        """Samples with a score."""
        return sum(len(x) for x in self.scores.values())

    @property
    def hash(self) -> str:
        """Of the scores, so that a copy of the file has the same."""
        return hashlib.sha256(json.dumps(sorted(self.scores.items())).encode()).hexdigest()[:16]


@dataclass
class _Scores:
    """What a reader has found so far."""

    scores: dict[str, list[float]] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    tokens: list[float] = field(default_factory=list)
    unscored: int = 0

    def add(self, problem: Any, score: Any, cluster: Any = None, tokens: Any = None) -> None:
        value = _number(score)
        if value is None:
            self.unscored += 1
            return
        name = problem if isinstance(problem, str) else json.dumps(problem, sort_keys=True)
        self.scores.setdefault(name, []).append(value)
        if cluster is not None:
            self.clusters[name] = str(cluster)
        if (spent := _number(tokens)) is not None:
            self.tokens.append(spent)


def read(path: Path, metric: str = "", columns: Mapping[str, str] | None = None) -> EvaluationScores:
    """The evaluation in a file.

    `metric` chooses among several scores, by name; `columns` name the columns of a file of rows (`MAPPED`).

    Raises UserError for a file that holds no scores, several of them without a choice, or rows that cannot be read.
    """
    rows = list(_rows(path))
    if not rows:
        raise UserError(f"{path} holds no rows")
    reader = next((r for r in READERS if r.sees(rows[0])), None)
    if columns and reader is not None:
        raise UserError(f"--map names columns of a file of rows, and {path} is written by {reader.name}: leave it out")
    found = _Scores()
    with foreign(path, "write it again"):
        chosen = reader.read(path, rows, metric, found) if reader else _plain(path, rows, metric, columns or {}, found)
    if not found.scores:
        raise UserError(f"{path}: none of its {counted(found.unscored, 'sample')} has a score")
    tokens = sum(found.tokens) if len(found.tokens) == sum(map(len, found.scores.values())) else None
    scores = {k: tuple(v) for k, v in found.scores.items()}
    written_by = reader.name if reader else "rows"
    return EvaluationScores(path, written_by, chosen, scores, found.clusters, tokens, found.unscored)


def is_evaluation(path: Path) -> bool:
    """Whether a file is written by one of these programs, or has a problem and a score in its first row."""
    try:
        first = next(iter(_rows(path)), None)
    except UserError:
        return False
    return first is not None and (any(r.sees(first) for r in READERS)
                                  or bool(_first(first, PROBLEM) and _first(first, SCORE)))


def evaluations_in(folder: Path) -> list[Path]:
    """The evaluation files at or below a folder, in order of name."""
    return sorted(f for f in folder.rglob("*") if f.suffix in SUFFIXES and f.is_file() and is_evaluation(f))


# rows of any file ----------------------------------------------------------------------------------------------


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a file as plain data, read as they are asked for. Raises UserError for one that cannot be read."""
    if path.suffix == ".eval":
        yield from _of_inspect(path)
    elif path.suffix in (".csv", ".tsv"):
        with foreign(path, "write it again, in UTF-8"), path.open(encoding="utf-8-sig", newline="") as file:
            yield from DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".json":
        with foreign(path, "write it again"):
            data = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(data, dict) and isinstance(data.get("samples"), list):     # Inspect's log as JSON
                data = list(map(_sample, data["samples"]))
        if not isinstance(data, list):
            raise UserError(f"{path} is no list of rows: expected one row for each sample, with a problem and a score")
        yield from (x for x in data if isinstance(x, dict))
    else:
        for place, row in rows_of(path, "evaluations"):
            if not isinstance(row, dict):
                raise UserError(f"{path}, {place}: {row if isinstance(row, Exception) else 'expected an object'}")
            yield row


def _of_inspect(path: Path) -> Iterator[Row]:
    """The samples of an .eval file: a zip whose entries are compressed by zstd."""
    with foreign(path, "write it again with `inspect log convert --to json`"), zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith("samples/") and entry.filename.endswith(".json"):
                yield _sample(json.loads(_entry(path, archive, entry)))


def _entry(path: Path, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    if entry.compress_type != ZSTD:
        return archive.read(entry)
    try:
        import pyarrow
    except ImportError:
        raise UserError(f"{path} is compressed by zstd: pip install pyarrow, or convert it with `inspect "
                        "log convert --to json`") from None
    with path.open("rb") as file:       # a local header is 30 bytes, a name and an extra field
        file.seek(entry.header_offset)
        name, extra = struct.unpack("<HH", file.read(30)[26:])
        file.seek(name + extra, 1)
        raw = file.read(entry.compress_size)
    return bytes(pyarrow.decompress(raw, entry.file_size, codec="zstd", asbytes=True))


def _sample(sample: Row) -> Row:
    """A sample of Inspect as a row: its scores by scorer, and what all its models wrote."""
    used = [u.get("output_tokens") for u in (sample.get("model_usage") or {}).values()]
    return {"inspect": True, "id": sample.get("id"), "metadata": sample.get("metadata") or {},
            "scores": {name: (x or {}).get("value") for name, x in (sample.get("scores") or {}).items()},
            "tokens": sum(used) if used and None not in used else None}


# what each program writes --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Reader:
    """How one program's files are read: `sees` recognises a row; `read` fills the scores and names the metric."""

    name: str
    sees: Callable[[Row], bool]
    read: Callable[[Path, Sequence[Row], str, _Scores], str]


def _lm_eval(path: Path, rows: Sequence[Row], metric: str, found: _Scores) -> str:
    """`doc_id`, `filter`, the names of the metrics, and each metric under its name; one row for each filter."""
    names = list(dict.fromkeys(f"{m},{r['filter']}" for r in rows for m in r["metrics"]))
    chosen = _chosen(path, names, metric)
    name, _, filtered = chosen.rpartition(",")
    for r in rows:
        if r["filter"] == filtered and name in r["metrics"]:
            found.add(r["doc_id"], r.get(name))
    return chosen


def _verifiers(path: Path, rows: Sequence[Row], metric: str, found: _Scores) -> str:
    """results.jsonl: `example_id` and `reward`, and every metric under its name."""
    chosen = metric or "reward"
    if not any(chosen in r for r in rows):
        raise UserError(f"{path} has no score {chosen!r}; its rows have {', '.join(map(str, rows[0]))}")
    for r in rows:
        found.add((r["task"], r["example_id"]) if r.get("task") else r["example_id"],
                  None if r.get("error") else r.get(chosen), tokens=(r.get("token_usage") or {}).get("output_tokens"))
    return chosen


def _traces(path: Path, rows: Sequence[Row], metric: str, found: _Scores) -> str:
    """traces.jsonl of verifiers 0.4: named rewards, each a score with a weight, of a task with a key."""
    for r in rows:
        task = r["task"]
        data = task.get("data") or {}
        rewards = r["rewards"]
        if metric:
            one = rewards.get(metric, (r.get("metrics") or {}).get(metric))
            score = one.get("score") if isinstance(one, dict) else one
        else:
            whole = [None if x is None else x["score"] * x.get("weight", 1.0) for x in rewards.values()]
            score = sum(x for x in whole if x is not None) if whole and None not in whole else None
        used = [(c.get("usage") or {}).get("output_tokens") for c in r.get("calls") or ()]
        found.add(task.get("key") or data.get("id") or data.get("idx"), score,
                  tokens=sum(used) if used and None not in used else None)
    return metric or "reward"


def _lighteval(path: Path, rows: Sequence[Row], metric: str, found: _Scores) -> str:
    """`doc` and `metric`, a score for each metric's name."""
    chosen = _chosen(path, list(dict.fromkeys(m for r in rows for m in r["metric"])), metric)
    for r in rows:
        doc = r["doc"]
        found.add(doc.get("query") or doc.get("id"), r["metric"].get(chosen))
    return chosen


def _inspect(path: Path, rows: Sequence[Row], metric: str, found: _Scores) -> str:
    """A score for each scorer: a number, or one of `GRADES`."""
    chosen = _chosen(path, list(dict.fromkeys(m for r in rows for m in r["scores"])), metric)
    for r in rows:
        value = r["scores"].get(chosen)
        found.add(r["id"], GRADES.get(value, value) if isinstance(value, str) else value, tokens=r["tokens"])
    return chosen


def _plain(path: Path, rows: Sequence[Row], metric: str, columns: Mapping[str, str], found: _Scores) -> str:
    """A problem and a score in each row, in the columns that `columns` name, or under the usual names."""
    if unknown := sorted(set(columns) - set(MAPPED)):
        raise UserError(f"--map {unknown[0]}=...: an evaluation has {', '.join(MAPPED)}")
    problem = columns.get("problem") or _first(rows[0], PROBLEM)
    score = columns.get("score") or metric or _first(rows[0], SCORE)
    for what, column in (("problem", problem), ("score", score)):
        if column not in rows[0]:
            named = f" {column!r}" if column else ""
            raise UserError(f"{path} has no column{named} for the {what}: name one with --map {what}=COLUMN; it has "
                            f"{', '.join(map(str, rows[0]))}")
    for r in rows:
        found.add(r.get(problem), r.get(score), r.get(columns.get("cluster", "cluster")),
                  r.get(columns.get("tokens", "tokens")))
    return score


READERS = (     # any other file is one of rows
    _Reader("lm-eval", lambda r: {"doc_id", "filter", "metrics"} <= r.keys(), _lm_eval),
    _Reader("verifiers", lambda r: isinstance(r.get("rewards"), dict) and isinstance(r.get("task"), dict), _traces),
    _Reader("verifiers", lambda r: {"example_id", "reward", "completion"} <= r.keys(), _verifiers),
    _Reader("lighteval", lambda r: isinstance(r.get("metric"), dict) and isinstance(r.get("doc"), dict), _lighteval),
    _Reader("Inspect", lambda r: r.get("inspect") is True, _inspect),
)


def _chosen(path: Path, names: list[str], metric: str) -> str:
    """The metric that was asked for, by its name or the only one that begins with it."""
    fit = [n for n in names if not metric or n == metric or n.partition(",")[0] == metric]
    if len(fit) == 1:
        return fit[0]
    what = f"no score {metric!r}" if not fit else f"{len(fit)} scores"
    raise UserError(f"{path} has {what}: choose one with --metric, of {', '.join(names) or 'none'}")


def _first(row: Row, names: Iterable[str]) -> str:
    """The first of these names that the row has a value for, empty without one."""
    return next((n for n in names if row.get(n) is not None), "")


def _number(x: Any) -> float | None:
    """A finite number, a truth value or the text of one; None for anything else."""
    if isinstance(x, str):
        x = {"true": 1.0, "false": 0.0}.get(x.strip().lower(), x)
    try:
        value = float(x)
    except (TypeError, ValueError):
        return None
    return value if isfinite(value) else None
