"""The score of each attempt of a finished group. A verifier that failed gives no score, never a zero."""

from __future__ import annotations

from collections.abc import Sequence

from isocost.traits import exported
from isocost.types import Group, Place, Problem, Rollout, Stop
from isocost.world import World


@exported()
async def verified(group: Group, world: World) -> Group:
    """The verifier's score, computed once. An attempt whose environment failed is not verified and has no score.

    A group that grows in phases is scored after each; attempts with a mark keep it.
    """
    unseen = [r for r in group.rollouts if r.mark is None and r.stop is not Stop.ERROR]
    marks = iter(await world.grade(unseen))
    return group.of([
        r if r.stop is Stop.ERROR else r.marked(next(marks)) if r.mark is None else r.scored(r.mark)
        for r in group.rollouts
    ])


async def marked(rollouts: list[Rollout], problem: Problem, place: Place, world: World) -> Sequence[Rollout]:
    """The rollouts with the verifier's marks, before their group is complete."""
    return (await verified(Group(problem, tuple(rollouts), place), world)).rollouts
