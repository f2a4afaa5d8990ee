"""ADHint: the harder the problem the longer the hint; learn it where it led to success, but count success without more.

    hint ratio h = h_max (1 − p), p the share right without          Â: GRPO's, within those with and those without
    A = Â D_c / D̄ if Â > 0, else Â (1 − D_c) / (1 − D̄),   D_c the share wrong of either, D̄ the mean of the two
    hint tokens: A c_t if A > 0, else 0,   c_t = min(H_t, H̄) / max(H_t, H̄)          Zhang et al. 2025, arXiv:2512.13095
    (what is public says that D and c_t do this, not by which factors: those here are the plainest that are 1 without)
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.methods import Card, grpo, pope
from isocost.ops import EPS, spread
from isocost.parts import guide, loss, taught
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Batch

CARD = Card("ADHint", "2512.13095", 2025, "grpo", "Hints by difficulty raise success without hints.")

needs = pope.needs


@trait("compares_siblings", "by_group_spread")
@bounds(eps="[0, inf)")
def advantage(batch: Batch, ledger: object, *, eps: float = EPS) -> Tensor:  # -> (N, T)
    lead = grpo.advantage(batch, ledger, eps=eps)
    wrong, usual = difficulty(batch)
    harder = torch.where(usual > 0, wrong / usual.clamp(min=eps), 1.0)
    easier = torch.where(usual < 1, (1 - wrong) / (1 - usual).clamp(min=eps), 1.0)
    return lead * torch.where(lead > 0, spread(harder, batch), spread(easier, batch))


def difficulty(batch: Batch) -> tuple[Tensor, Tensor]:
    """(R,) the share wrong of each rollout's cohort, and the mean of its group's cohorts."""
    sizes = torch.tensor([len(g.rollouts) for g in batch.groups])
    wrong, usual = torch.zeros_like(batch.reward), torch.zeros_like(batch.reward)
    for mine in torch.arange(len(batch.reward)).split(sizes.tolist()):
        cohorts = [mine[batch.group[mine] == c] for c in batch.group[mine].unique()]
        for cohort in cohorts:
            wrong[cohort] = 1 - batch.reward[cohort].clamp(0, 1).mean()
        usual[mine] = torch.stack([wrong[c[0]] for c in cohorts]).mean()
    return wrong, usual


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(
        name="adhint",
        guide=partial(guide.as_variant, name=taught.HINTED),
        play=partial(taught.hinted, plain=0.5, most=0.5),   # h_max is not public: half leaves half to be found
        advantage=advantage,
        loss=partial(taught.consistently, inner=partial(loss.clipped, low=0.2, high=0.2)),
        improve=taught.imitating,
    ).but(**changes)
