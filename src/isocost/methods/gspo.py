"""GSPO: one importance ratio per response, because there is one reward per response.

    s_i = exp( mean_t log ρ_it )          L = (1/R) Σ_i max(−A s, −A clip(s, 1 − 3e−4, 1 + 4e−4))
    Zheng et al. 2025, arXiv:2507.18071 (four updates per batch, as in its section 5.1: with one, s is 1)
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import improve, loss
from isocost.seams import Recipe

CARD = Card("GSPO", "2507.18071", 2025, "grpo", "Ratios at the level of the reward are stabler than ratios per token.")


def recipe(**changes: Any) -> Recipe:
    clip = partial(loss.sequence_clipped, low=3e-4, high=4e-4)
    return grpo.recipe(name="gspo", loss=clip, improve=partial(improve.policy, minibatches=4)).but(**changes)
