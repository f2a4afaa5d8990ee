"""The published laws: list them, or fit one to a table of points."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from isocost.disk.jsonfile import finite
from isocost.errors import UserError
from isocost.laws.papers.known import LAWS, Points, estimate, read_points
from isocost.screen.display import Result, Row, Table
from isocost.screen.words import counted


@dataclass(frozen=True)
class LawRow:
    """A law: its equation, its source, the data it takes, the function (`where`), and whether `fit_points` fits it
    (`points`)."""

    name: str
    equation: str
    source: str
    data: str
    where: str
    points: bool


@dataclass(frozen=True)
class LawList(Result):
    """Every law."""

    entries: ClassVar[str] = "laws"

    laws: tuple[LawRow, ...]

    def rows(self) -> list[Row | Table]:
        """Each law's equation, data, function and source; * marks those that `isocost laws fit` can fit to points."""
        return [
            *(row for law in self.laws for row in (
                Row("", f"{law.name}{' *' * law.points}: {law.equation}", "head"),
                Row("", f"from {law.data}; {law.where}", "command"), Row("", law.source, "command"))),
            Row("*", "isocost laws fit LAW POINTS.csv; the others are functions in Python, see docs/laws.md", "head"),
        ]


def list_laws() -> LawList:
    """Every law that isocost can fit."""
    return LawList(tuple(
        LawRow(law.name, law.equation, law.source, law.data, f"isocost.{law.where}", law.fit is not None)
        for law in LAWS.values()
    ))


@dataclass(frozen=True)
class Parameter:
    """A fitted parameter and its confidence interval; `low` and `high` are None where the interval is open."""

    name: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class PointsFit(Result):
    """A law fitted to points. `points` and `runs` are counts (`runs` None if the table names no runs); `level` is that
    of the intervals, and `draws` says which points they treat as independent. Parameters are in the table's units."""

    law: str
    equation: str
    points: int
    runs: int | None
    level: float
    draws: str
    parameters: tuple[Parameter, ...]

    def rows(self) -> list[Row | Table]:
        """The parameters with their intervals, and which points these treat as independent."""
        of = f" of {counted(self.runs, 'run')}" if self.runs else ""
        cells = [(p.name, f"{p.value:.4g}",
                  "interval open" if p.low is None or p.high is None else f"{p.low:.4g} to {p.high:.4g}")
                 for p in self.parameters]
        return [
            Row("", f"{self.equation}   ({counted(self.points, 'point')}{of})", "head"),
            Table(("", "", ""), cells, left=(0, 1, 2)),
            Row(f"{self.level:.0%} intervals", self.draws, "command"),
        ]

    def to_dict(self) -> dict[str, Any]:
        fields = {k: v for k, v in asdict(self).items() if k != "parameters"}
        found = {p.name: {"value": p.value, "low": p.low, "high": p.high} for p in self.parameters}
        return dict(finite({**fields, "parameters": found}))


def fit_points(law: str, path: str | Path, *, x: str = "x", y: str = "y", run: str = "run", level: float = 0.9
               ) -> PointsFit:
    """Fit a law to a CSV table with columns `x` and `y` and, if known, `run`, which names the run of each point. Raises
    UserError for an unknown law, and for a table that does not fit."""
    if law not in LAWS:
        raise UserError(f"unknown law {law!r}; expected one of {', '.join(LAWS)}")
    if not Path(path).is_file():
        raise UserError(f"{path} does not exist, or is not a file: give a CSV file with a header and the columns {x} "
                        f"and {y}")
    points = read_points(Path(path), x=x, y=y, run=run)
    found = estimate(LAWS[law], points, level)
    return PointsFit(
        law, LAWS[law].equation, len(points.x), points.runs if points.runs_named else None, level, _draws(points),
        tuple(Parameter(e.name, e.value, _known(e.low), _known(e.high)) for e in found),
    )


def _known(x: float) -> float | None:
    return None if math.isnan(x) else x


def _draws(points: Points) -> str:
    if not points.runs_named:
        return "every point counts as independent; if several are of one run, name runs in a column `run`"
    if points.runs < 3:
        return f"{points.runs} run{'s' * (points.runs > 1)}: the spread between runs is unknown; it needs 3 or more"
    return "runs count as independent, whatever the number of their points"
