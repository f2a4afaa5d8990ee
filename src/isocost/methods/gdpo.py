"""GDPO: normalise each reward within the group before adding them up, not after.

    A_i = Σ_k w_k (r_ki − mean_g r_k) / (std_g r_k + ε),   then (A − mean_batch A) / (std_batch A + ε)
    r_1 = right, r_2 = |y| ≤ L (of right answers, if `given`)          Liu et al. 2026, arXiv:2601.05242
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.methods import Card, grpo
from isocost.ops import in_groups, spread
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout
from isocost.world import World

CARD = Card("GDPO", "2601.05242", 2026, "grpo", "Rewards that are added before normalisation hide each other.")


@trait("not_whether_right")
@bounds(limit="[0, inf)")
async def reward(group: Group, world: World, *, limit: int = 4000, given: bool = False) -> Group:
    """The verifier's score, plus 1 for at most `limit` sampled tokens; with `given`, only if the answer is right.

    Parts: `right` and `short`. The condition prevents a policy from trading the hard reward for the easy one (GDPO,
    arXiv:2601.05242).
    """
    group = await verified(group, world)
    return group.of(_with_short(r, k <= limit, given) for r, k in zip(group.rollouts, group.lengths, strict=True))


def _with_short(rollout: Rollout, within: bool, given: bool) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    short = float(within and (score.value > 0 or not given))
    return rollout.scored(replace(score, value=score.value + short, parts={"right": score.value, "short": short}))


@trait("compares_siblings", "by_group_spread")
@trait("by_batch_spread", whiten=True)
@bounds(eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, parts: tuple[str, ...] = ("right", "short"), weights: tuple[float, ...] = (),
    eps: float = 1e-4, whiten: bool = True,
) -> Tensor:  # -> (N, T)
    credit = torch.zeros_like(batch.reward)
    for name, share in zip(parts, weights or (1.0,) * len(parts), strict=True):
        credit += share * in_groups(lambda r: (r - r.mean()) / (r.std() + eps), _part(batch, name), batch)
    if whiten and len(credit) > 1:
        settled = credit == 0      # uniform groups stay exactly 0: a rounding error is no signal
        credit = ((credit - credit.mean()) / (credit.std() + eps)).masked_fill(settled, 0.0)
    return spread(credit, batch)


def _part(batch: Batch, name: str) -> Tensor:
    scores = [r.score.parts for g in batch.groups for r in g.rollouts if r.score is not None]
    lacking = next((s for s in scores if name not in s), None)
    if lacking is not None:
        raise UserError(f"GDPO needs the reward {name!r}; the score has {', '.join(lacking) or 'no parts'}")
    return batch.reward.new_tensor([s[name] for s in scores])


def recipe(**changes: Any) -> Recipe:
    both = partial(reward, limit=4000, given=False)
    return grpo.recipe(name="gdpo", advantage=advantage, reward=both).but(**changes)
