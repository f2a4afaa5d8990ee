"""The base of every result: rows for people, and plain data.

Results hold numbers; the report draws them. `isocost.report` comes after the results in the import order, so this
module imports it by name, when it is used. No other module of the core, the laws, the planner or the steps does.
"""

from __future__ import annotations

import html
import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints


class Row(NamedTuple):
    """One row of a result for people: a `name`, which may be empty, and what it says. `kind` is "flag" for a caution,
    "command" for text that is not broken into lines, and "head" for a line that names what the rows after it are of."""

    name: str
    text: str
    kind: str = ""


class Table(NamedTuple):
    """Rows of a result as a table: a heading for each column, all empty where none has one, and the cells. Columns are
    aligned right, and those of `left`, which hold words, left."""

    heads: Sequence[str]
    cells: Sequence[Sequence[str]]
    left: Sequence[int] = ()


def given(*rows: Row | Table) -> list[Row | Table]:
    """The rows that say something: without those of an empty text, and without tables of no cells."""
    return [row for row in rows if (row.cells if isinstance(row, Table) else row.text)]


def data_of(x: Any) -> Any:
    """Plain data for JSON: what says its own data, other dataclasses by their fields, NaN and infinities as None."""
    if callable(own := getattr(x, "to_dict", getattr(x, "data", None))):
        return data_of(own())
    if is_dataclass(x):
        return {f.name: data_of(getattr(x, f.name)) for f in fields(x)}
    if isinstance(x, Mapping):
        return {k: data_of(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [data_of(v) for v in x]
    if isinstance(x, float) and not math.isfinite(x):
        return None
    return str(x) if isinstance(x, Path) else x


class Result:
    """A result. `entries` is the field that its data lists."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]       # that its subclasses are dataclasses
    entries: ClassVar[str] = ""

    @property
    def heading(self) -> str:
        """What stands over its rows; empty where nothing does."""
        return ""

    def rows(self) -> Sequence[Row | Table]:
        """What it says, as the terminal, a notebook and the report print it."""
        return ()

    def to_dict(self) -> Any:
        """Plain data, a dict or a list: exactly what the command prints with --json. Its fields, but for the folder, or
        the field of `entries` alone."""
        if self.entries:
            return data_of(getattr(self, self.entries))
        return {f.name: data_of(getattr(self, f.name)) for f in fields(self) if f.name != "folder"}

    def _repr_html_(self) -> str | None:
        """What a notebook shows: the heading and the rows, as the report prints them; None without rows."""
        if not (rows := self.rows()):
            return None
        section = importlib.import_module("isocost.report.section")
        heading = self.heading[:1].upper() + self.heading[1:]
        return f"<h3>{html.escape(heading)}</h3>{section.rows_of(rows, heading)}"


def folder_field() -> Any:
    """The folder of the study that a result is of: it takes no part in comparisons."""
    return field(default=None, compare=False, repr=False)


class OfPlanner(Result):
    """A result that has a value of the planner, in the field that `has` names, and what the study's record adds to it.
    An attribute that the result lacks is that of the value."""

    has: ClassVar[str]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self.has not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(vars(self)[self.has], name)

    @classmethod
    def of(cls, data: Any) -> Self:
        """The result whose value this data is, without a folder."""
        return cls(get_type_hints(cls)[cls.has].of(data))       # type: ignore[call-arg]

    def to_dict(self) -> Any:
        """The file of the study that holds the value, unless the result says more."""
        return vars(self)[self.has].data()


class TextResult(Result, ABC):
    """A result that is a text, such as a file: `str()` of it is what the command prints, and a notebook shows that."""

    @abstractmethod
    def __str__(self) -> str:
        """The text, with its last newline."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def write_report(study: Path, out: Path | None = None) -> Path:
    """Write the report of a study as `isocost.report.write` does, and return its file."""
    path: Path = importlib.import_module("isocost.report").write(study, out)
    return path
