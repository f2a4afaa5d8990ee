"""What every kind of puzzle gives for one draw, and the two marks that all kinds have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from numpy.random import Generator

STEP = ";"       # ends one step of an answer
END = ">"        # ends a prompt
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One puzzle as text, and how it is solved."""

    prompt: str
    answer: str        # the reference solution's last part
    solution: str      # every step, and the answer
    kin: str           # equal for puzzles that must stay on one side of a split


def pick(rng: Generator, among: Sequence[T]) -> T:
    """One of a sequence, each equally likely."""
    return among[int(rng.random() * len(among))]
