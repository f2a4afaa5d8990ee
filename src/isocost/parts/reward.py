"""The score of each attempt of a finished group. A verifier that failed gives no score, never a zero."""

from __future__ import annotations

from collections.abc import Sequence

from isocost.scorers import Scorer, parse, scores
from isocost.traits import exported, trait
from isocost.types import Group, Place, Problem, Rollout, Score, Stop
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


@trait("not_whether_right")
async def scored(group: Group, world: World, *, scorer: Scorer | str) -> Group:
    """What a scorer, or the one of a specification, says of each attempt (`isocost.scorers`); the verifier's score is
    its part `right`.

    The verifier is called so that the record has pass rates. An attempt without a score by the scorer has none.
    """
    group = await verified(group, world)
    said = await judged(group.problem, [r for r in group.rollouts if r.score is not None], world, scorer)
    return group.of(
        r if r.score is None else r.scored(None if (x := said[r.attempt]) is None else
                                           Score(x, {"right": r.score.value})) for r in group.rollouts)


async def judged(
    problem: Problem, rollouts: Sequence[Rollout], world: World, scorer: Scorer | str
) -> dict[int, float | None]:
    """Attempt -> what a scorer, or the one of this specification, says of it; None where it has no score."""
    found = await scores(parse(scorer) if isinstance(scorer, str) else scorer, problem, rollouts,
                         [True] * len(rollouts), world)
    return dict(zip((r.attempt for r in rollouts), found.scores, strict=True))
