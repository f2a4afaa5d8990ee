"""Built-in problems that are worked out step by step: chains of operations, long addition, and countdown.

One model, `tiny-puzzles`, was taught all three kinds. They share skills: each applies + and - to small numbers, chain
and countdown share multiplication and the order from left to right. Answers take 10 to 190 characters, one token each,
with a heavy tail of lengths, because a search may take many wrong turns. Steps end in `;` and are checked one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy import ndarray
from numpy.random import Generator

from isocost import chance
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.tasks.builtin import addition, chain, countdown, sums
from isocost.tasks.builtin.drawn import END, STEP, Drawn
from isocost.types import Message, Problem

KINDS: dict[str, ModuleType] = {"chain": chain, "addition": addition, "countdown": countdown}
ALPHABET = "0123456789+-*=%,!" + STEP + END
LEVELS, LENGTHS = 4, 5
WEIGHTS = (5, 4, 3, 2, 1)        # of the lengths, where the option is not given: long problems are rarer
COUNT = 1200                     # problems, where the option is not given
BASES = sums.BASES                # pass rates of the base, by split: the same for both families
RATES = Path(__file__).parents[2] / "local" / "puzzles" / "rates.json"
TOKENS = 128                     # of a completion, by default: cuts some of the long searches
TRIES = 100                      # draws in a row that give a known problem, after which there are no more
_DRAW, _POOL = 101, 102          # addresses of random numbers


@dataclass(frozen=True, slots=True)
class Puzzles(NamedOptions):
    """Which puzzles are meant. `str` gives the name that `Puzzles.of` reads back."""

    kind: str = ""                # "chain", "addition" or "countdown"; "": a third each
    length: int | None = None     # 1 (short) to 5 (long): operations, columns or numbers
    level: int | None = None      # 1 (easy) to 4 (hard); None: a quarter each
    share: float = 0.0            # share of the problems that are made of the numbers of one small common pool
    count: int = COUNT
    seed: int = 0                 # of the draw, and of the pool
    base: str = ""                # "hard", "easy" or "very-easy": by the embedded base's measured pass rate

    def __str__(self) -> str:
        default = Puzzles()
        said = [f"{k}={_written(getattr(self, k))}" for k in self.__slots__ if getattr(self, k) != getattr(default, k)]
        return "puzzles" + (":" + ",".join(said) if said else "")

    def __post_init__(self) -> None:
        self.refuse(
            (self.kind not in ("", *KINDS), f"kind is {', '.join(KINDS)}, not {self.kind!r}"),
            (self.length not in (None, *range(1, LENGTHS + 1)),
             f"length is 1 (short) to {LENGTHS} (long), not {self.length}"),
            (self.level not in (None, *range(1, LEVELS + 1)),
             f"level is 1 (easy) to {LEVELS} (hard), not {self.level}"),
            (not 0 <= self.share <= 1, f"share is 0 to 1, not {self.share}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
            (self.seed < 0, f"seed is at least 0, not {self.seed}"),
            (self.base not in ("", *BASES), f"base is hard, easy or very-easy, not {self.base!r}"),
            (bool(self.base) and (self.share != 0 or self.seed != 0 or self.count > COUNT),
             f"base={self.base} is known for the first {COUNT} problems of seed 0 without share"),
        )


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def listed(which: Puzzles) -> Iterator[Problem]:
    """The problems, all different; a smaller `count` gives the first of them.

    With `base` they are those of the default problems that the base solves so often and that fit the other options.
    Raises UserError when there are fewer than `count`, and with `base` if there is none.
    """
    if which.base:
        yield from _by_base(which)
        return
    rng = chance.generator(which.seed, chance.Purpose.CHOOSE, _DRAW)
    kinds = [which.kind] if which.kind else list(KINDS)
    levels = [which.level] if which.level else list(range(1, LEVELS + 1))
    lengths = [which.length] if which.length else list(range(1, LENGTHS + 1))
    chances = np.cumsum([WEIGHTS[x - 1] for x in lengths]) / sum(WEIGHTS[x - 1] for x in lengths)
    known: set[str] = set()
    for i in range(which.count):
        kind, level = kinds[i % len(kinds)], levels[i // len(kinds) % len(levels)]
        for _ in range(TRIES):
            length = lengths[int(np.searchsorted(chances, rng.random(), side="right"))]
            shared = rng.random() < which.share
            drawn = draw(rng, kind, level, length, pool_of(kind, which.seed if shared else None))
            if drawn.prompt not in known:
                break
        else:
            raise UserError(f"{which}: only {len(known)} different problems were found; lower count")
        known.add(drawn.prompt)
        yield problem(kind, level, length, drawn)


def _by_base(which: Puzzles) -> Iterator[Problem]:
    """The default problems of one split by pass rate, and of the kind, length and level that are asked for."""
    low, high = BASES[which.base]
    asked = [(key, value) for key, value in (("kind", which.kind), ("length", which.length), ("level", which.level))
             if value]
    some = [p for p, rate in zip(listed(Puzzles()), base_rates().tolist(), strict=True)
            if low <= rate <= high and all(p.meta[key] == value for key, value in asked)]
    if not some:
        raise UserError(f"{which}: none of the {COUNT} default problems is of this kind, length, level and pass rate")
    yield from some[: which.count]


@cache
def base_rates() -> ndarray:
    """(COUNT,) share right of 64 samples of the embedded base at temperature 1, of the default problems.

    Raises UserError when the base has not been measured.
    """
    if not RATES.exists():
        raise UserError(f"{RATES} is missing; make the base with: python experiments/bases.py make tiny-puzzles "
                        f"--out {RATES.parent}")
    known = json.loads(RATES.read_text(encoding="utf-8"))
    return np.array(known["right"]) / known["samples"]


def draw(rng: Generator, kind: str, level: int, length: int, pool: Any = None) -> Drawn:
    """One puzzle, made of any numbers or of a pool's."""
    return KINDS[kind].draw(rng, level, length, pool_of(kind, None) if pool is None else pool)


