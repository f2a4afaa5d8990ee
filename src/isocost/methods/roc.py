"""GRPO-RoC: sample twice as many as are trained on, and of the right ones keep those that were come by cleanly.

    n_pos = round(|P| G/2G) of least failed/calls + form,   n_neg = G − n_pos at random,   each at least min(2, there)
    rStar2-Agent: Shang et al. 2025, arXiv:2508.20722
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import loss, reward, select, weight
from isocost.seams import Recipe

CARD = Card("GRPO-RoC", "2508.20722", 2025, "grpo", "Right answers come with fewer failed tool calls.")


def recipe(**changes: Any) -> Recipe:
    # The paper draws the wrong ones evenly; its code sorts them by penalty too. n counts all that are sampled and paid
    # for: 32, of which 16 are trained on.
    return grpo.recipe(
        name="roc",
        reward=reward.verified_with_faults,
        select=partial(select.clean_right, keep=0.5, least=2),
        loss=partial(loss.clipped, low=0.2, high=0.28),
        weight=weight.token_mean,
        rollouts=32,
    ).but(**changes)
