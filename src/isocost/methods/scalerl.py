"""ScaleRL: of each choice the one whose curve ends highest; together they make reward at scale foreseeable.

    L = −mean_x (1/Σ|y_i|) Σ_i Σ_t sg(min(ρ, 5)) Â log π,   Â_i = (r_i − mean_x r) / std of what is left of all batch
    settled groups leave the average and are not replaced; problems with 90% right leave for ever, between epochs
    thought is interrupted after 10-12k tokens; rollouts are at most 8 steps old; sampler and learner have a head in
    float32, as all worlds here do          Khatri et al. 2025, "The art of scaling RL compute for LLMs", 2510.13786
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.methods import Card, cispo
from isocost.ops import EPS, in_groups, spread
from isocost.parts import choose, forced, pace, select
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Batch

CARD = Card("ScaleRL", "2510.13786", 2025, "cispo", "Half of a run's compute foretells the other half's reward.")


@trait("compares_siblings", "by_batch_spread")
@bounds(eps="[0, inf)")
def advantage(batch: Batch, ledger: object, *, eps: float = EPS) -> Tensor:  # -> (N, T)
    lead = in_groups(lambda r: r - r.mean(), batch.reward, batch)
    left = in_groups(torch.ones_like, batch.reward, batch).sum().clamp(min=1)    # settled groups are in no average
    return spread(lead / ((lead.square().sum() / left).sqrt() + eps), batch)


def recipe(**changes: Any) -> Recipe:
    return cispo.recipe(
        name="scalerl",
        choose=partial(choose.unretired, rate=0.9),
        play=partial(forced.interrupted, low=10240, high=12288, room=2048),
        select=select.mixed,
        advantage=advantage,
        # lr is for 768 rollouts a step.
        pace=partial(pace.warmed, lr=5e-7, warmup=100, max_tokens=14336),
        groups=48, rollouts=16, max_age=8,
    ).but(**changes)
