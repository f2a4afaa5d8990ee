"""Boxes: point at an element on a screen of characters, in one turn.

      BBB
      BBB
    KK      >B     a screen of `size` rows (shown as one text, row by row) and the name of an element
    KK
    2041           the answer: left, top, right and bottom; right and bottom are the first cells outside

The verifier pays 1 if the middle of the box that is answered lies in the element. The level is 4 for elements of one
cell and falls by 1 with each doubling of their area, down to 1: small ones are hard to hit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import floor, log2

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.tiny.rooms import NAMES
from isocost.options import NamedOptions
from isocost.parts.boxes import Box, area, hit, parsed
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck


@dataclass(frozen=True)
class Boxes(NamedOptions):
    """Which screens."""

    size: int = 6         # rows and columns, at most 9
    elements: int = 3
    count: int = 400      # problems
    seed: int = 0

    def __post_init__(self) -> None:
        self.refuse(
            (not 3 <= self.size <= 9, f"size is 3 to 9, not {self.size}"),
            (not 1 <= self.elements <= self.size, f"elements is 1 to size, not {self.elements}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


def problems(which: Boxes) -> Iterator[Problem]:
    """`count` screens, each with one question."""
    for i in range(which.count):
        rng = chance.generator(which.seed, chance.Purpose.CHOOSE, which.size, which.elements, i)
        placed: dict[str, Box] = {}
        cells: dict[tuple[int, int], str] = {}
        names = iter(rng.permutation(len(NAMES)).tolist())
        while len(placed) < which.elements:
            (x, y), (w, h) = rng.integers(which.size, size=2).tolist(), rng.integers(1, 4, size=2).tolist()
            box = (x, y, min(x + w, which.size), min(y + h, which.size))
            covered = [(r, c) for r in range(box[1], box[3]) for c in range(box[0], box[2])]
            if not any(cell in cells for cell in covered):
                name = NAMES[next(names)]
                placed[name] = box
                cells |= dict.fromkeys(covered, name)
        name, box = list(placed.items())[int(rng.integers(len(placed)))]
        screen = "".join(cells.get((r, c), " ") for r in range(which.size) for c in range(which.size))
        meta = {"box": box, "size": which.size, "level": level(box), "source": "boxes", "exact": False}
        yield Problem(f"boxes-{which.seed}-{i}", (Message("user", f"{screen}>{name}"),), written(box), meta=meta)


def level(box: Box) -> int:
    return max(4 - floor(log2(area(box))), 1)


def written(box: Box) -> str:
    return "".join(map(str, box))


class Screen(BaseEpisode):
    """One question: an `isocost.world.Environment`."""

    def __init__(self, problem: Problem):
        self.problem, self.said = problem, ""

    async def open(self) -> Shown:
        return Shown(tuple(self.problem.prompt), key="?")

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said, box = said, parsed(said)
        fault = Fault.model("no box") if box is None else None
        return Shown((), True, float(hit(box, self.problem.meta["box"])), "", fault)

    def expert(self) -> str:
        """The element's own box."""
        return str(self.problem.answer)


def open_set(spec: str) -> EnvironmentSet:
    return EnvironmentSet(spec, Screen, partial(problems, Boxes.of(spec)), max_turns=1, max_tokens=5,
                          model="tiny-tools")


ENVIRONMENT = EnvironmentKind("point at an element on a screen of characters, in one turn", vars(Boxes()), open_set)
