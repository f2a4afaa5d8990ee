"""What a family of built cases is: one generator of completions whose mark is known, and the reason to try them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from isocost.doctor.reward.formats import BARE, Format
from isocost.doctor.reward.kinds import NUMBERS, Item
from isocost.tasks.verify import numbers
from isocost.types import Problem

Say = Callable[[str], str]      # writes an answer in the first format


@dataclass(frozen=True)
class CaseFamily:
    """A generator of completions that are all right, or all wrong.

    `make` yields whole completions from an item and the writer of its format; with `slot` it yields answers, which are
    written in every chosen format. `counted` is False where a good reward may decide either way: such a family is
    reported and in no rate. `strategy` marks wrong completions that are no mistakes, and `knows` those of them that a
    policy can only write if it knows the right answer. `marked` families need a format in which an answer stands out
    from the text.
    """

    name: str
    why: str
    make: Callable[[Item, Say], Iterable[str]]
    right: bool = False
    slot: bool = False
    counted: bool = True
    strategy: bool = False
    knows: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Built:
    """One case: a completion to a problem, whether it deserves the reward, and whether it is in the rates."""

    family: CaseFamily
    problem: Problem
    text: str
    counted: bool

    @property
    def right(self) -> bool:
        return self.family.right


def build(item: Item, formats: Sequence[Format], families: Sequence[CaseFamily]) -> list[Built]:
    """The cases of an item, without doubles, and without wrong answers that equal the reference."""
    first = formats[0]
    seen = set[str]()
    out = []
    for family in families:
        made = family.make(item, first.written)
        texts = [f.written(a) for a in made if _kept(family, item, a) for f in formats] if family.slot else made
        for text in texts:
            if text not in seen:
                seen.add(text)
                out.append(Built(family, item.problem, text, family.counted and not (family.marked and first is BARE)))
    return out


def _kept(family: CaseFamily, item: Item, answer: str) -> bool:
    """Whether a wrong answer is wrong: as a number it is another one."""
    if family.right or family.strategy or item.kind not in NUMBERS:
        return True
    found = numbers.quantity(answer)
    return found is None or found.value != item.value or found.percent != ("%" in item.answer) or "unit" in family.name
