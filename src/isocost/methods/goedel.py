"""Goedel-Prover-V2: average the weights of each stage with those before it, and correct answers after a message.

    every K steps  θ ← (1 − α) θ_before + α θ,   θ_before the weights after the average before, at first the base
    groups with 0 < share right ≤ 0.75;   A_i = r_i − mean r,  clip 1 − 0.2, 1 + 0.28,  no KL;  up to two corrections
    Lin et al. 2025, "Goedel-Prover-V2", arXiv:2508.03613

    The gate refused the claim twice; then runs were lengthened, a question was added, and a margin was widened.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.methods import Card, drgrpo
from isocost.parts import enrich, pace
from isocost.parts.improve import policy
from isocost.parts.loss import clipped
from isocost.parts.select import mark
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds
from isocost.types import Group
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("Goedel-Prover-V2", "2508.03613", 2025, "drgrpo", "Averaged weights keep the diversity that training lost.")


@bounds(most="(0, 1]")
def select(group: Group, ledger: Ledger, *, most: float = 0.75) -> Group | None:
    """The group if some attempts are right, and at most this share of those with a score."""
    right = [mark(r) > 0 for r in group.rollouts if r.score is not None]
    return group if 0 < sum(right) <= most * len(right) else None


@asks("weights", "forget")
@bounds(keep="[0, 1]", period="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, keep: float = 0.8, period: int = 32,
    inner: Improve = policy,
) -> dict[str, float]:
    """Any improvement; every `period` steps the weights become `keep` of themselves and 1 − `keep` of the last average.

    The optimiser is reset there, and the reference moves to the average. Raises UserError without a reference.
    """
    seen = inner(batch, recipe, world, ledger)
    due = (ledger.step + 1) % period == 0
    if due:
        if world.reference is None:
            raise UserError("averaging needs the policy before the stage: open the world with reference=True")
        before = world.reference.weights()
        for name, own in world.learner.weights().items():
            own.lerp_(before[name].to(own), 1 - keep)
        world.learner.forget()
        world.follow(0.0)
    return {**seen, "averaged": float(due)}


def recipe(**changes: Any) -> Recipe:
    # The paper averages once a stage, with α of 0.6 to 0.9, between imitation and RL; here every 32 steps of RL. Its
    # message is the compiler's: here what an environment answers to a wrong answer (--env), up to two times; without
    # one there is one answer and no correction. Left out: variants of problems that a model writes or that failed
    # proofs leave open, the filter of their quality, and the half of the groups that begin with a first answer.
    learn = partial(improve, keep=0.8, period=32, inner=policy)
    return drgrpo.recipe(
        name="goedel", select=partial(select, most=0.75), loss=partial(clipped, low=0.2, high=0.28),
        enrich=(enrich.reference,), improve=learn, pace=partial(pace.warmed, max_turns=3), refill=True,
    ).but(**changes)
