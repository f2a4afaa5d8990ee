"""RedStar: imitate worked answers to the problems that the policy seldom solves, and only then reinforce.

    while s < S:   L = −(1/Σ|z|) Σ log π(z),   z the worked answers of problems with a share right of at most h
    then GRPO on all problems
    Xu et al. 2025, "RedStar", arXiv:2501.11284
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.methods import Card, datamind, grpo, otr
from isocost.parts import experts, guide, loss
from isocost.parts.improve import policy
from isocost.parts.play import sample
from isocost.parts.select import mark
from isocost.seams import Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Place, Problem, Rollout, Segment
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("RedStar", "2501.11284", 2025, "grpo", "A few thousand hard worked answers are enough to start from.")
WORKED = "worked"       # the variant in which a problem comes with its worked answer

needs = otr.needs       # problems with solutions


@asks("text")
@trait("one_call", "casts_roles")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None,
) -> list[Rollout]:
    """Before RL, attempts that show how hard a problem is, and its worked answer in place of the last one.

    The attempts are charged, and not trained on.
    """
    inner = datamind.play if problem.variant == WORKED else sample
    return await inner(problem, attempts, world, pace, place, start)


@bounds(hardest="[0, 1]")
def select(group: Group, ledger: Ledger, *, hardest: float = 0.25) -> Group | None:
    """Before RL, the worked answer of a problem with a share right of at most `hardest`; then the whole group."""
    if group.problem.variant != WORKED:
        return group
    own = [mark(r) for r in group.rollouts if r.origin != experts.EXPERT and r.score is not None]
    shown = [r for r in group.rollouts if r.origin == experts.EXPERT and r.score is not None]
    return group.of(shown) if own and sum(own) <= hardest * len(own) and shown else None


def recipe(**changes: Any) -> Recipe:
    # The paper's worked answers are those of a larger model that a rule found right, between 1,300 and a million of
    # them, and their pass rates are known before; here they are the problems' solutions, and the pass rates are
    # measured with n − 1 attempts as they come. S = 16 steps of 16 problems are as many examples as a small run has
    # room for. The paper's RL is PPO and REINFORCE++ on the same rewards.
    return grpo.recipe(
        name="redstar", guide=partial(guide.as_variant, name=WORKED, steps=16), play=play,
        select=partial(select, hardest=0.25), improve=partial(experts.taught, inner=policy),
        loss=partial(experts.imitated, inner=partial(loss.clipped, low=0.2, high=0.2)),
    ).but(**changes)
