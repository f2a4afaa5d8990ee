"""What the profile of a user's trainer returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from isocost.runs.files import SCHEMA
from isocost.screen.display import Result, Row, folder_field
from isocost.screen.words import counted, duration, word

Data = Mapping[str, Any]


@dataclass(frozen=True)
class TrainerProfile(Result):
    """The first run of a user's trainer: `updates` of `at["n"]` x `at["B"]` rollouts at the rate `at["lr"]`. base, end:
    held-out reward before and after. timing: its seconds by part. lengths: the mean length of a completion, if the log
    has it. missing: what the log lacks. select: held-out problems. samples: of each. command: what ran."""

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

    @property
    def heading(self) -> str:
        """What was profiled."""
        return "profile: the first run of your trainer"

    def rows(self) -> list[Row]:
        """The command, its rewards, how precise they are, its speed, what its log lacks, and the next command."""
        error = 0.5 / (self.select * self.samples) ** 0.5
        return [
            Row("", self.command, "command"),
            Row("", f"{counted(self.updates, 'update')} of {self.at['n']} x {self.at['B']} rollouts at lr "
                    f"{self.at['lr']:.2g} in {duration(self.seconds)}: held-out reward {self.base:.3f} before, "
                    f"{self.end:.3f} after"),
            Row("", f"{self.select} held-out problems, {counted(self.samples, 'sample')} each: standard error of an "
                    f"evaluation at most {error:.3f}"),
            Row("", f"{self.timing['rollout']:.2g} s a rollout and {self.timing['start']:.2g} s to start a run "
                    f"({self.timing['source']})"),
            *(Row("", f"missing: {text}", "flag") for text in self.missing),
            Row("next", f"isocost plan {word(self.folder or '')} --budget ...", "command"),
        ]

    def to_dict(self) -> dict[str, Any]:
        """trainer.json."""
        return {"schema": SCHEMA} | {k: v for k, v in vars(self).items() if k != "folder"}