@cache
def pool_of(kind: str, seed: int | None) -> Any:
    """The numbers that puzzles of a kind are made of: every one, or the common pool of a seed."""
    module = KINDS[kind]
    if seed is None:
        return module.EVERY
    return module.pool(chance.generator(seed, chance.Purpose.CHOOSE, _POOL, list(KINDS).index(kind)))


def problem(kind: str, level: int, length: int, drawn: Drawn) -> Problem:
    """A puzzle as a problem.

    `meta` has level, solution (the reference, with its steps), kin, kind, length, puzzle (the prompt, whatever a guide
    makes of it) and environment (the kind, for methods that keep a dial for each).
    """
    meta = {
        "level": level, "solution": drawn.solution, "kin": f"{kind} {drawn.kin}", "kind": kind, "length": length,
        "puzzle": drawn.prompt, "exact": False, "source": "puzzles", "environment": kind,
    }
    return Problem(f"{kind}-{drawn.prompt}", (Message("user", drawn.prompt),), drawn.answer, meta=meta)


def check_steps(problem: Problem, text: str) -> list[bool]:
    """Is each step of an answer right in its place? The last entry is the final answer.

    A chain and an addition have one right step in each place. A countdown's step is right if it can be taken where the
    search stands and its result is right, also if it leads to a dead end.
    """
    *steps, final = text.split(STEP)
    return [*_kind(problem).check(problem.meta["puzzle"], steps), accepts(problem, final)]


def accepts(problem: Problem, final: str) -> bool:
    """Whether this is a right final answer. A countdown may have several."""
    return bool(_kind(problem).accepts(problem.meta["puzzle"], final))


def solutions(problem: Problem) -> set[str] | None:
    """Every right answer of a countdown. Raises UserError for one of more than five numbers. None for another kind."""
    return countdown.solutions(problem.meta["puzzle"]) if problem.meta["kind"] == "countdown" else None


def _kind(problem: Problem) -> ModuleType:
    return KINDS[str(problem.meta["kind"])]
