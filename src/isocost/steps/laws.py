"""What `isocost laws` prints: the list of laws, and one fitted to a table of points."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.laws.papers.known import LAWS, Points, estimate, read_points
from isocost.words import counted


def listed() -> list[dict[str, Any]]:
    """Every law as plain data."""
    return [
        {"name": law.name, "equation": law.equation, "source": law.source, "data": law.data,
         "where": f"isocost.{law.where}", "points": law.fit is not None}
        for law in LAWS.values()
    ]


def show_list(rows: list[dict[str, Any]]) -> None:
    """Three lines a law; * marks those that `isocost laws fit` fits to points."""
    for row in rows:
        print(f"{row['name'] + ' *' * row['points']:18} {row['equation']}")
        print(f"{'':18} from {row['data']}; {row['where']}")
        print(f"{'':18} {row['source']}")
    print("* isocost laws fit LAW POINTS.csv; the others are called from Python, see docs/laws.md")


def fit(name: str, path: Path, columns: dict[str, str], level: float) -> dict[str, Any]:
    """A law fitted to a CSV table, as plain data. Raises UserError for a law that is not there, and bad tables."""
    if name not in LAWS:
        raise UserError(f"there is no law {name!r}; there are {', '.join(LAWS)}")
    points = read_points(path, **columns)
    found = estimate(LAWS[name], points, level)
    return {
        "law": name, "equation": LAWS[name].equation, "points": len(points.x),
        "runs": points.runs if points.told else None, "level": level, "draws": _draws(points),
        "parameters": {e.name: {"value": e.value, "low": _known(e.low), "high": _known(e.high)} for e in found},
    }


def show_fit(found: dict[str, Any]) -> None:
    """The parameters with their intervals, and what these take for independent."""
    of = f" of {counted(found['runs'], 'run')}" if found["runs"] else ""
    print(f"{found['equation']}   ({counted(found['points'], 'point')}{of})")
    for name, one in found["parameters"].items():
        where = "interval open" if one["low"] is None else f"{one['low']:.4g} to {one['high']:.4g}"
        print(f"  {name:8} {one['value']:<10.4g} {where}")
    print(f"{found['level']:.0%} intervals: {found['draws']}")


def _known(x: float) -> float | None:
    return None if math.isnan(x) else x


def _draws(points: Points) -> str:
    if not points.told:
        return "every point is taken for an independent draw; if some are of one run, name runs in a column `run`"
    if points.runs < 3:
        return f"{points.runs} run{'s' * (points.runs > 1)} cannot say how runs differ; three or more can"
    return "runs are the draws, however many points each has"
