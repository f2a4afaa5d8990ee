"""GUI-RCPO: boxes are rewarded by how much of them its siblings point at as well, without labels.

    G[y, x] = #{i : box_i covers (x, y)}          r_i = Σ_{cells of box_i} G / (max G · |box_i|),   no box: 0
    answers that are no boxes: the share of siblings with the same answer, over the largest such share
    Du et al. 2025, arXiv:2508.05615
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from isocost import chance
from isocost.gather import together
from isocost.methods import FAILS, HOLDS, Card, grpo
from isocost.parts import boxes
from isocost.parts.play import sample
from isocost.parts.reward import verified
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card("GUI-RCPO", "2508.05615", 2025, "grpo", "Agreement of regions, without labels, raises accuracy.")


@trait("not_whether_right", "compares_siblings")
async def reward(group: Group, world: World) -> Group:
    """The agreement of each attempt with its siblings (GUI-RCPO, arXiv:2508.05615); the verifier's score is a part.

    The verifier is called so that the record has pass rates: `right` is not part of the reward.
    """
    group = await verified(group, world)
    there = [r for r in group.rollouts if r.score is not None]
    each = iter(agreement([r.final for r in there], group.problem.meta.get("size")))
    return group.of(_agreed(r, each) for r in group.rollouts)


def _agreed(rollout: Rollout, each: Any) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    return rollout.scored(replace(score, value=next(each), parts={"right": score.value}))


def agreement(said: Sequence[str], size: int | None) -> list[float]:
    """The reward of each answer: of boxes on a grid of `size` cells a side, or of texts without one."""
    if size is None:
        count = Counter(said)
        return [count[s] / max(count.values()) for s in said]
    found = [boxes.parsed(s) for s in said]
    grid = boxes.votes(found, size)
    most = max(int(grid.max(initial=0)), 1)
    return [
        0.0 if b is None else float(grid[b[1] : b[3], b[0] : b[2]].sum()) / (most * boxes.area(b)) for b in found
    ]


@trait("one_call")
@bounds(votes="[1, inf)")
async def voted(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, votes: int = 8,
) -> list[Rollout]:
    """In evaluations each attempt is the region that `votes` samples agree on; plain sampling in training (GUI-RC).

    The samples of an attempt are charged as rollouts; it keeps the tokens of its first one.
    """
    if place.purpose == chance.Purpose.TRAIN or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    own = [[a * votes + k for k in range(votes)] for a in attempts]
    found = await together(*(sample(problem, numbers, world, pace, place) for numbers in own))
    return [_chosen(some, a) for some, a in zip(found, attempts, strict=True)]


def _chosen(some: Sequence[Rollout], attempt: int) -> Rollout:
    """The first sample, whose answer is the one that is agreed on: the most frequent text, or the region's box."""
    size = some[0].problem.meta.get("size")
    region = boxes.consensus(boxes.votes([boxes.parsed(r.final) for r in some], size)) if size else None
    said = "".join(map(str, region)) if region else Counter(r.final for r in some).most_common(1)[0][0]
    near = next((r for r in some if r.final == said), some[0])
    return near.but(final=said, attempt=attempt)


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Answers that are boxes on a grid."""
    if "box" not in profile.get("columns", ()):
        return FAILS, "problems have no `box`: on other answers it is a majority vote"
    state, why = grpo.needs(profile)
    return state, why if state != HOLDS else f"every problem has a box; {why}"


def recipe(**changes: Any) -> Recipe:
    # Answers here are boxes; the paper turns points into squares of 50 pixels. `guirc.voted` is GUI-RC, the vote
    # without training, as the play of an evaluation.
    return grpo.recipe(name="guirc", reward=reward).but(**changes)
