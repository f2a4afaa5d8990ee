"""DAPO: clip higher, average over tokens, refill uniform groups, and penalise running out of tokens.

    L = (1/Σ|y_i|) Σ_i Σ_t max(−A ρ, −A clip(ρ, 1 − 0.2, 1 + 0.28)),   groups with 0 < #right < n only
    r_i ← r_i − ½ · clip((|y_i| − (L_max − L_cache)) / L_cache, 0, 1)          Yu et al. 2025, arXiv:2503.14476
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import FAILS, HOLDS, UNMEASURED, Card, grpo
from isocost.parts import loss, select, weight
from isocost.parts.reward import verified
from isocost.seams import Recipe, Weight
from isocost.traits import bounds
from isocost.types import Group, Rollout, Stop
from isocost.world import World

CARD = Card("DAPO", "2503.14476", 2025, "grpo", "Four small changes keep entropy up and gradients alive.")

SIZE = 16              # n of the paper's runs
MOST_DROPPED = 0.9     # largest share of uniform groups: above it a step needs more than ten waves


@bounds(penalty="[0, inf)", limit="[0, inf)", cache="[0, inf)")
async def reward(
    group: Group, world: World, *, penalty: float = 0.5, limit: int = 0, cache: int = 0
) -> Group:
    """The verifier's score, minus a penalty for running out of tokens (DAPO, arXiv:2503.14476).

    The penalty is 0 up to `limit - cache` sampled tokens, grows linearly to `penalty` at `limit`, and is `penalty` for
    truncated attempts. With `cache` 0 only truncated attempts are penalised. Parts: `right` (unshaped) and `overlong`.
    """
    group = await verified(group, world)
    return group.of(_charged(r, penalty * _overlong(r, limit, cache)) for r in group.rollouts)


def _charged(rollout: Rollout, fine: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    parts = {**score.parts, "right": score.value, "overlong": -fine}
    return rollout.but(score=replace(score, value=score.value - fine, parts=parts))


def _overlong(rollout: Rollout, limit: int, cache: int) -> float:
    if rollout.stop is Stop.LENGTH:
        return 1.0
    written = sum(int(s.own.sum()) for s in rollout.segments)
    return min(max((written - (limit - cache)) / cache, 0.0), 1.0) if cache else 0.0


def unless_cut(batch: Batch, *, inner: Weight) -> Tensor:
    """Any average, over the rollouts that ended by themselves; truncated ones count in baselines only. -> (N, T)

    DAPO's overlong filtering (arXiv:2503.14476).
    """
    cut = torch.tensor([r.stop is Stop.LENGTH for g in batch.groups for r in g.rollouts], device=batch.mask.device)
    return inner(batch.but(mask=batch.mask & ~cut[batch.rollout, None]))


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """A filter that leaves enough: not nearly every group is uniform at the paper's n."""
    state, why = grpo.needs(profile)
    if state != HOLDS:
        return state, why
    share = next((row["share"] for row in profile.get("dead") or [] if row["n"] == SIZE), None)
    if share is None:
        return UNMEASURED, f"no share of settled groups at n={SIZE}: `isocost profile` measures it"
    waves = f"{1 / (1 - share):.1f} waves" if share < 1 else "no number of waves"
    state = FAILS if share > MOST_DROPPED else HOLDS
    return state, f"{share:.0%} of groups of {SIZE} are settled and would be dropped: {waves} to fill a step"


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(
        name="dapo",
        loss=partial(loss.clipped, low=0.2, high=0.28),
        weight=weight.token_mean,
        select=partial(select.mixed, part="right"),   # by correctness, not by the shaped reward
        # The paper's penalty is 1 where right is ±1.
        reward=partial(reward, penalty=0.5, limit=20480, cache=4096),
        refill=True,
    ).but(**changes)
