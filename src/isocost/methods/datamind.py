"""DataMind: RL and imitation in one loss, the share of imitation falling from almost all to almost none.

    L = (1 − μ_t) L_DAPO + μ_t L_SFT,   L_SFT the mean of −log π over an expert's tokens at the same problem
    μ_t = μ_v + (μ_p − μ_v) (1 + cos(π min(t / T, 1))) / 2          r = right, −0.1 where a turn was malformed and wrong
    Qiao et al. 2025, arXiv:2509.25084
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import cos, pi
from typing import TYPE_CHECKING, Any

from isocost import chance
from isocost.gather import together
from isocost.methods import Card, dapo, gigpo
from isocost.methods.mirothinker import malformed
from isocost.parts import experts, pace
from isocost.parts.loss import clipped
from isocost.parts.play import sample
from isocost.parts.reward import verified
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Place, Problem, Rollout, Segment
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("DataMind", "2509.25084", 2025, "dapo", "The mix of imitation and RL beats either of them alone.")

needs = gigpo.needs


@bounds(peak="[0, 1]", valley="[0, 1]", steps="[1, inf)")
def share(ledger: Ledger, *, peak: float = 0.9, valley: float = 0.05, steps: int = 350) -> float:
    """The share of imitation: from `peak` by half a cosine to `valley` after `steps` steps."""
    return valley + (peak - valley) * (1 + cos(pi * min(ledger.step / steps, 1.0))) / 2


@asks("text")
@trait("needs_turns", "one_call", "casts_roles")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None,
) -> list[Rollout]:
    """In training the last attempt of a group is an expert's, by `parts.experts`; the policy makes the others."""
    if start is not None or place.purpose != chance.Purpose.TRAIN or len(attempts) < 2:
        return await sample(problem, attempts, world, pace, place, start)
    *own, last = attempts
    ours, theirs = await together(
        sample(problem, own, world, pace, place), _shown(problem, last, world, pace, place)
    )
    return [*ours, *theirs]


async def _shown(problem: Problem, attempt: int, world: World, pace: Pace, place: Place) -> list[Rollout]:
    return [await experts.demonstrated(problem, attempt, world, pace, place)]


@trait("not_whether_right")
@bounds(penalty="[0, inf)")
async def reward(group: Group, world: World, *, penalty: float = 0.1) -> Group:
    """The verifier's score; −`penalty` for an attempt that earned nothing and had a malformed turn. Part: `right`."""
    group = await verified(group, world)
    return group.of(_charged(r, penalty) for r in group.rollouts)


def _charged(rollout: Rollout, penalty: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    value = -penalty if score.value <= 0 and malformed(rollout) else score.value
    return rollout.scored(replace(score, value=value, parts={"right": score.value}))


def select(group: Group, ledger: Ledger, *, part: str = "right") -> Group | None:
    """The group if the policy's attempts differ; else the expert's attempt alone, if there is one."""
    own = [r for r in group.rollouts if r.origin != experts.EXPERT and r.score is not None]
    if len({r.score.parts.get(part, r.score.value) for r in own if r.score}) > 1:
        return group
    shown = [r for r in group.rollouts if r.origin == experts.EXPERT and r.score is not None]
    return group.of(shown) if shown else None


def recipe(**changes: Any) -> Recipe:
    # 0.9 to 0.05 in 350 steps, no warm-up, dual clip 10. The expert is the environment's; the paper's are trajectories
    # of a larger model, filtered by agreement. A group that DAPO drops still gives its demonstration. Left out: the
    # weighting of imitated tokens by their probability, and the penalty for long answers. The paper has n = 4, and
    # samples again, at most 10 times, until a batch is full of groups that differ; here n is GRPO's and refill is off.
    falling = partial(experts.taught, share=partial(share, peak=0.9, valley=0.05, steps=350))
    clip = partial(experts.imitated, inner=partial(clipped, low=0.2, high=0.28, dual=10.0))
    return dapo.recipe(
        name="datamind", play=play, reward=partial(reward, penalty=0.1), select=partial(select, part="right"),
        loss=clip, improve=falling, refill=False, pace=partial(pace.warmed, max_turns=10),
    ).but(**changes)
