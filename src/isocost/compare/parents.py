"""Methods and the parents that they are compared with (`isocost compare --to-parents`).

The design, probes and runs are those of any comparison (`isocost.compare.steps`); a parent's runs serve all of its
children. The judgement differs, and so does the control of errors (`isocost.compare.many`).
"""

from __future__ import annotations

from collections.abc import Sequence

from isocost import methods
from isocost.errors import UserError


def with_parents(arms: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arms, with missing parents put first, and the parent of each arm given.

    Raises:
        UserError: for a method without a parent.
    """
    parents: dict[str, str] = {}
    for arm in arms:
        parent = methods.load(methods.parted(arm)[0]).CARD.parent
        if parent is None:
            raise UserError(f"{arm} has no parent to compare it with: leave it out; its children add it")
        parents[arm] = parent
    lacking = [p for p in dict.fromkeys(parents.values()) if p not in arms]
    return (*lacking, *arms), parents
