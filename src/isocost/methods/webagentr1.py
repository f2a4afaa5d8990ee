"""WebAgent-R1: GRPO on whole dialogues, in which earlier pages are replaced by a placeholder.

    a_j ~ π(· | q, a_1, "[page]", .., a_{j−1}, o_{j−1})
    L = (1/G) Σ_i (1/|τ_i|) Σ_j (1/|a_ij|) Σ_t [max(−A_i ρ, −A_i clip(ρ, 1 ± 0.2)) + β KL(π ‖ π_0)],   A_i as in GRPO
    Wei et al. 2025, arXiv:2505.16421
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, gigpo, grpo, isoeasy
from isocost.ops import lengths, spread_turns, turn_lengths, turns_of
from isocost.parts import enrich, pace, view
from isocost.parts.loss import clipped
from isocost.parts.play import viewed
from isocost.parts.weight import count
from isocost.seams import Recipe
from isocost.traits import trait

CARD = Card("WebAgent-R1", "2505.16421", 2025, "grpo", "Placeholders for earlier pages cost tokens and no success.")

needs = gigpo.needs


@trait("needs_turns")
def weight(batch: Batch) -> Tensor:
    """Every rollout has equal weight, shared by its turns, and a turn's by its tokens: 1 / (R |τ| |a|). -> (N, T)"""
    turns = turns_of(batch)
    taken = torch.bincount(turns.rollout, minlength=len(batch.reward))[turns.rollout]
    each = 1 / (turn_lengths(turns, batch) * taken * count(lengths(batch)))
    return spread_turns(each.to(batch.reward), turns, batch)


def recipe(**changes: Any) -> Recipe:
    # β is not published: 0.001. `words` must be ones that the model can read: play.view.words. Left out: behaviour
    # cloning before RL, which the paper needs, and a simplified page as the placeholder.
    short = partial(viewed, view=partial(view.placeholders, keep=1, words="[earlier page]"))
    leash = partial(isoeasy.to_reference, scale=1e-3, estimate="k3")
    both = partial(isoeasy.plus, terms=(partial(clipped, low=0.2, high=0.2), leash))
    return grpo.recipe(
        name="webagentr1", play=short, weight=weight, loss=both, enrich=(enrich.reference,),
        pace=partial(pace.warmed, max_turns=30)
    ).but(**changes)
