"""Prompt-GDRO: sort problems by pass rate, and weight each bin by its distance from solved.

    S_b ← (1 − β) S_b + β ℓ̄_b          ω_b = exp(η clip(S_b, ±C))          A_i ← A_i · min(ω_b(i), ω_max)
    Panaganti et al. 2026, arXiv:2601.19280
"""

from __future__ import annotations

from math import exp
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.ledger import Ledger
from isocost.methods import Card, drgrpo
from isocost.parts import allocate
from isocost.seams import Recipe
from isocost.traits import bounds, trait

CARD = Card("Prompt-GDRO", "2601.19280", 2026, "drgrpo", "Weight moves to the bins that are still being learned.")


@trait("compares_siblings", "tracks_pass_rate")
@bounds(
    clip="[0, inf]", cap="(0, inf]", bins="[1, inf)", k="[1, inf)", window="[1, inf)", margin="[0, 1]",
    beta="[0, inf)",
)
def advantage(
    batch: Batch, ledger: Ledger, *, eta: float = 1.0, clip: float = 3.0, cap: float = 3.0, level: bool = False,
    bins: int = 10, k: int = 8, window: int = 16, margin: float = 0.02, beta: float = 0.1,
) -> Tensor:  # -> (N, T)
    # The paper's ℓ is the negative surrogate. On fresh rollouts centred on their group that is 0 for every group, so
    # here it is what the paper says it represents, 1 − mean reward. Bins and scores are of closed steps: a weight that
    # used this step's rewards would bias its gradient. `level` divides by the batch's mean weight, which keeps the size
    # of the step; off, as in the paper, equal scores make every weight exp(η S). `clip` and `cap` are guards for
    # another eta: S is in [0, 1], so at the defaults no weight is above e.
    known = allocate.bins(ledger, count=bins, k=k, window=window, margin=margin, beta=beta)
    of_bin = {b: min(exp(eta * min(max(s, -clip), clip)), cap) for b, s in known.score.items()}
    each = [of_bin.get(known.of.get(g.problem.id, allocate.UNSEEN), 1.0) for g in batch.groups for _ in g.rollouts]
    weight = torch.tensor(each, dtype=batch.reward.dtype, device=batch.reward.device)
    return drgrpo.advantage(batch, ledger) * (weight / weight.mean() if level else weight)[batch.rollout, None]


def recipe(**changes: Any) -> Recipe:
    # Not with GRPO's advantage: its spread already weights by difficulty.
    return drgrpo.recipe(name="promptgdro", advantage=advantage).but(**changes)
