"""MiroThinker: keep every turn but only the last results, so that a context holds many more turns.

    a_t ~ π(· | q, a_1, .., a_{t−1}, o_{t−K}, .., o_{t−1})          r = right − p · 1{a turn was malformed},   then GRPO
    MiroMind Team 2025, arXiv:2511.11793
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from isocost.methods import Card, gigpo, grpo
from isocost.parts import pace, view
from isocost.parts.play import viewed
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import FaultSource, Group, Rollout
from isocost.world import World

CARD = Card(
    "MiroThinker", "2511.11793", 2025, "grpo", "With the last 5 results alone success is as high, in fewer tokens.",
)

needs = gigpo.needs


@trait("not_whether_right", "needs_turns")
@bounds(penalty="[0, inf)")
async def reward(group: Group, world: World, *, penalty: float = 0.1) -> Group:
    """The verifier's score, less `penalty` if a turn of the policy was no valid action. Parts: `right`, `malformed`."""
    group = await verified(group, world)
    return group.of(_charged(r, penalty) for r in group.rollouts)


def _charged(rollout: Rollout, penalty: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    bad = float(malformed(rollout) > 0)
    parts = {"right": score.value, "malformed": bad}
    return rollout.scored(replace(score, value=score.value - penalty * bad, parts=parts))


def malformed(rollout: Rollout) -> int:
    """How many turns of the policy were no valid action or call."""
    return sum(t.fault is not None and t.fault.source is FaultSource.MODEL for t in rollout.turns)


def recipe(**changes: Any) -> Recipe:
    # K = 5 is the report's; its penalty is not stated. Left out: SFT and DPO before RL, results cut to a length, the
    # queue of unfinished tasks (`april` has one), and filtering trajectories by hand-written rules.
    recent = partial(viewed, view=partial(view.last_results, keep=5))
    return grpo.recipe(
        name="mirothinker", play=recent, reward=partial(reward, penalty=0.1), pace=partial(pace.warmed, max_turns=600)
    ).but(**changes)
