"""How many attempts each slot of a wave gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def equal(problems: Sequence[Problem], ledger: Ledger, total: int) -> list[int]:
    """The same for everyone; what does not divide goes to the first, one each. The sum is exactly `total`."""
    each, over = divmod(total, len(problems))
    return [each + (slot < over) for slot in range(len(problems))]
