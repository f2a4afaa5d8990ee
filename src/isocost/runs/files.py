"""The files of runs and studies, read and written in one place, without torch.

`isocost.runs.schema` has the shape of each, by its name. A file of another shape raises a UserError of one line: the
file, what is wrong in it, and what to do.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

from isocost.disk import jsonfile
from isocost.disk.jsonfile import Absent, Damaged
from isocost.disk.shape import Keys
from isocost.errors import UserError
from isocost.runs import schema

SCHEMA = schema.VERSION
DIVERGED, REWARD_FAILED = "diverged", "reward failed"
UNBILLED = "unbilled"       # the end of a run that has settled more rollouts than it was billed for
STOPPED = "stopped"         # at an amount (`runs.stop_at`), or by a verdict
COMPLETE = ("spent", "starved", STOPPED)     # reasons for an end that is evaluated
GO_ON = ("interrupted", REWARD_FAILED)  # reasons for an end after which a run can be continued
# The fates of rollouts: the values of `isocost.types.Fate`, in the order of tables and charts.
FATES = ("trained", "dead", "filtered", "stale", "surplus", "cancelled", "unchosen", "lost", "evaluation")

# reading ------------------------------------------------------------------------------------------------------


@contextmanager
def _advised() -> Iterator[None]:
    """Adds to an error of the JSON reader how to repair a record's file."""
    try:
        yield
    except Absent as e:
        raise Absent(e.path, schema.absent(e.path)) from None
    except Damaged as e:
        raise Damaged(e.path, e.why, schema.remedy(e.path)) from None


def read_json(path: Path, shape: Any = None, *, partial: bool = False) -> dict[str, Any]:
    """An object of the shape for a record's file, or of `shape`, or in part. Raises UserError where it is none."""
    with _advised():
        return dict(_fitting(path, jsonfile.read_document(path), shape, partial=partial))


def _fitting(path: Path, data: Any, shape: Any = None, *, partial: bool = False) -> dict[str, Any]:
    """The data of a record's file. Raises UserError if it does not fit, as `read_json` does."""
    if isinstance(data, dict) and "schema" in data:
        jsonfile.fit(path, data, Keys({"schema": int}))
        if data["schema"] > SCHEMA:
            raise UserError(f"{path} has schema {data['schema']}; this isocost reads up to {SCHEMA}: use a newer one")
    key = schema.key_of(path.name, data)
    more = schema.beside(key)
    jsonfile.fit(path, data, more, partial=partial)
    own = {k: v for k, v in data.items() if k not in more.more}
    jsonfile.fit(path, own, shape or schema.of_file(key), partial=partial)
    return data


def fit(path: Path, data: Any, shape: Any) -> None:
    """Raises UserError, naming the file, if data read from it does not have the shape."""
    with _advised():
        jsonfile.fit(path, data, shape)


def read_lines(path: Path, shape: Any = None) -> list[Any]:
    """Every whole line of a stream; none without a file. Raises UserError, naming the line, if one is not of its
    shape."""
    with _advised():
        return jsonfile.read_lines(path, _shape_of(path, shape))


def good_lines(path: Path) -> tuple[list[Any], list[str]]:
    """The lines of a stream that can be read, and the errors of the others; accepts other versions (`shape.flaw`)."""
    with _advised():
        return jsonfile.good_lines(path, _shape_of(path))


def tail(path: Path, size: int, shape: Any = None) -> list[Any]:
    """The whole lines in the last `size` bytes of a stream that may still grow. Raises UserError like `read_lines`."""
    with _advised():
        return jsonfile.tail(path, size, _shape_of(path, shape))


def _shape_of(path: Path, shape: Any = None) -> jsonfile.ShapeOf:
    return lambda line: shape or schema.of_line(path.name, line)


def is_run(path: Path) -> bool:
    """Whether a folder is the record of a run."""
    return (path / "run.json").is_file()


