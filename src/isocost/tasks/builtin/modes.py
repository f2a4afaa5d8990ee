"""Points to reach in the plane: four regions, of which the prompt names one by the direction of a point in it.

A policy that ignores the prompt reaches each region equally often. An answer is a point, "x y", and it is right within
`RADIUS` of the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import cos, dist, radians, sin, sqrt

from isocost import chance
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.types import Message, Problem

AWAY, RADIUS = sqrt(2), 0.3     # the centres of the four regions are at (±1, ±1)
STATES = 11         # of a policy that denoises: the noise it begins with, and ten steps
FINE = 10           # directions are in tenths of a degree
WIDTH = 10          # degrees to either side of a region's centre


@dataclass(frozen=True, slots=True)
class Modes(NamedOptions):
    """A set of targets: `count` directions, drawn without replacement by `seed`."""

    count: int = 240
    seed: int = 0

    def __post_init__(self) -> None:
        most = len(_directions())
        self.refuse((not 1 <= self.count <= most, f"count is 1 to {most}, not {self.count}"))


def listed(which: Modes) -> Iterator[Problem]:
    """The problems that a `Modes` names. `meta` has the region as `level`, and the direction as `kin`."""
    every = _directions()
    drawn = chance.generator(which.seed, chance.Purpose.CHOOSE).choice(len(every), which.count, replace=False)
    for region, tenths in (every[i] for i in drawn.tolist()):
        prompt = f"{tenths / FINE:.1f}"
        x, y = (AWAY * f(radians(tenths / FINE)) for f in (cos, sin))
        meta = {"level": region, "kin": prompt, "exact": False, "source": "modes"}
        yield Problem(f"mode-{prompt}", (Message("user", prompt),), f"{x:.6f} {y:.6f}", meta=meta)


def accepts(problem: Problem, final: str) -> bool:
    """Whether a point is within `RADIUS` of the target."""
    return dist(point(final), point(str(problem.answer))) < RADIUS


def point(text: str) -> tuple[float, float]:
    """The point of a text "x y". Raises UserError for another text."""
    try:
        x, y = map(float, text.split())
    except ValueError:
        raise UserError(f"{text!r} is not a point: give two numbers with a space between them") from None
    return x, y


def _directions() -> list[tuple[int, int]]:
    """(region, tenths of a degree)"""
    middle = range(45 * FINE, 360 * FINE, 90 * FINE)
    return [(k, m + d) for k, m in enumerate(middle) for d in range(-WIDTH * FINE, WIDTH * FINE + 1)]
