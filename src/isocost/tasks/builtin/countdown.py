"""Countdown: reach a target from given numbers with + - *, by search.

`3,8,2=26>` asks for an order and signs with which all the numbers, applied from left to right, give 26. A step applies
one unused number to the result so far. `!` before a step takes back the step before it, so a dead end costs tokens:
`8+3=11;11*2=22;!!8*3=24;24+2=26;8*3+2`. The answer is the expression. It is read from left to right, as in a chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from numpy.random import Generator

from isocost.errors import UserError
from isocost.tasks.builtin.chain import APPLY
from isocost.tasks.builtin.drawn import END, STEP, Drawn, pick

SIGNS = ("+-", "+-", "+-*", "+-*")       # by level
LARGEST = (5, 9, 9, 19)                  # of the given numbers, by level
MOST = 99                                # of every result in the reference solutions, and of the target; the least is 0
ROOM = 180                               # characters of a reference solution
LUCK = (0.5, 0.97)                       # chance that the search takes a step of the known solution: drawn from here
TRIES = 2                                # dead ends off the known solution before the search returns to it
UNDO = "!"                               # takes back one step
_PROMPT = re.compile(r"(\d+(?:,\d+)+)=(\d+)" + END)
_STEP = re.compile(rf"({UNDO}*)(\d+)([-+*])(\d+)=(\d+)", re.ASCII)
_TERM = re.compile(r"([-+*])(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class GivenNumbers:
    """Numbers that are given, by the largest of the level."""

    by_largest: dict[int, tuple[int, ...]] = field(
        default_factory=lambda: {k: tuple(range(1, k + 1)) for k in sorted(set(LARGEST))}
    )


EVERY = GivenNumbers()


def pool(rng: Generator) -> GivenNumbers:
    """A small common pool: three numbers for each level's largest."""
    return GivenNumbers({k: tuple(sorted(rng.choice(some, 3, replace=False).tolist()))
                         for k, some in EVERY.by_largest.items()})


def draw(rng: Generator, level: int, length: int, pool: GivenNumbers) -> Drawn:
    """2 + `length` numbers. Levels 3 and 4 have multiplication in their solution, level 4 numbers up to 19."""
    signs = SIGNS[level - 1]
    while True:
        numbers = [pick(rng, pool.by_largest[LARGEST[level - 1]]) for _ in range(2 + length)]
        path = _path(rng, numbers, signs)
        if path and ("*" not in signs or any(sign == "*" for sign, _ in path)):
            break
    target = _value(path)
    order = [numbers[i] for i in rng.permutation(len(numbers)).tolist()]
    low, high = LUCK
    luck = low + (high - low) * rng.random()
    while len(solution := _search(rng, path, target, signs, luck)) > ROOM:
        luck += (1.0 - luck) / 2
    known = f"{','.join(map(str, sorted(numbers)))}={target}"
    return Drawn(f"{','.join(map(str, order))}={target}{END}", solution.rpartition(STEP)[2], solution, known)


Path = list[tuple[str, int]]     # a sign and a number each; the first sign is +


def _path(rng: Generator, numbers: list[int], signs: str) -> Path:
    """The numbers in their order, each with a sign that keeps the result within bounds; empty if a number has none."""
    path, value = [("+", numbers[0])], numbers[0]
    for x in numbers[1:]:
        able = [s for s in signs if 0 <= APPLY[s](value, x) <= MOST]
        if not able:
            return []
        sign = pick(rng, able)
        path.append((sign, x))
        value = APPLY[sign](value, x)
    return path


def _value(path: Path) -> int:
    value = 0
    for sign, x in path:
        value = APPLY[sign](value, x)
    return value


