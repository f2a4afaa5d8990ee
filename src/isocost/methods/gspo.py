"""GSPO: one importance ratio per response, because there is one reward per response.

    s_i = exp( mean_t log ρ_it )          L = (1/R) Σ_i max(−A s, −A clip(s, 1 − 3e−4, 1 + 4e−4))
    Zheng et al. 2025, arXiv:2507.18071 (four updates per batch, as in its section 5.1: with one, s is 1)
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost import ops
from isocost.batch import Batch, Forward
from isocost.methods import Card, grpo
from isocost.parts import improve
from isocost.parts.loss import Out, credit, pessimistic
from isocost.seams import Recipe
from isocost.traits import bounds, exported

CARD = Card("GSPO", "2507.18071", 2025, "grpo", "Ratios at the level of the reward are stabler than ratios per token.")


@exported("low", "high", surrogate="sequence")
@bounds(low="[0, 1]", high="[0, inf]")
def loss(out: Forward, batch: Batch, *, low: float = 3e-4, high: float = 4e-4) -> Out:
    """PPO's surrogate with one ratio per row, the geometric mean of its tokens' ratios (GSPO, arXiv:2507.18071)."""
    ratio = ops.row_mean(ops.log_ratio(out, batch), batch.mask).exp().expand_as(out.logp)
    return pessimistic(ratio, credit(batch), low, high, 0.0)


def recipe(**changes: Any) -> Recipe:
    clip = partial(loss, low=3e-4, high=4e-4)
    return grpo.recipe(name="gspo", loss=clip, improve=partial(improve.policy, minibatches=4)).but(**changes)
