"""What of a group is worth an update. The ledger and the meter have already seen all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from isocost.types import Group, Rollout

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def everything(group: Group, ledger: Ledger) -> Group | None:
    """All of it."""
    return group


def mixed(group: Group, ledger: Ledger, *, part: str = "") -> Group | None:
    """Nothing of a group that earned the same throughout, for it has no siblings to learn from.

    `part` names a component of the score to look at in place of its value, where a score has one: a shaped reward
    makes a group look mixed in which nobody was right.
    """
    scores = [r.score for r in group.rollouts if r.score is not None]
    seen = {s.parts.get(part, s.value) if part else s.value for s in scores}
    return group if len(seen) > 1 else None


def mark(rollout: Rollout) -> float:
    score = rollout.mark or rollout.score
    return score.value if score else 0.0
