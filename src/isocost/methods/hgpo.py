"""HGPO: compare a turn with those taken in the same state, and more with those that came there the same way.

    level k: the turns of a group whose latest k states are equal; turn t, from 0, has k = 1 .. min(K, t) + 1
    A^(k) = (R_it − mean R) / (std R + ε) among them,   R_it = r_it + γ R_i,t+1
    A = Σ_k w_k A^(k) over the levels on which turn t is not alone,   w_k ∝ (k + 1)^α,   level 0: GRPO's A_i
    He et al. 2026, arXiv:2602.22817
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, gigpo, grpo
from isocost.ops import EPS, Turns, in_states, spread_turns, to_go, turns_of
from isocost.seams import Recipe
from isocost.traits import bounds, trait

CARD = Card(
    "HGPO", "2602.22817", 2026, "gigpo", "Turns with one history are compared with less bias than turns in one state.",
    rule=2,
)


@trait("compares_siblings", "by_token", "by_group_spread", "needs_turns")
@bounds(history="[0, inf)", alpha="[0, inf)", gamma="[0, 1]", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: object, *, history: int = 2, alpha: float = 1.0, gamma: float = 0.95, episode: bool = True,
    eps: float = EPS,
) -> Tensor:  # -> (N, T)
    turns = turns_of(batch)
    ahead, total, weights = to_go(turns, gamma=gamma), torch.zeros_like(turns.reward), torch.zeros_like(turns.reward)
    for k, state in enumerate(levels(turns, history), 1):
        shared = torch.bincount(state)[state] > 1
        total += (k + 1) ** alpha * in_states(ahead, state, std=True, eps=eps)
        weights += (k + 1) ** alpha * shared
    if not episode:
        return spread_turns(total / weights.clamp(min=1), turns, batch)
    own = spread_turns(1 / (1 + weights), turns, batch)
    return grpo.advantage(batch, ledger, eps=eps) * own + spread_turns(total / (1 + weights), turns, batch)


def levels(turns: Turns, history: int) -> list[Int[Tensor, "S"]]:
    """Per level k from 1: equal numbers for turns whose latest k states are equal. A turn with fewer states up to it
    equals no other. Each level splits the groups of the one before."""
    out = [turns.key]
    for back in range(1, history + 1):
        before = -1 - torch.arange(len(turns.key), device=turns.key.device)     # none, and unlike that of any other
        there = turns.rollout[back:] == turns.rollout[:-back]
        before[back:] = torch.where(there, turns.key[:-back], before[back:])
        _, code = torch.unique(torch.stack((out[-1], before), -1), dim=0, return_inverse=True)
        out.append(code)
    return out


def recipe(**changes: Any) -> Recipe:
    # K = 2 and α = 1 are the paper's. A level on which a turn is alone is left out of its weights, one on which all
    # returns are equal counts with 0. The released code has level 0 off unless it is asked for, and divides by the
    # standard deviation of the population; here level 0 is on, and the deviation is unbiased, as everywhere in this
    # package. With episode=false the levels of turns alone are averaged, and with history=0 that is GiGPO's term for
    # turns in units of a spread. Rule 1 gave all turns K + 1 levels: one that does not exist counted the last again.
    credit = partial(advantage, history=2, alpha=1.0, gamma=0.95, episode=True)
    return gigpo.recipe(name="hgpo", advantage=credit).but(**changes)
