"""Temporal-R1: the reward of an interval is its overlap with the event, not whether it is right; GRPO learns from it.

    r = w · right + (1 − w) · form,   w = 1/2
    right = tIoU = |answer ∩ event| / |answer ∪ event|   where an interval is asked for;   else 1{right}
    Li et al. 2025, "Reinforcement learning tuning for VideoLLMs", arXiv:2506.01908
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from isocost.methods import FAILS, HOLDS, Card, grpo
from isocost.methods.mirothinker import malformed
from isocost.parts import intervals
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout, Stop
from isocost.world import World

CARD = Card("Temporal-R1", "2506.01908", 2025, "grpo", "Graded overlap teaches intervals that right or wrong cannot.")


@trait("not_whether_right")
@bounds(right="[0, 1]", form="[0, 1]")
async def reward(group: Group, world: World, *, right: float = 0.5, form: float = 0.5) -> Group:
    """Weighted: the overlap of the interval that is answered, and 1 for an attempt in the required form.

    The interval is what the verifier reads, or its first word, the event `meta["event"]`. A problem without one, or
    whose answer is no interval, has the verifier's score in place of the overlap. The form: the attempt ended by
    itself and no turn was malformed (Temporal-R1, arXiv:2506.01908). Parts: `right`, the verifier's, `overlap`, `form`.
    """
    group = await verified(group, world)
    graded = intervals.parsed(group.problem.answer or "") is not None
    event = group.problem.meta.get("event") if graded else None
    return group.of(_summed(r, event, right, form) for r in group.rollouts)


def _summed(rollout: Rollout, event: intervals.Interval | None, right: float, form: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    both = score.value
    if event is not None:
        said = intervals.parsed(rollout.final) or intervals.parsed(rollout.final.split(" ")[0])
        both = 0.0 if said is None else intervals.overlap(said, event)
    well = float(rollout.stop is Stop.DONE and not malformed(rollout))
    parts = {"right": score.value, "overlap": both, "form": well}
    return rollout.scored(replace(score, value=right * both + form * well, parts=parts))


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Problems that ask for an interval; without any it is GRPO with a share for the form."""
    if "event" not in profile.get("columns", ()):
        return FAILS, "problems have no `event`: without one it is timemaster with other weights"
    state, why = grpo.needs(profile)
    return state, why if state != HOLDS else f"every problem has an event; {why}"


def recipe(**changes: Any) -> Recipe:
    # The two weights are the public code's; the paper's reward is a sum of its parts. Left out: the choice of problems
    # by how much repeated answers vary (`balanced` filters by pass rates), a penalty on the KL divergence (0.01) and an
    # entropy bonus (0.001), thoughts, and video: the small world is `event`.
    return grpo.recipe(name="temporalr1", reward=partial(reward, right=0.5, form=0.5)).but(**changes)
