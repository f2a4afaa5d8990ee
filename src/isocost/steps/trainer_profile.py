"""What the profile of a user's trainer returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from isocost.display import Shown
from isocost.runs.files import SCHEMA
from isocost.steps.results import Data, folder_field


@dataclass(frozen=True)
class TrainerProfile(Shown):
    """The first run of a user's trainer: `updates` of `at["n"]` x `at["B"]` rollouts at the rate `at["lr"]`.

    base, end: held-out reward before and after. timing: its seconds by part. lengths: the mean length of a completion,
    if the log has it. missing: what the log lacks. select: held-out problems. samples: of each. command: what ran.
    """

    record: ClassVar[str] = "trainer"

    command: str
    base: float
    end: float
    updates: int
    at: Data
    timing: Data
    cost: Data
    select: int
    samples: int
    audit: int = 0
    exact: bool = False
    pool: int | None = None
    parameters: float | None = None
    lengths: Data | None = None
    missing: Sequence[str] = ()
    seconds: float = 0.0
    folder: Path | None = folder_field()

    @classmethod
    def of(cls, data: Data, folder: Path | None = None) -> Self:
        """From trainer.json."""
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in data.items() if k in known}, folder=folder)

    def to_dict(self) -> dict[str, Any]:
        """trainer.json."""
        return {"schema": SCHEMA} | {k: v for k, v in vars(self).items() if k != "folder"}
