"""What a family of built cases is: one generator of completions whose mark is known, and the reason to try them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from isocost.doctor.reward.formats import BARE, THOUGHT, Format
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


def texts(*forms: str, of: Sequence[str] = (), but: Sequence[str] = ()) -> Callable[[Item, Say], Iterator[str]]:
    """The generator of these texts for answers of some kinds, by default all. In a text stand {a} for the answer, {w}
    for a wrong one, {A} and {W} for both in their format, {F} for the empty format, {thought} and {question}."""
    def make(item: Item, say: Say) -> Iterator[str]:
        if item.kind not in but and (not of or item.kind in of):
            a, w = item.answer, item.wrong
            yield from (form.format(a=a, w=w, A=say(a), W=say(w), F=say(""), thought=THOUGHT,
                                    question=item.problem.text) for form in forms)

    return make


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
