"""IterResearch: each turn reads only the question, the last report and the last result, and is a sample of its own.

    s_t = (q, report_t, a_{t−1}, o_{t−1}),   (report_{t+1}, a_t) ~ π(· | s_t)          r_t = γ^{T−t} R,   t = 1 .. T
    A_t = (r_t − mean r) / std r over all turns of the group;  GSPO's loss, with one ratio a turn
    Chen et al. 2025, arXiv:2511.07327 (Efficiency-Aware Policy Optimization, EAPO)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, gigpo, gspo
from isocost.ops import EPS, Turns, in_states, spread_turns, turn_lengths, turns_of
from isocost.parts import pace, view
from isocost.parts.play import viewed
from isocost.seams import Recipe
from isocost.traits import bounds, trait

CARD = Card(
    "IterResearch", "2511.07327", 2025, "gspo", "A workspace rebuilt each turn reaches horizons that a history cannot.",
)

needs = gigpo.needs


def discounted(turns: Turns, reward: Tensor, *, gamma: float) -> Tensor:
    """γ^{T−t} R for turn t of T, from 1: the reward of the rollout, the later the more. -> (S,)"""
    count = torch.zeros_like(reward).scatter_reduce(
        0, turns.rollout, turns.number.to(reward) + 1, "amax", include_self=False
    )
    return gamma ** (count[turns.rollout] - 1 - turns.number) * reward[turns.rollout]


@trait("compares_siblings", "by_group_spread", "by_token", "needs_turns")
@bounds(gamma="(0, 1]", eps="[0, inf)")
def advantage(batch: Batch, ledger: object, *, gamma: float = 0.995, eps: float = EPS) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    each = discounted(turns, batch.reward, gamma=gamma)
    return spread_turns(in_states(each, batch.group[turns.rollout], std=True, eps=eps), turns, batch)


def weight(batch: Batch) -> Tensor:
    """Every turn has equal weight, shared by its tokens: 1 / (S |a|) with S turns in the batch. -> (N, T)"""
    turns = turns_of(batch)
    return spread_turns(1 / (turn_lengths(turns, batch) * max(len(turns.number), 1)), turns, batch)


def recipe(**changes: Any) -> Recipe:
    # The report is whatever a turn says besides its action: the view shows the last turn whole. γ is not published:
    # 0.995. Left out: rejection fine-tuning before RL, and dropping samples so that data-parallel ranks have equally
    # many (fewer than 1 %): the learner here takes any number of rows.
    rebuilt = partial(viewed, view=view.workspace)
    return gspo.recipe(
        name="iterresearch", play=rebuilt, advantage=partial(advantage, gamma=0.995), weight=weight,
        pace=partial(pace.warmed, max_turns=100)
    ).but(**changes)
