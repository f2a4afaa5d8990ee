"""Chained modular arithmetic: operations from left to right modulo m, one operation per step.

`3+5*4-6%7>` is read ((3+5)*4-6) mod 7. A step applies one operation to the value so far and, where the result is
outside 0 to m-1, adds or subtracts a multiple of m: `3+5=8-7=1;1*4=4;4-6=-2+7=5;5`.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from numpy.random import Generator

from isocost.tasks.builtin.drawn import END, STEP, Drawn, pick

SMALL, LARGE = range(5, 11), range(11, 100)      # moduli of levels 1 and 2, and of levels 3 and 4
APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_PROMPT = re.compile(r"(\d+)((?:[-+*]\d)+)%(\d+)" + END)


@dataclass(frozen=True, slots=True)
class ChainNumbers:
    """Numbers that problems are made of: moduli by level, and operands."""

    small: tuple[int, ...] = tuple(SMALL)
    large: tuple[int, ...] = tuple(LARGE)
    operands: tuple[int, ...] = tuple(range(2, 10))


EVERY = ChainNumbers()


def pool(rng: Generator) -> ChainNumbers:
    """A small common pool: two moduli of either size, and three operands."""
    return ChainNumbers(*(tuple(sorted(rng.choice(x, n, replace=False).tolist()))
                          for x, n in ((EVERY.small, 2), (EVERY.large, 2), (EVERY.operands, 3))))


def draw(rng: Generator, level: int, length: int, pool: ChainNumbers) -> Drawn:
    """A chain of 2 x `length` operations. Levels 1 and 2 have m up to 10; levels 2 and 4 have multiplication."""
    m = pick(rng, pool.small if level < 3 else pool.large)
    signs = "+-" if level in (1, 3) else "+-*"
    start = int(rng.random() * m)
    pairs = [(pick(rng, signs), pick(rng, pool.operands)) for _ in range(2 * length)]
    prompt = f"{start}{''.join(f'{s}{x}' for s, x in pairs)}%{m}{END}"
    steps, answer = worked(start, pairs, m)
    return Drawn(prompt, str(answer), "".join(step + STEP for step in steps) + str(answer), prompt)


def worked(value: int, pairs: list[tuple[str, int]], m: int) -> tuple[list[str], int]:
    """The steps of a chain, and its value."""
    steps = []
    for sign, x in pairs:
        result = APPLY[sign](value, x)
        step = f"{value}{sign}{x}={result}"
        value = result % m
        if value != result:
            step += f"{'-' if result > 0 else '+'}{abs(result - value)}={value}"
        steps.append(step)
    return steps, value


def check(prompt: str, steps: list[str]) -> list[bool]:
    """Whether each step is the right one in its place: every chain has one solution."""
    right = _right(prompt)
    return [i < len(right) - 1 and step == right[i] for i, step in enumerate(steps)]


def accepts(prompt: str, answer: str) -> bool:
    """Whether this is the value of the chain."""
    return answer == _right(prompt)[-1]


def parsed(prompt: str) -> tuple[int, list[tuple[str, int]], int]:
    """The first value, the operations and the modulus of a chain. Raises ValueError for another text."""
    found = _PROMPT.fullmatch(prompt)
    if not found:
        raise ValueError(f"not a chain: {prompt[:40]!r}")
    return int(found[1]), [(s, int(x)) for s, x in re.findall(r"([-+*])(\d)", found[2])], int(found[3])


def _right(prompt: str) -> list[str]:
    steps, answer = worked(*parsed(prompt))
    return [*steps, str(answer)]