def ended(path: Path) -> bool:
    """Whether the run in this folder is finished, not absent, in progress, interrupted or stopped by a reward."""
    return (path / "end.json").exists() and read_json(path / "end.json")["reason"] not in GO_ON


def find_runs(path: Path) -> list[Path]:
    """Run directories at or below a folder, in order of name."""
    if is_run(path):
        return [path]
    return sorted(p.parent for p in path.glob("**/run.json"))


# a run's files, read once ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunFiles:
    """The files of one run as they are when they are first needed. Each is opened at most once."""

    folder: Path
    _read: dict[str, bytes | None] = field(default_factory=dict, compare=False, repr=False)
    _fit: set[Any] = field(default_factory=set, compare=False, repr=False)     # shapes that run.json has

    @property
    def name(self) -> str:
        return self.folder.name

    def has(self, name: str) -> bool:
        if name not in self._read:
            try:
                with _advised():
                    self._read[name] = jsonfile.read_bytes(self.folder / name, jsonfile.STREAM)
            except Absent:
                self._read[name] = None
        return self._read[name] is not None

    def raw(self, name: str) -> bytes:
        """The bytes of a file; empty if there is none. Raises UserError if it cannot be read."""
        return (self._read[name] or b"") if self.has(name) else b""

    def _document(self, name: str) -> Any:
        path = self.folder / name
        if not self.has(name):
            raise Absent(path, schema.absent(path))
        with _advised():
            return jsonfile.document(path, self.raw(name))

    @cached_property
    def data(self) -> dict[str, Any]:
        """run.json, of any shape. Raises UserError if it is absent or no object."""
        found = self._document("run.json")
        fit(self.folder / "run.json", found, dict[str, Any])
        return dict(found)

    def about(self, shape: Any = None) -> dict[str, Any]:
        """run.json, of the shape for its name or of `shape`. Raises UserError as `read_json` does."""
        if not (shape in self._fit or (shape is None and self._fit)):      # the others are that shape with more needed
            with _advised():
                _fitting(self.folder / "run.json", self.data, shape)
            self._fit.add(shape)
        return self.data

    @cached_property
    def end(self) -> dict[str, Any]:
        """end.json; empty while there is none."""
        if not self.has("end.json"):
            return {}
        with _advised():
            return dict(_fitting(self.folder / "end.json", self._document("end.json")))

    def ended(self, shape: Any) -> dict[str, Any]:
        """end.json, of this shape. Raises UserError as `read_json` does."""
        path = self.folder / "end.json"
        if not self.end:
            raise Absent(path, schema.absent(path))
        fit(path, self.end, shape)
        return self.end

    @property
    def over(self) -> bool:
        """Whether the run is finished, as `ended` says."""
        return bool(self.end) and self.end["reason"] not in GO_ON

    def lines(self, name: str, shape: Any = None) -> list[Any]:
        """Every whole line of a stream, as `read_lines` returns them."""
        path = self.folder / name
        with _advised():
            return jsonfile.lines(path, self.raw(name), _shape_of(path, shape))


def runs_of(source: str | Path | Iterable[str | Path | RunFiles]) -> list[RunFiles]:
    """The runs of a study's folder (its `runs/`) in order of name, or those in these folders."""
    if isinstance(source, str | Path):
        home = Path(source) / "runs"
        there = sorted(os.listdir(home)) if home.is_dir() else []
        source = [home / name for name in there if os.path.lexists(f"{home}/{name}/run.json")]
    return [x if isinstance(x, RunFiles) else RunFiles(Path(x)) for x in source]


# writing ------------------------------------------------------------------------------------------------------

Line = Mapping[str, Any] | list[Any] | str | Callable[[], str]      # of a stream: its data or its text


