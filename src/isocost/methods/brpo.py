"""BRPO: answer at every budget, and credit each stretch of thought with what it added to the answers after it.

    R_s = Σ_{k≥s} P_k c_k,   A_s = R_s − (s V1_s + (S − s) V2_s) / S,   s = 0..S−1,   c_s the mean score at budget s
    V1_s = (Σ_{k<s} 2^k c_k / Σ_{k<s} 2^k) Σ_{k≥s} P_k   the trace so far,   V2_s = mean of R_s over the traces
    an answer: r − mean r of the answers at its cut          Qi et al. 2025, arXiv:2505.13438
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.methods import Card, grpo
from isocost.ops import EPS, in_groups, spread
from isocost.parts import forced, weight
from isocost.seams import Recipe
from isocost.traits import bounds, shares, trait
from isocost.types import Batch

CARD = Card("BRPO", "2505.13438", 2025, "grpo", "It beats GRPO at every budget of thought, the full one included.")


def lead(c: Tensor, prior: Tensor) -> Tensor:
    """A_s of each of a problem's traces from its scores at each budget. (G, S), (S,) -> (G, S)"""
    s, ahead = torch.arange(len(prior)), prior.flip(0).cumsum(0).flip(0)
    returns, recent = (c * prior).flip(1).cumsum(1).flip(1), 2.0**s
    v1 = torch.nn.functional.pad((c * recent).cumsum(1) / recent.cumsum(0), (1, -1)) * ahead
    leads = returns - (s * v1 + (len(s) - s) * returns.mean(0)) / len(s)      # V2: of a trace alone, its own
    return leads.where(leads.abs() > EPS * returns.abs().max(), 0.0)          # what is settled is so exactly


@trait("compares_siblings", "by_token")
@forced.reads_budgets
@shares(budgets="prior")
@bounds(prior="[0, inf)")
def advantage(batch: Batch, ledger: object, *, prior: tuple[float, ...] = (0.25,) * 4) -> Tensor:  # -> (N, T)
    # P: as many numbers as there are budgets, uniform as in one of the paper's two main runs; (0, .., 1) is "base".
    credit = spread(in_groups(lambda r: r - r.mean(), batch.reward, batch), batch)
    at = torch.arange(batch.tokens.shape[1])
    first = 0
    for group in batch.groups:
        traces = [(first + i, r.attempt) for i, r in enumerate(group.rollouts) if r.parent is None]
        cells = [forced.scores(group, attempt, len(prior)) for _, attempt in traces]
        rest = [c for c, _ in cells if c]
        leads = iter(lead(torch.tensor(rest), torch.tensor(prior)) if rest else ())
        for (rollout, _), (known, cuts) in zip(traces, cells, strict=True):
            mine, each = batch.rollout == rollout, next(leads) if known else torch.zeros(len(prior))
            stretch = torch.bucketize(at, torch.tensor(cuts[:-1], dtype=torch.long), right=True)
            credit[mine] = each[stretch] * batch.mask[mine]
        first += len(group.rollouts)
    return credit


def recipe(**changes: Any) -> Recipe:
    # The paper: 8 traces with 4 answers per budget, 136 rollouts. Here 4 with 2, for each is counted in n.
    # A chat model needs play.words, such as forced.TIME_IS_UP: without, an answer is only going on with less room.
    asked = partial(forced.anytime, shares=(0.25, 0.5, 0.75, 1.0), answers=2)
    average = weight.token_mean      # as the released code's trainer does
    return grpo.recipe(name="brpo", play=asked, advantage=advantage, weight=average, rollouts=36).but(**changes)
