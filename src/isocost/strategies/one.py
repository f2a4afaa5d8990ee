"""One sample: what every other strategy is compared with.

    y ~ π(x), at the temperature of the pace or at another
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.strategies import Card, Pick
from isocost.strategies.paths import Answer
from isocost.traits import bounds
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("One sample", "the policy itself", 2017, None, "It costs the fewest tokens.")


def choose(answers: Sequence[str | None], scores: Sequence[float | None]) -> Pick:
    """The first."""
    return Pick(0, (1,))


@bounds(temperature="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, temperature: float | None = None,
) -> list[Rollout]:
    """Plain samples, byte for byte; with a `temperature`, at that one instead of the pace's."""
    if temperature is not None:
        pace = replace(pace, sampling=replace(pace.sampling, temperature=temperature))
    made = await sample(problem, attempts, world, pace, place, start)
    return [await Answer(problem, r.attempt, world, pace, place).pick([r], choose) for r in made]