def _search(rng: Generator, known: Path, target: int, signs: str, luck: float) -> str:
    """A depth-first search that takes the step of the `known` solution with chance `luck`, else another one.

    Off the known solution every step is random, and after `TRIES` dead ends the search returns to it.
    """
    out: list[str] = []
    path: Path = []
    dead: set[tuple[tuple[str, int], ...]] = set()
    undone, misses = "", 0
    while len(path) < len(known) or _value(path) != target:
        on = path == known[: len(path)]
        if on:
            misses = 0
        options = [] if misses >= TRIES else [s for s in _options(path, known, signs) if (*path, s) not in dead]
        if not options:
            dead.add(tuple(path))
            path.pop()
            undone += UNDO if path else ""       # the first number alone is no step
            misses += 1
            continue
        right = known[len(path)] if on else None
        sign, x = step = right if right in options and rng.random() < luck else pick(rng, options)
        if path:
            value = _value(path)
            out.append(f"{undone}{value}{sign}{x}={APPLY[sign](value, x)}{STEP}")
            undone = ""
        path.append(step)
    return "".join(out) + path_text(path)


def _options(path: Path, known: Path, signs: str) -> Path:
    """The steps that can follow a path of the numbers of the `known` solution."""
    left = [x for _, x in known]
    for _, x in path:
        left.remove(x)
    value = _value(path)
    return [(s, x) for x in dict.fromkeys(left) for s in (signs if path else "+") if 0 <= APPLY[s](value, x) <= MOST]


def path_text(path: Path) -> str:
    """The expression of a path."""
    return "".join(f"{sign}{x}" for sign, x in path)[1:]


def check(prompt: str, steps: list[str]) -> list[bool]:
    """Whether each step can be taken where the search stands: its value, an unused number, the right result.

    A step that cannot be taken changes nothing; the next is judged as if it were not there.
    """
    numbers, _ = _given(prompt)
    taken: list[tuple[int, list[int]]] = []      # the result after each step, and the numbers left
    out = []
    for step in steps:
        after = _after(step, taken, numbers)
        out.append(after is not None)
        taken = taken if after is None else after
    return out


def _after(
    step: str, taken: list[tuple[int, list[int]]], numbers: list[int]
) -> list[tuple[int, list[int]]] | None:
    """What is taken after one more step; None if it cannot be taken."""
    found = _STEP.fullmatch(step)
    if not found or len(found[1]) > len(taken) or any(len(found[k]) > 9 for k in (2, 4, 5)):
        return None
    before = taken[: len(taken) - len(found[1])]
    a, b, result = int(found[2]), int(found[4]), int(found[5])
    left = list(before[-1][1] if before else numbers)
    used = [b] if before else [a, b]
    if before and before[-1][0] != a:
        return None
    for x in used:
        if x not in left:
            return None
        left.remove(x)
    return [*before, (result, left)] if APPLY[found[3]](a, b) == result else None


def accepts(prompt: str, answer: str) -> bool:
    """Whether the expression uses every number once and gives the target, read from left to right."""
    numbers, target = _given(prompt)
    path = [(s, int(x)) for s, x in _TERM.findall("+" + answer)] if len(answer) <= ROOM else []
    return (path_text(path) == answer and sorted(x for _, x in path) == sorted(numbers)
            and all(_value(path[: k + 1]) >= 0 for k in range(len(path))) and _value(path) == target)


def solutions(prompt: str) -> set[str]:
    """Every right expression. Raises UserError for more than five numbers, of which there are too many to list."""
    numbers, target = _given(prompt)
    if len(numbers) > 5:
        raise UserError(f"{prompt}: solutions of {len(numbers)} numbers are not listed; take at most five (length=3)")
    return {path_text(path) for path in _ways([], numbers) if _value(path) == target}


def _ways(path: Path, left: list[int]) -> Iterator[Path]:
    """The expressions that begin with a path and take all the numbers that are left, without a negative result."""
    if not left:
        yield path
    for x in sorted(set(left)):
        rest = sorted(left)
        rest.remove(x)
        for sign in APPLY if path else "+":
            if APPLY[sign](_value(path), x) >= 0:
                yield from _ways([*path, (sign, x)], rest)


def _given(prompt: str) -> tuple[list[int], int]:
    found = _PROMPT.fullmatch(prompt)
    if not found:
        raise ValueError(f"not a countdown: {prompt[:40]!r}")
    return [int(x) for x in found[1].split(",")], int(found[2])
