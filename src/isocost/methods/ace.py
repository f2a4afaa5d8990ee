"""ACE: penalise a wrong answer more, the more training has raised its probability.

    A_i ← A_i (1 + α softplus(c_i)) where A_i < 0,   c_i = log π(y_i|x) − log π_0(y_i|x), a constant
    Xu et al. 2026, arXiv:2602.21420
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from isocost.batch import Batch
from isocost.methods import Card, grpo
from isocost.ops import spread
from isocost.parts import enrich
from isocost.seams import Advantage, Recipe
from isocost.traits import bounds

CARD = Card(
    "ACE", "2602.21420", 2026, "grpo",
    "Errors that training has reinforced are corrected faster, so pass@k rises.",
)


@enrich.reads_reference
@bounds(alpha="[0, inf)", cap="[0, inf)")
def advantage(
    batch: Batch, ledger: Any, *, inner: Advantage = grpo.advantage, alpha: float = 1.0, cap: float = 0.0
) -> Tensor:  # -> (N, T)
    # α: the ablations range from 0.5 to 2. π is computed by the sampler, which drew the group.
    credit = inner(batch, ledger)
    shift = torch.zeros_like(batch.reward).index_add(
        0, batch.rollout, ((batch.logp - batch.extra["reference"]) * batch.mask).sum(-1).to(batch.reward.dtype)
    )
    # Nats of the whole answer, as in the paper, so it grows with length. `cap` limits it; 0 applies no cap.
    factor = 1 + alpha * softplus(shift.clamp(max=cap) if cap else shift)
    return torch.where(credit < 0, credit * spread(factor, batch), credit)


def recipe(**changes: Any) -> Recipe:
    shaped = partial(advantage, inner=grpo.advantage, alpha=1.0)
    return grpo.recipe(name="ace", advantage=shaped, enrich=(enrich.reference,)).but(**changes)