class Stream:
    """An append-only JSONL file. Lines are written in one call, so that a killed process leaves whole lines.

    With `patience`, lines wait for later ones as long as the last call is less than so many seconds ago: a call takes
    longer than a step of a tiny model allows for. A killed process loses the lines that wait. They are encoded when
    they are written, all at once: do not change them meanwhile.
    """

    def __init__(self, path: Path, patience: float = 0.0):
        no_link(path)
        self.path, self.patience = path, patience
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        self._waiting: list[Line] = []
        self._last = -math.inf      # when lines were last written
        self._summed = 0, 0         # bytes from the beginning, and their checksum

    @classmethod
    def mended(cls, path: Path) -> Self:
        """To append to, without a last line that a kill or a full disk cut short: the next would be joined to it."""
        stream = cls(path)
        text = path.read_bytes()
        if (whole := text.rfind(b"\n") + 1) < len(text):
            stream.cut(whole)
        return stream

    def write(self, *lines: Line) -> None:
        """Append lines: data, JSON texts, or functions that return a JSON text."""
        self._waiting += lines
        if time.monotonic() - self._last >= self.patience:
            self.flush()

    def append(self, text: str) -> None:
        """Write one line of JSON now, after those that wait. `write` takes twice as long."""
        if self._waiting:
            self._waiting.append(text)
            self.flush()
        else:
            self._put(f"{text}\n".encode())

    def wait(self, text: str) -> None:
        """Write this line of JSON together with the next one."""
        self._waiting.append(text)

    def flush(self) -> None:
        """Write the lines that wait. If one cannot be encoded, those before it are written and those after it wait."""
        if not self._waiting:
            return
        lines, texts = self._waiting, list[str]()
        try:
            texts.extend(map(_text, lines))
        finally:
            self._waiting, self._last = lines[len(texts) + 1 :], time.monotonic()
            self._put("\n".join([*texts, ""]).encode())

    def _put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]

    def offset(self) -> int:
        self.flush()
        return os.fstat(self._file).st_size

    def checksum(self, size: int) -> int:
        """CRC-32 of the first `size` bytes, of those that are there. What an earlier call read is not read again."""
        self.flush()
        at, total = self._summed if self._summed[0] <= size else (0, 0)
        with self.path.open("rb") as file:
            file.seek(at)
            while at < size and (part := file.read(min(1 << 20, size - at))):
                at, total = at + len(part), zlib.crc32(part, total)
        self._summed = at, total
        return total

    def cut(self, offset: int) -> None:
        os.ftruncate(self._file, offset)

    def sync(self) -> None:
        self.flush()
        os.fsync(self._file)

    def close(self) -> None:
        try:
            self.flush()
        finally:
            os.close(self._file)


def _text(line: Line) -> str:
    if isinstance(line, str):
        return line
    return line() if callable(line) else jsonfile.line(line)


def no_link(path: Path) -> None:
    """Raises UserError for a symbolic link."""
    if path.is_symlink():
        raise UserError(f"{path} is a symbolic link, and what it points to would be written to: put the file itself "
                        "there, or remove the link")


# what identifies data and code ---------------------------------------------------------------------------------


def canonical(data: Any) -> str:
    """Data as JSON text to compare: tuples become lists, keys are sorted."""
    return json.dumps(data, sort_keys=True, default=jsonfile.plain)


def file_hash(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def code() -> dict[str, Any]:
    """The installed version, the hash of the package's sources, and the rule of its meter if it is not 1."""
    from isocost import meter  # here: what only reads records does not need it

    rule = {"meter": meter.RULE} if meter.RULE != 1 else {}
    return {"version": package_version(), "sources": _sources_hash(), **rule}


def package_version() -> str:
    try:
        return version("isocost")
    except PackageNotFoundError:
        return "source"


@cache
def _sources_hash() -> str:
    home = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for f in sorted(p for p in home.rglob("*") if p.suffix in (".py", ".cpp", ".h")):
        digest.update(str(f.relative_to(home)).encode() + f.read_bytes())
    return digest.hexdigest()[:16]
