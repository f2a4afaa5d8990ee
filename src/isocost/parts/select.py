"""The part of a group that is trained on. The ledger and the meter have already counted all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocost.traits import exported
from isocost.types import Group, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger


@exported()
def everything(group: Group, ledger: Ledger) -> Group | None:
    """The whole group."""
    return group


@exported(keep_mixed=True)
def mixed(group: Group, ledger: Ledger, *, part: str = "") -> Group | None:
    """The group, or nothing if all its rewards are equal: it has no siblings to learn from.

    `part` names a component of the score to compare instead of its value, where a score has one: with a shaped reward,
    a group without a right attempt can have different values.
    """
    scores = [s for s in group.scores if s is not None]
    seen = {s.parts.get(part, s.value) if part else s.value for s in scores}
    return group if len(seen) > 1 else None


def mark(rollout: Rollout) -> float:
    """The verifier's mark, or the score where there is none; 0 without both."""
    score = rollout.mark or rollout.score
    return score.value if score else 0.0
