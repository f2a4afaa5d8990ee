"""In which variants a problem is posed.

A guided variant is a question of its own: siblings are compared within it, curricula and evaluations never see it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor
from typing import TYPE_CHECKING

from isocost import chance
from isocost.traits import bounds, trait
from isocost.types import Message, Problem
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

BEGUN = "begun-"    # variant: so many pieces of the reference solution are given
TOLD = (
    "{problem}\n\nA correct solution begins like this:\n\n{beginning}\n\nStudy what it has established, go on from "
    "where it stops, and end with the final answer."
)


async def unguided(problem: Problem, world: World, ledger: Ledger) -> list[Problem]:
    """The problem as it is."""
    return [problem]


@bounds(steps="[0, inf)")
async def as_variant(problem: Problem, world: World, ledger: Ledger, *, name: str, steps: int = 0) -> list[Problem]:
    """The problem under a variant's name, which a `play` goes by; with `steps`, as it is after so many of them."""
    return [problem if steps and ledger.step >= steps else replace(problem, variant=name)]


@trait("poses_twins")
@bounds(most="(0, 1]", levels="[1, inf)", tries="[0, inf)")
async def with_beginning(
    problem: Problem, world: World, ledger: Ledger, *,
    most: float = 0.25, levels: int = 8, tries: int = 16, told: bool = False, words: str = TOLD,
) -> list[Problem]:
    """The problem, and beside it the problem with the beginning of its solution (POPE, arXiv:2601.18779).

    The beginning is the shortest that has led to anything: of up to `levels` lengths, evenly up to the share `most`,
    one is left for the next when `tries` attempts earned nothing, and kept for good once one did. Where all have
    failed the length is drawn anew each time. Given in the policy's mouth, or with `told` in the prompt by `words`.
    A problem without a solution, or whose beginnings all say the answer, is posed alone.
    """
    pieces = pieces_of(str(problem.meta.get("solution") or ""))
    lengths = [k for k in beginnings(len(pieces), most, levels) if not says(problem.answer, "".join(pieces[:k]))]
    if not lengths:
        return [problem]
    length = shortest_that_helped(problem, ledger, lengths, tries)
    if length is None:
        rng = chance.generator(ledger.seed, chance.Purpose.GUIDE, ledger.drawn)
        length = lengths[int(rng.integers(len(lengths)))]
    beginning = "".join(pieces[:length])
    guided = replace(problem, variant=f"{BEGUN}{length}", prefix="" if told else beginning)
    if told:
        *before, last = problem.prompt
        said = words.replace("{beginning}", beginning).replace("{problem}", last.content)
        guided = replace(guided, prompt=(*before, Message(last.role, said)))
    return [problem, guided]


def shortest_that_helped(problem: Problem, ledger: Ledger, lengths: Sequence[int], tries: int) -> int | None:
    """The first length that has earned something or is not tried out yet; None where all have failed."""
    tallies = ((k, ledger.of(problem.id, f"{BEGUN}{k}")) for k in lengths)
    return next((k for k, seen in tallies if seen.total > 0 or seen.tries < tries), None)


def beginnings(size: int, most: float, levels: int) -> list[int]:
    """Up to `levels` lengths, evenly up to the share `most` of `size` pieces; one at least, and never all of them."""
    longest = min(max(floor(most * size), 1), size - 1)
    return sorted({ceil(k * longest / levels) for k in range(1, levels + 1)}) if longest > 0 else []


def pieces_of(text: str) -> list[str]:
    """Words with the space before them; single characters where the text is one word. Joined they are the text."""
    words = re.findall(r"\s*\S+|\s+$", text)
    return words if len(words) > 1 else list(text)


def says(answer: object, text: str) -> bool:
    """Whether the text holds the answer, as a word or number of its own."""
    return answer is not None and re.search(rf"(?<![\w.]){re.escape(str(answer))}(?![\w.]*\w)", text) is not None
