"""In which variants a problem is posed.

A guided variant is a separate question: siblings are compared within it, and curricula and evaluations never use it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from isocost.traits import bounds, exported
from isocost.types import Problem
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger


@exported()
async def unguided(problem: Problem, world: World, ledger: Ledger) -> list[Problem]:
    """The problem as posed."""
    return [problem]


@bounds(steps="[0, inf)")
async def as_variant(problem: Problem, world: World, ledger: Ledger, *, name: str, steps: int = 0) -> list[Problem]:
    """The problem under a variant's name, which a `play` checks; as posed after `steps` steps, if given."""
    return [problem if steps and ledger.step >= steps else replace(problem, variant=name)]


def pieces_of(text: str) -> list[str]:
    """Words with the space before them; single characters if the text is one word. Joined, they are the text."""
    words = re.findall(r"\s*\S+|\s+$", text)
    return words if len(words) > 1 else list(text)


def says(answer: object, text: str) -> bool:
    """Whether the text contains the answer as a separate word or number."""
    return answer is not None and re.search(rf"(?<![\w.]){re.escape(str(answer))}(?![\w.]*\w)", text) is not None
