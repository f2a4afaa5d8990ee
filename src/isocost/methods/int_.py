"""InT: replace the first wrong step of a failed attempt, imitate the attempt up to there and the new step, then do RL.

    keep (x, y_<t*, ỹ) if any continuation of it is right:   L = −log π(ỹ | x, y_<t*) − Σ_{t<t*} log π(y_t | x, y_<t)
    after `steps` steps: A_i = r_i − mean r, on the problems as they are          Yang et al. 2026, arXiv:2601.14209
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.methods import Card, drgrpo, pope
from isocost.ops import spread
from isocost.parts import guide, loss, taught, weight
from isocost.parts import select as selects
from isocost.seams import Recipe
from isocost.traits import trait
from isocost.types import Batch, Group

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("InT", "2601.14209", 2026, "drgrpo", "As a start for RL repairs beat reference solutions.")

needs = pope.needs


def select(group: Group, ledger: Ledger) -> Group | None:
    # One right continuation stands for all: what is imitated is the same in each. What could not be repaired is
    # trained on like any mixed group; on problems that are never solved there is none.
    if group.problem.variant != taught.REPAIR:
        return group
    repaired = [r for r in group.rollouts if r.cohort == taught.REPAIRED]
    right = [r for r in repaired if r.score is not None and r.score.value > 0]
    return selects.mixed(group, ledger) if not repaired else group.of(right[:1]) if right else None


@trait("compares_siblings")
def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    repaired = torch.tensor([r.cohort == taught.REPAIRED for g in batch.groups for r in g.rollouts])
    right = spread((batch.reward > 0).to(batch.reward), batch)
    return torch.where(repaired[batch.rollout, None], right, drgrpo.advantage(batch, ledger))


def recipe(**changes: Any) -> Recipe:
    # The paper repairs once, with 32 continuations, and makes 67 updates of 64 repairs; here every step repairs anew,
    # with the attempts that are left, for 64 of them. Its policy proposes: play.propose=itself. That takes one that
    # follows instructions; where problems have one way to be solved, comparing with the reference finds the same step.
    return drgrpo.recipe(
        name="int_",
        guide=partial(guide.as_variant, name=taught.REPAIR, steps=64),
        play=partial(taught.repaired, propose="reference", boundary="\n\n"),
        select=select,
        advantage=advantage,
        weight=weight.token_mean,
        loss=partial(taught.plainly, inner=partial(loss.clipped, low=0.2, high=0.2)),
        improve=partial(taught.imitating, own=False),
        groups=32,
    ).but(**changes)
