"""What `isocost quickstart` returns, for studies of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.screen.display import Result, Row, folder_field


@dataclass(frozen=True)
class QuickstartResult(Result):
    """A study of any kind from end to end, with the result of its audit. `phases` are seconds of wall-clock time by
    phase; `report` is the file of the report."""

    audit: Any
    phases: Mapping[str, float]
    report: Path
    folder: Path | None = folder_field()

    @property
    def heading(self) -> str:
        """That every step has ended."""
        return "study complete"

    def rows(self) -> list[Row]:
        """Seconds by phase, and the path of the report."""
        seconds = "  ".join(f"{k} {v:.0f} s" for k, v in self.phases.items())
        return [Row("time", f"{seconds}  = {sum(self.phases.values()):.0f} s"),
                Row("report", str(self.report.resolve()), "command")]

    def to_dict(self) -> dict[str, Any]:
        """audit.json."""
        return self.audit.to_dict()
