"""What an audit of a reward is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RewardSubject:
    """The reward and the data that are audited.

    `problems` are those of a known kind, by kind in `kinds`; `unknown` are not audited, and `of` is how many problems
    the data has. `warnings` are those of the trial of the reward.
    """

    reward: str
    data: str
    problems: int
    of: int
    kinds: Mapping[str, int]
    unknown: int
    warnings: tuple[str, ...] = ()
