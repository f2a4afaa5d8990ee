"""Long addition: two numbers of the same length, one column per step, units first.

`478+395>` is worked out as `8+5=13;7+9+1=17;4+3+1=8;873`: the digits of a column, the carry if there is one, the total.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from numpy.random import Generator

from isocost.tasks.builtin.drawn import END, STEP, Drawn, pick

CARRIES = (0.0, 1 / 3, 2 / 3, 1.0)      # chance that a column carries, by level
Pair = tuple[int, int]
_PROMPT = re.compile(r"(\d+)\+(\d+)" + END)


@dataclass(frozen=True, slots=True)
class DigitPairs:
    """Pairs of digits that columns are made of."""

    pairs: tuple[Pair, ...] = tuple((a, b) for a in range(10) for b in range(10))

    def fitting(self, carry: int, carries: bool, lowest: int) -> list[Pair]:
        """Pairs of digits of at least `lowest` whose total with the `carry` does or does not reach 10."""
        return [(a, b) for a, b in self.pairs if (a + b + carry >= 10) == carries and min(a, b) >= lowest]


EVERY = DigitPairs()
_EVERY = {(c, k, low): EVERY.fitting(c, k, low) for c in (0, 1) for k in (False, True) for low in (0, 1)}


def pool(rng: Generator) -> DigitPairs:
    """A small common pool: of the pairs of digits from 1 to 9, five with a total below 9 and five with 10 or more."""
    below = [p for p in EVERY.pairs if min(p) and sum(p) < 9]
    above = [p for p in EVERY.pairs if sum(p) > 9]
    return DigitPairs(tuple(
        some[i] for some in (below, above) for i in sorted(rng.permutation(len(some))[:5].tolist())))


def draw(rng: Generator, level: int, length: int, pool: DigitPairs) -> Drawn:
    """Two numbers of 2 x `length` digits. At level 1 no column carries, at level 4 all do, else at least one."""
    digits = 2 * length
    wanted = rng.random(digits) < CARRIES[level - 1]
    if level > 1 and not wanted.any():
        wanted[int(rng.random() * digits)] = True
    a = b = carry = 0
    for i, carries in enumerate(wanted.tolist()):
        key = carry, carries, int(i == digits - 1)
        x, y = pick(rng, _EVERY[key] if pool is EVERY else pool.fitting(*key))
        a, b, carry = a + x * 10**i, b + y * 10**i, int(carries)
    steps, answer = worked(a, b), str(a + b)
    return Drawn(f"{a}+{b}{END}", answer, "".join(step + STEP for step in steps) + answer, f"{min(a, b)}+{max(a, b)}")


def worked(a: int, b: int) -> list[str]:
    """The columns of a sum, units first."""
    steps, carry = [], 0
    while a or b:
        x, y = a % 10, b % 10
        total = x + y + carry
        steps.append(f"{x}+{y}" + (f"+{carry}" if carry else "") + f"={total}")
        a, b, carry = a // 10, b // 10, total // 10
    return steps


def check(prompt: str, steps: list[str]) -> list[bool]:
    """Whether each step is the right one in its place: every sum has one solution."""
    right = worked(*_operands(prompt))
    return [i < len(right) and step == right[i] for i, step in enumerate(steps)]


def accepts(prompt: str, answer: str) -> bool:
    """Whether this is the sum."""
    return answer == str(sum(_operands(prompt)))


def _operands(prompt: str) -> tuple[int, int]:
    found = _PROMPT.fullmatch(prompt)
    if not found:
        raise ValueError(f"not an addition: {prompt[:40]!r}")
    return int(found[1]), int(found[2])
