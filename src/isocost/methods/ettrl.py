"""ETTRL: fork attempts where they were least sure, let the majority say what is right, and doubt the doubtful.

    a tree: one attempt, and B more from each of its N tokens of highest entropy;   r_i = 1[answer_i = majority]
    tokens, forks being anywhere: (1 + BN/2) / (1 + BN) of as many attempts from the start
    A_i ← A_i (1 + (H̄ − H_i) / H̄),   H_i the mean entropy of attempt i, H̄ that of the batch
    Liu et al. 2025, arXiv:2508.11356
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from isocost.methods import Card, grpo
from isocost.ops import lengths, spread
from isocost.parts import enrich, reward, tree
from isocost.seams import Advantage, Recipe
from isocost.traits import bounds
from isocost.types import Batch

CARD = Card("ETTRL", "2508.11356", 2025, "grpo", "It learns unverified where most are right, in 60% of the tokens.")


@enrich.reads_entropy
@bounds(cap="[0, inf)")
def advantage(
    batch: Batch, ledger: Any, *, inner: Advantage = grpo.advantage, cap: float = 0.0
) -> Tensor:  # -> (N, T)
    credit, doubt = inner(batch, ledger), (batch.extra["entropy"] * batch.mask).sum(-1).to(batch.reward.dtype)
    each = batch.reward.new_zeros(len(batch.reward)).index_add(0, batch.rollout, doubt) / lengths(batch).clamp(min=1)
    shaped = credit * spread(2 - each / each.mean().clamp(min=1e-12), batch)
    return shaped.clamp(-cap, cap) if cap else shaped     # a variant caps it at 2; 0 leaves it alone


def recipe(**changes: Any) -> Recipe:
    # The paper has 12 trees of 5, and updates on 32 of the 60 leaves; here 4 trees, and all of them.
    return grpo.recipe(
        name="ettrl", play=partial(tree.forked, points=2, branches=2), reward=reward.agreed,
        enrich=(enrich.entropy,), advantage=partial(advantage, inner=grpo.advantage), rollouts=20,
    ).but(**changes)
