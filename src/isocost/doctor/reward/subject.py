"""What an audit of a reward is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from isocost.screen.display import Row
from isocost.screen.words import counted


@dataclass(frozen=True)
class RewardSubject:
    """The reward and the data that are audited. `problems` are those of a known kind, by kind in `kinds`; `unknown` are
    not audited, and `of` is how many problems the data has. `warnings` are those of the trial of the reward."""

    reward: str
    data: str
    problems: int
    of: int
    kinds: Mapping[str, int]
    unknown: int
    warnings: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """The reward, the data, the kinds of answers, and the warnings of the trial."""
        kinds = ", ".join(f"{k} {many:,}" for k, many in self.kinds.items())
        few = f" of {self.of:,}" if self.of > self.problems + self.unknown else ""
        return [Row("doctor", f"reward {self.reward} on {self.data}, {counted(self.problems, 'problem')}{few} ({kinds})"
                              ", without a model", "head"),
                *(Row("", text, "flag") for text in self.warnings)]
