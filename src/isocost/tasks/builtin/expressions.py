"""Expressions: write a cheaper expression that has the same value for every input.

`%*2*3+4+1>` asks for it, and `%*6+5` is an answer: `%` is the input, and an expression is read from left to right. A
`*` costs 2, a `+` or `-` 1. Any expression with the reference's values at the inputs 0 to 9 is right, whatever it
costs. `tiny-puzzles` knows the characters, and was not taught the task: `experiments/bases.py` has a base.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from numpy.random import Generator

from isocost import chance
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.tasks.builtin.chain import APPLY
from isocost.tasks.builtin.drawn import END, Drawn, pick
from isocost.types import Message, Problem

INPUT = "%"
COST = {"+": 1, "-": 1, "*": 2}
TESTS = range(10)                # the inputs at which two expressions are compared
LONGEST = 40                     # characters of an answer
LEVELS, COUNT, TRIES = 4, 400, 200
_DRAW = 103                      # the address of the random numbers
_TERM = re.compile(r"([-+*])(\d{1,3}|%)", re.ASCII)
Terms = list[tuple[str, str]]    # a sign and a number or the input each; the first sign is +


@dataclass(frozen=True, slots=True)
class Expressions(NamedOptions):
    """A set of expressions. `str` gives the name that `Expressions.of` reads back."""

    level: int | None = None     # operations of the answer: 1 to 4; None: a quarter each
    count: int = COUNT
    seed: int = 0

    def __str__(self) -> str:
        said = [f"{k}={v}" for k in self.__slots__ if (v := getattr(self, k)) != getattr(Expressions(), k)]
        return "expressions" + (":" + ",".join(said) if said else "")

    def __post_init__(self) -> None:
        self.refuse(
            (self.level not in (None, *range(1, LEVELS + 1)), f"level is 1 to {LEVELS}, not {self.level}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


def parsed(text: str) -> Terms | None:
    """The terms of an expression; None for any other text."""
    found = _TERM.findall("+" + text) if len(text) <= LONGEST else []
    return found if found and "".join(s + x for s, x in found)[1:] == text else None


def values(terms: Terms) -> list[int]:
    """The value at each of the inputs."""
    out = []
    for given in TESTS:
        value = 0
        for sign, x in terms:
            value = APPLY[sign](value, given if x == INPUT else int(x))
        out.append(value)
    return out


def cost(terms: Terms) -> int:
    """What the operations of an expression cost."""
    return sum(COST[sign] for sign, _ in terms[1:])


def listed(which: Expressions) -> Iterator[Problem]:
    """The problems, all different. Raises UserError when there are fewer than `count`."""
    rng, known = chance.generator(which.seed, chance.Purpose.CHOOSE, _DRAW), set[str]()
    for i in range(which.count):
        level = which.level or 1 + i % LEVELS
        drawn = next((d for _ in range(TRIES) if (d := draw(rng, level)).prompt not in known), None)
        if drawn is None:
            raise UserError(f"{which}: only {len(known)} different problems were found; lower count")
        known.add(drawn.prompt)
        meta = {"level": level, "solution": drawn.solution, "kin": drawn.kin, "puzzle": drawn.prompt, "exact": False,
                "source": "expressions"}
        yield Problem(f"expression-{drawn.prompt}", (Message("user", drawn.prompt),), drawn.answer, meta=meta)


def draw(rng: Generator, level: int) -> Drawn:
    """An expression of `level` operations, of which the prompt writes one or more in two parts."""
    signs = "+*" if rng.random() < 0.5 else "*+"
    short: Terms = [("+", INPUT)]
    for k in range(level):
        sign = signs[k % 2]
        short.append((sign, str(pick(rng, (4, 6, 8, 9, 10, 12) if sign == "*" else range(2, 21)))))
    split = rng.random(level) < 0.5
    split[int(rng.integers(level))] = True
    long = short[:1] + [part for one, two in zip(short[1:], split, strict=True) for part in _parts(rng, *one, two)]
    prompt, answer = _text(long) + END, _text(short)
    return Drawn(prompt, answer, answer, answer)


def _parts(rng: Generator, sign: str, number: str, split: bool) -> Terms:
    if not split:
        return [(sign, number)]
    whole = int(number)
    one = pick(rng, [k for k in range(2, whole) if whole % k == 0] if sign == "*" else range(1, whole))
    return [(sign, str(one)), (sign, str(whole // one if sign == "*" else whole - one))]


def _text(terms: Sequence[tuple[str, str]]) -> str:
    return "".join(sign + x for sign, x in terms)[1:]


def reference(problem: Problem) -> Terms:
    """The expression of a prompt. Raises UserError for a problem of another family."""
    terms = parsed(str(problem.meta.get("puzzle", "")).removesuffix(END))
    if terms is None:
        raise UserError(f"problem {problem.id} is not an expression: {problem.text[:40]!r}")
    return terms


def checks(problem: Problem, final: str) -> dict[str, float]:
    """What can be said of an answer without its values, from 0 to 1; all 0 if it cannot be read.

    `parses`; `reads`: the input is used; `acts`: no operation is without effect; `folded`: no two constants follow each
    other that make one; `saved`: the share of the reference's cost that it does not have.
    """
    terms, first = parsed(final), cost(reference(problem))
    if terms is None:
        return dict.fromkeys(("parses", "reads", "acts", "folded", "saved"), 0.0)
    alike = any(INPUT not in (a[1], b[1]) and (a[0] == "*") is (b[0] == "*") for a, b in pairwise(terms[1:]))
    return {
        "parses": 1.0, "reads": float(any(x == INPUT for _, x in terms)),
        "acts": float(not {("+", "0"), ("-", "0"), ("*", "1")} & set(terms[1:])), "folded": float(not alike),
        "saved": max((first - cost(terms)) / first, 0.0),
    }


def accepts(problem: Problem, final: str) -> bool:
    """Whether this is an expression with the values of the prompt's."""
    terms = parsed(final)
    return terms is not None and values(terms) == values(reference(problem))
