"""The built-in problems: sums of two numbers, with settings for difficulty and for the length of the answer.

Every ordered pair of two-digit numbers is one problem. Its level is the number of carries. The setting `work` adds
reasoning to the answer: 0 is the sum alone, 1 the column totals first, 2 the whole column addition; the last character
of the prompt encodes it. The sum alone has one right spelling, so pass@1 is the probability of one string, and is
computed instead of sampled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.types import Message, Problem

MARKS = "=:?"                     # the prompt's last character, by `work`
STEP = ";"                        # ends one step of a worked answer
ALPHABET = "0123456789+" + MARKS + STEP
EASY, HARD = (0.3, 0.6), (0.0, 0.0625)   # pass rates of the base: mid-range; at most 1 of 16
BASES = {"easy": EASY, "hard": HARD, "very-easy": (0.6, 0.9)}   # the splits of arXiv 2603.12151
RATES = Path(__file__).parents[2] / "local" / "base" / "rates.json"


@dataclass(frozen=True, slots=True)
class Sums(NamedOptions):
    """A set of sums. `str` gives the name that `Sums.of` reads back."""

    level: int | None = None      # exactly so many carries
    carry: int | None = None      # 0: none, 1: at least one
    digits: int = 2               # of either operand
    work: int = 0                 # 0 the sum, 1 column totals first, 2 the whole column addition
    count: int | None = None      # this many, drawn without replacement; None: all (two digits only)
    seed: int = 0                 # of that draw
    base: str = ""                # "easy", "hard" or "very-easy": by the embedded base's exact pass rate

    def __str__(self) -> str:
        default = Sums()
        said = [f"{k}={getattr(self, k)}" for k in self.__slots__ if getattr(self, k) != getattr(default, k)]
        return "sums" + (":" + ",".join(said) if said else "")

    def __post_init__(self) -> None:
        self.refuse(
            (self.work not in range(len(MARKS)), f"work is 0, 1 or 2, not {self.work}"),
            (self.digits not in range(1, 5), f"digits is 1 to 4, not {self.digits}"),
            (self.carry not in (None, 0, 1), f"carry is 0 (none) or 1 (at least one), not {self.carry}"),
            (self.count is not None and self.count < 1, f"count is at least 1, not {self.count}"),
            (self.seed < 0, f"seed is at least 0, not {self.seed}"),
            (self.level is not None and self.level not in range(self.digits + 1),
             f"level is 0 to {self.digits} carries, not {self.level}"),
            (self.base not in ("", *BASES), f"base is very-easy, easy or hard, not {self.base!r}"),
            (bool(self.base) and (self.digits, self.work) != (2, 0),
             f"base={self.base} is known for digits=2,work=0 only"),
        )


def sums(
    level: int | None = None, count: int | None = None, seed: int = 0, work: int = 0, digits: int = 2,
    carry: int | None = None, base: str = "",
) -> list[Problem]:
    """Sums in a fixed order, `count` of them if given. Raises UserError for options out of range and too few sums."""
    return list(listed(Sums(level, carry, digits, work, count, seed, base)))


def listed(which: Sums) -> Iterator[Problem]:
    """The problems a `Sums` names. Raises UserError when there are fewer than its `count`."""
    pairs = _pairs(which)
    if which.count is None and which.digits > 2:
        raise UserError(f"{which}: there are {len(pairs)}; say how many with count=")
    if which.count is not None:
        if which.count > len(pairs):
            raise UserError(f"{which}: there are only {len(pairs)}")
        draw = chance.generator(which.seed, chance.Purpose.CHOOSE, which.digits)
        pairs = pairs[draw.choice(len(pairs), which.count, replace=False)]
    for a, b in pairs.tolist():
        yield problem(a, b, which.work)


def problem(a: int, b: int, work: int = 0) -> Problem:
    """One sum. `meta` has level (carries), solution (what a perfect policy writes), kin (same for a+b and b+a)."""
    prompt = f"{a}+{b}{MARKS[work]}"
    meta = {
        "level": len(carries(a, b)), "solution": solution(a, b, work), "kin": f"{min(a, b)}+{max(a, b)}",
        "work": work, "exact": work == 0, "source": "sums",
    }
    return Problem(f"sum-{prompt}", (Message("user", prompt),), str(a + b), meta=meta)


def solution(a: int, b: int, work: int) -> str:
    """What a perfect policy writes: the steps that `work` asks for, units first, then the sum."""
    return "".join(step + STEP for step in _steps(a, b, work)) + str(a + b)


def carries(a: int, b: int) -> list[int]:
    """The columns that carry into the next one, counted from the units."""
    return [i for i, total in enumerate(_totals(a, b)) if total >= 10]


def check_steps(problem: Problem, text: str) -> list[bool]:
    """Is each step of an answer the right one in its place? The last entry is the sum itself."""
    a, b = operands(problem)
    right = [*_steps(a, b, int(problem.meta["work"])), str(a + b)]
    said = text.split(STEP)
    return [i < len(right) and step == right[i] for i, step in enumerate(said)]


def operands(problem: Problem) -> tuple[int, int]:
    """The two numbers a sum adds. Raises UserError for a problem that is not a sum."""
    a, plus, b = problem.text.rstrip(MARKS).partition("+")
    if not (plus and a.isdecimal() and b.isdecimal()):
        raise UserError(f"problem {problem.id} is not a sum: {problem.text[:40]!r}")
    return int(a), int(b)


@cache
def base_rates() -> ndarray:
    """(100, 100) exact pass@1 of the embedded base on a+b at temperature 1, or nan. Raises UserError without it."""
    if not RATES.exists():
        raise UserError(f"{RATES} is missing; make the base with: python experiments/bases.py make tiny --out "
                        f"{RATES.parent}")
    known = json.loads(RATES.read_text(encoding="utf-8"))
    rates = np.full((100, 100), np.nan)
    rates[known["first"] :, known["first"] :] = known["pass_at_1"]
    return rates


def _totals(a: int, b: int) -> list[int]:
    """Column totals, units first, the carry from the column before included."""
    totals, carry = [], 0
    while a or b:
        total = a % 10 + b % 10 + carry
        totals.append(total)
        a, b, carry = a // 10, b // 10, total // 10
    return totals


def _steps(a: int, b: int, work: int) -> list[str]:
    """The steps written before the sum: none, column totals, or columns in full."""
    if work == 0:
        return []
    steps, carry = [], 0
    for total in _totals(a, b):
        column = f"{a % 10}+{b % 10}" + (f"+{carry}" if carry else "") + "="
        steps.append((column if work == 2 else "") + str(total))
        a, b, carry = a // 10, b // 10, total // 10
    return steps


def _pairs(which: Sums) -> ndarray:
    """(pairs, 2) operands in a fixed order, after every filter."""
    low, high = (10 ** (which.digits - 1) if which.digits > 1 else 0), 10**which.digits
    if which.digits > 2:  # too many to list: a seeded sample, large enough for `count`
        draw = chance.generator(which.seed, chance.Purpose.CHOOSE, which.digits, 1)
        pairs = np.unique(draw.integers(low, high, size=(40 * (which.count or 1000), 2)), axis=0)
    else:
        a, b = np.meshgrid(np.arange(low, high), np.arange(low, high), indexing="ij")
        pairs = np.stack([a.ravel(), b.ravel()], axis=1)
    level = _level(pairs, which.digits)
    keep = np.ones(len(pairs), dtype=bool)
    if which.level is not None:
        keep &= level == which.level
    if which.carry is not None:
        keep &= (level > 0) == bool(which.carry)
    if which.base:
        low_rate, high_rate = BASES[which.base]
        rate = base_rates()[pairs[:, 0], pairs[:, 1]]
        keep &= (rate >= low_rate) & (rate <= high_rate)
    return pairs[keep]


def _level(pairs: ndarray, digits: int) -> ndarray:
    """(pairs,) how many columns carry: column i does when the numbers below 10^(i+1) sum to at least that."""
    tens = 10 ** np.arange(1, digits + 1)
    return ((pairs[:, :1] % tens + pairs[:, 1:] % tens) >= tens).sum(axis=1)


def final(said: str) -> str:
    """What a worked answer ends on: everything after its last step."""
    return said.rpartition(STEP)[2]
