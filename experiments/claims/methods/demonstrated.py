"""Imitation of clean demonstrations alone: every attempt is the environment's expert's. RaC's baseline."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from isocost import chance
from isocost.gather import together
from isocost.methods import Card, fbc, rac, reinforce
from isocost.parts import experts
from isocost.parts.play import sample
from isocost.seams import Pace, Recipe
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("Clean demonstrations", "2509.07953", 2025, "fbc", "An expert's whole attempts are imitated.")


async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None,
) -> list[Rollout]:
    if start is not None or place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    return list(await together(*(experts.demonstrated(problem, a, world, pace, place) for a in attempts)))


def recipe(**changes: Any) -> Recipe:
    # The loss and the improvement are RaC's, so that only what is imitated differs.
    return fbc.recipe(
        name="demonstrated", play=play, select=partial(rac.select, over=0.0), advantage=rac.advantage,
        loss=partial(experts.imitated, inner=reinforce.loss), improve=experts.taught, pace=rac.recipe().pace,
    ).but(**changes)
