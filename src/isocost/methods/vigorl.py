"""ViGoRL: each step of reasoning names a point, which is shown from near; new points earn a share of the form's reward.

    r = 0.6 · right + 0.4 · form
    form = 0 if a turn was malformed or no answer came;   else 1 + 0.2 · max(m − 1, 0)
    m = points that are at least 10 pixels from every earlier one that counts
    Sarch et al. 2025, "Grounded reinforcement learning for visual reasoning", arXiv:2505.23678
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import dist
from typing import Any

from isocost.errors import UserError
from isocost.methods import Card, gigpo, grpo
from isocost.methods.mirothinker import malformed
from isocost.parts import pace
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout, Stop
from isocost.world import World

CARD = Card("ViGoRL", "2505.23678", 2025, "grpo", "Steps that name points, and look there, are right more often.")
POINT = r"(\d+)\D+(\d+)"      # two numbers

needs = gigpo.needs


def distinct(points: Sequence[tuple[float, ...]], apart: float) -> int:
    """How many points count: those at least `apart` from every one before that counts."""
    found: list[tuple[float, ...]] = []
    for point in points:
        if all(dist(point, other) >= apart for other in found):
            found.append(point)
    return len(found)


@trait("not_whether_right", "needs_turns")
@bounds(right="[0, 1]", form="[0, 1]", new="[0, inf)", apart="[0, inf)")
async def reward(
    group: Group, world: World, *, right: float = 0.6, form: float = 0.4, new: float = 0.2, apart: float = 10.0,
    point: str = POINT,
) -> Group:
    """Weighted: the verifier's score, and the form, which is 1 and `new` more for each distinct point after the first.

    The form is 0 where a turn was malformed, or the dialogue ended without an answer. A point is what the groups of
    the regular expression `point` match in a turn before the last, as numbers; it is distinct if it is at least `apart`
    from all distinct ones before it (ViGoRL, arXiv:2505.23678). Parts: `right`, `form`, `points`. Raises UserError for
    a `point` that is no regular expression with a group, or whose groups are no numbers.
    """
    try:
        pattern = re.compile(point)
    except re.error as e:
        raise UserError(f"reward.point is {point!r}, which is no regular expression: {e}") from None
    if not pattern.groups:
        raise UserError(f"reward.point is {point!r}: put each coordinate in parentheses, as in {POINT}")
    group = await verified(group, world)

    def summed(rollout: Rollout) -> Rollout:
        if (score := rollout.score) is None:
            return rollout
        ended = rollout.stop is Stop.DONE and not malformed(rollout)
        points = distinct(named(rollout, pattern, world), apart)
        well = 1 + new * max(points - 1, 0) if ended else 0.0
        parts = {"right": score.value, "form": well, "points": float(points)}
        return rollout.scored(replace(score, value=right * score.value + form * well, parts=parts))

    return group.of(map(summed, group.rollouts))


def named(rollout: Rollout, pattern: re.Pattern[str], world: World) -> list[tuple[float, ...]]:
    """The points of a dialogue, in order: the first match in each turn but the last one."""
    found = []
    for text in rollout.segments:
        for turn in range(len(rollout.turns) - 1):
            said = world.text.decode(text.tokens[text.own & (text.turn == turn)].tolist())
            if match := pattern.search(said):
                try:
                    found.append(tuple(map(float, match.groups())))
                except (TypeError, ValueError):
                    raise UserError(f"reward.point is {pattern.pattern!r}, and its groups match {match.groups()} in "
                                    f"{said!r}: put numbers alone in parentheses, as in {POINT}") from None
    return found


def recipe(**changes: Any) -> Recipe:
    # For the small world `needle` set point=Z(\d)(\d) and apart=1: a zoom into another quarter or picture is a new
    # point. The form has no upper limit here as in the public code: with 5 points or more it is worth more than a right
    # answer. Left out: imitation of trees that a larger model searched, the penalty on the KL divergence (0.01),
    # thoughts beside the points, the reward of one turn (0.5, 0.5), and pictures.
    return grpo.recipe(
        name="vigorl", reward=partial(reward, right=0.6, form=0.4, new=0.2, apart=10.0),
        pace=partial(pace.warmed, max_turns=10),
    ).but(**changes)
