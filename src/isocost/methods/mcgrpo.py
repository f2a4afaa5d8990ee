"""MC-GRPO: measure from the median of an odd group, which a single lucky reward cannot move.

    A_i = (r_i − median r) / (MAD + 1e−3),   MAD = median |r − median r|,   n = G + 1 odd
    the pivot (the first rollout at the median) has A = 0 and is not trained on: G rollouts make the gradient
    Kim 2026, arXiv:2601.22582
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, grpo
from isocost.ops import per_group, siblings_of
from isocost.parts import weight
from isocost.parts.improve import policy
from isocost.seams import Improve, Recipe, Weight
from isocost.traits import bounds, trait
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("MC-GRPO", "2601.22582", 2026, "grpo", "At two to four rollouts a median flips fewer signs than a mean.")


@trait("by_group_spread")
@trait("needs_graded_rewards", flat=0)
@bounds(eps="[0, inf)", flat="[0, inf)")
@per_group
def advantage(r: Tensor, *, eps: float = 1e-3, flat: float = 1.0, rescale: bool = False) -> Tensor:  # (G,) -> (G,)
    # The method's groups are odd. An even group, by setting or after a lost member, has no middle rollout: its median
    # is the mean of the middle two, because the lower of them would bias all advantages upwards. If more than half are
    # at the median (always the case with 0 and 1 rewards), MAD is 0, and ε alone would give an advantage of 1000.
    # `flat` replaces it, in units of the reward; 0 is the released code.
    apart = r - r.quantile(0.5)
    mad = apart.abs().quantile(0.5)
    credit = apart / (mad + eps if mad > 0 or not flat else flat)
    # The released code for GSM8K rescales for rollouts without an advantage; that for MATH does not.
    return credit * len(r) / (credit != 0).sum() if rescale else credit


def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, inner: Improve = policy
) -> dict[str, float]:
    """`inner`, on the rows with a non-zero weight: rows without weight are not charged either."""
    assert batch.weight is not None
    rows = torch.nonzero(batch.weight.any(-1))[:, 0]
    return inner(batch.rows(rows) if len(rows) else batch, recipe, world, ledger)


def unpivoted(batch: Batch, *, inner: Weight = weight.rollout_mean) -> Tensor:
    """Any average over the rollouts without each group's pivot; an even group has none. -> (N, T)"""
    pivots = [int(members[(batch.reward[members] == batch.reward[members].median()).nonzero()[0]])
              for members in siblings_of(batch) if len(members) > 1 and len(members) % 2]
    gone = torch.isin(batch.rollout, torch.tensor(pivots, dtype=batch.rollout.dtype, device=batch.rollout.device))
    return inner(batch.but(mask=batch.mask & ~gone[:, None]))


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(
        name="mcgrpo", advantage=advantage, weight=partial(unpivoted, inner=weight.rollout_mean),
        improve=partial(improve, inner=policy),
        rollouts=9,   # 8 + 1: as many are trained on as in GRPO
    ).but(**changes)
