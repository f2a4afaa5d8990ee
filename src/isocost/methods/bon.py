"""BoN-aware RL on plain groups: weight a right answer by how often it would be the only right one of N.

    A_i = N · C(w, N−1) / C(n−1, N−1) if r_i is right, else 0;   w wrong of n ≥ N
    the mean over a group is unbiased for ∇(1 − p^N) = N p^{N−1} E[1{right} ∇log π],   p = P(wrong)
    Chow et al. 2024, arXiv:2412.15287 (its binary case; the weight for finite groups is a U-statistic of it)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.methods import Card, grpo, reinforce
from isocost.ops import siblings_of, spread
from isocost.seams import Recipe
from isocost.traits import bounds, shares, trait

CARD = Card("BoN-aware", "2412.15287", 2024, "reinforce", "It improves best-of-N and is worse at one sample.")

needs = grpo.needs   # siblings that differ: a group that is all wrong or all right has no information about N > 1


@trait("compares_siblings", "independent_attempts")
@shares(best_of="n")
@bounds(n="[1, inf)")
def advantage(batch: Batch, ledger: object, *, n: int = 4, least: float = 0.5) -> Tensor:  # -> (N, T)
    # N is the N of deployment; the paper trains with 16 and 32, which groups of 8 cannot estimate. `least`: the reward
    # from which an answer is right. No baseline: this is already the gain over the best of N − 1 of the others, whether
    # i is right or wrong.
    credit = torch.zeros_like(batch.reward)
    groups = siblings_of(batch)
    if max(map(len, groups)) < n:
        raise UserError(f"groups of {max(map(len, groups))} are too small for the best of {n}: rollouts must be >= n")
    for mine in groups:
        if len(mine) < n:      # it lost members to a verifier that failed
            continue
        right = batch.reward[mine] >= least
        wrong, alone = int((~right).sum()), float(n)
        for k in range(n - 1):
            alone *= max(wrong - k, 0) / (len(mine) - 1 - k)
        credit[mine] = alone * right.to(credit)
    return spread(credit, batch)


def recipe(**changes: Any) -> Recipe:
    return reinforce.recipe(name="bon", advantage=advantage).but(**changes)
