"""Reach: a point goes to places in a plane, one after the other. A move is two tokens, a bin for each axis.

    37>62 15:     the question: the point is at column 3 and row 7; go to 62, then to 15
    HA            a turn: bins A to I move by -4 to 4, here by 3 and by -4
    63:           where the point is now; "!" before it: that was no move
    ED            a turn: by 0 and by -1
    *62:          "*": that was the next place

The last place ends the episode and pays 1; nothing else pays. A move ends at the border, and with `noise` it is off by
one along an axis with that probability. The level is the least number of moves without noise. The state begins with how
many places were reached: `meta["milestones"]` lists those before the last, for methods that pay for progress, and
`meta["expert"]` the expert's moves if there is no noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from isocost import chance
from isocost.envs.environment_set import EnvironmentKind, EnvironmentSet
from isocost.envs.tiny.rooms import NAMES
from isocost.options import NamedOptions
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

FAR = 4       # cells that a move can go along an axis
BINS = NAMES[: 2 * FAR + 1]
Cell = tuple[int, int]


@dataclass(frozen=True)
class Routes(NamedOptions):
    """How large the plane is, how many places are to be reached, and how exact moves are."""

    size: int = 10        # columns and rows
    places: int = 2
    noise: float = 0.0    # probability, for each axis, that a move is off by one
    count: int = 400      # problems
    seed: int = 0

    def __post_init__(self) -> None:
        self.refuse(
            (not 2 <= self.size <= 10, f"size is 2 to 10, not {self.size}"),
            (not 1 <= self.places <= 5, f"places is 1 to 5, not {self.places}"),
            (not 0 <= self.noise < 1, f"noise is at least 0 and below 1, not {self.noise}"),
            (self.count < 1, f"count is at least 1, not {self.count}"),
        )


def problems(which: Routes) -> Iterator[Problem]:
    """`count` starts with places to reach, each of which is another cell than the one before."""
    for i in range(which.count):
        rng = chance.generator(which.seed, chance.Purpose.CHOOSE, which.size, which.places, i)
        route: list[Cell] = []
        while len(route) <= which.places:
            cell = int(rng.integers(which.size)), int(rng.integers(which.size))
            if route[-1:] != [cell]:
                route.append(cell)
        moves = tuple(m for a, b in pairwise(route) for m in _moves(a, b))
        asked = f"{_written(route[0])}>{' '.join(map(_written, route[1:]))}:"
        meta = {"route": tuple(route), "reach": which, "level": len(moves), "source": "reach", "exact": False,
                "milestones": tuple(f"{k}:" for k in range(1, which.places))}
        yield Problem(f"reach-{which.seed}-{i}", (Message("user", asked),), _written(route[-1]),
                      meta=meta if which.noise else {**meta, "expert": moves})


def _written(cell: Cell) -> str:
    return f"{cell[0]}{cell[1]}"


def _moves(at: Cell, to: Cell) -> list[str]:
    """The fewest moves from one cell to another, each as far as it can go."""
    said = []
    while at != to:
        x, y = (min(max(b - a, -FAR), FAR) for a, b in zip(at, to, strict=True))
        said.append(BINS[x + FAR] + BINS[y + FAR])
        at = at[0] + x, at[1] + y
    return said


class Mover(BaseEpisode):
    """One route: an `isocost.world.Environment`."""

    def __init__(self, problem: Problem):
        self.which: Routes = problem.meta["reach"]
        self.asked = tuple(problem.prompt)
        self.at, *self.left = problem.meta["route"]

    async def open(self) -> Shown:
        return Shown(self.asked, key=self.final())

    async def step(self, said: str, luck: Luck) -> Shown:
        bins = [BINS.find(c) for c in said]
        if len(bins) != 2 or min(bins) < 0:
            return Shown(self._tell("!"), False, 0.0, self.final(), Fault.model("no such move"))
        off = [0, 0]
        if self.which.noise:
            rng = luck()
            off = [int(rng.choice((-1, 1))) if rng.random() < self.which.noise else 0 for _ in off]
        x, y = (min(max(a + b - FAR + d, 0), self.which.size - 1) for a, b, d in zip(self.at, bins, off, strict=True))
        self.at = x, y
        there = self.at == self.left[0]
        if there:
            self.left.pop(0)
        return Shown(self._tell("*" * there), not self.left, float(not self.left), self.final())

    def final(self) -> str:
        """The state: how many places were reached, and where the point is."""
        return f"{self.which.places - len(self.left)}:{_written(self.at)}"

    def expert(self) -> str:
        """The next move of one that goes straight to the next place."""
        return _moves(self.at, self.left[0])[0]

    def _tell(self, mark: str) -> tuple[Message, ...]:
        return (Message("tool", f"{mark}{_written(self.at)}:"),)


def open_set(spec: str) -> EnvironmentSet:
    return EnvironmentSet(spec, Mover, partial(problems, Routes.of(spec)), max_turns=8, max_tokens=3,
                          model="tiny-tools")


ENVIRONMENT = EnvironmentKind("a point that goes to places in a plane by moves of two tokens", vars(Routes()), open_set)
