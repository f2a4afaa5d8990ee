"""Sums whose answers have a fixed number of places, for policies that fill places in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isocost import chance
from isocost.options import NamedOptions
from isocost.tasks.builtin import sums
from isocost.types import Message, Problem

LOW, HIGH = 10, 60      # of either operand
PLACES = 8              # of an answer: its digits, then ends


@dataclass(frozen=True, slots=True)
class Places(NamedOptions):
    """A set of sums of two numbers: `count` pairs, drawn without replacement by `seed`."""

    count: int = 600
    seed: int = 0

    def __post_init__(self) -> None:
        most = (HIGH - LOW) ** 2
        self.refuse((not 1 <= self.count <= most, f"count is 1 to {most}, not {self.count}"))


def listed(which: Places) -> Iterator[Problem]:
    """The problems that a `Places` names. `meta` has the number of carries as `level`."""
    side = HIGH - LOW
    drawn = chance.generator(which.seed, chance.Purpose.CHOOSE).choice(side**2, which.count, replace=False)
    for a, b in ((LOW + i // side, LOW + i % side) for i in drawn.tolist()):
        prompt, kin = f"{a}+{b}=", f"{min(a, b)}+{max(a, b)}"
        meta = {"level": len(sums.carries(a, b)), "solution": str(a + b), "kin": kin, "exact": False,
                "source": "places"}
        yield Problem(f"places-{prompt}", (Message("user", prompt),), str(a + b), meta=meta)
