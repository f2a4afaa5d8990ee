"""AEPO: split a group between fresh dialogues and forks by their entropies, fork less in a row, and keep gradients.

    m = ⌊k σ(β (H_root − mean H_tool))⌋ + 1 fresh dialogues of k, at most k
    fork if (u + γ ΔH_t)(1 − λ l) ≥ 1 − α,  u uniform in (0, 1), l the rounds in a row in which the problem was forked
    −A clip(ρ, 1 − 0.2, 1 + h) with the gradient (1 + h) ∇log π above 1 + h, where A > 0;   A_t ← A_t (1 + α_H Ĥ_t)
    Dong et al. 2025, arXiv:2510.14545
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import exp
from typing import Any

from torch import Tensor

from isocost import chance, ops
from isocost.batch import Batch, Forward
from isocost.methods import Card, arpo, grpo
from isocost.methods.arpo import Unsure
from isocost.methods.ettrl import enrich, entropies, reads_entropy
from isocost.ops import EPS
from isocost.parts.loss import Out, clipped, credit
from isocost.parts.play import sample
from isocost.seams import Advantage, Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card(
    "AEPO", "2510.14545", 2025, "arpo", "Entropy stays up where ARPO forks again and again on one path.", rule=2,
)


@trait("one_call", "not_as_posed", "shares_beginnings", "needs_turns")
@asks("entropy")
@bounds(copies="[1, inf)", base="[0, 1]", gain="[0, inf)", steep="[0, inf)", less="[0, 1]", tokens="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *,
    split: bool = True, copies: int = 1, base: float = 0.5, gain: float = 0.2, steep: float = 0.5, less: float = 0.05,
    tokens: int = 20, unsure: Unsure = entropies,
) -> list[Rollout]:
    """`arpo.play`, in which a first dialogue decides how many more start afresh (AEPO, arXiv:2510.14545).

    Of k attempts ⌊k σ(`steep` · (H_root − H_tool))⌋ + 1 start afresh: H_root is the entropy of the first turn, H_tool
    the mean of the others. Without `split` half of them do. A fork is less likely the more rounds in a row before it
    the problem was forked in, by any of its dialogues: by `less` for each.
    """
    if place.purpose != chance.Purpose.TRAIN or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    count = partial(fresh, of=len(attempts), steep=steep) if split else None
    odds = partial(balanced, base=base, gain=gain, less=less)
    first = 1 if split else max(len(attempts) // 2, 1)
    return await arpo.grown(problem, attempts, world, pace, place, first, count, odds, copies, tokens, unsure)


def fresh(doubts: Sequence[list[float]], *, of: int, steep: float) -> int:
    """How many of the attempts start afresh: one more than the sigmoid's share, at most all; half without a second
    turn.
    """
    if not doubts or len(doubts[0]) < 2:
        return max(of // 2, 1)
    root, *tool = doubts[0]
    return min(int(of / (1 + exp(-steep * (root - sum(tool) / len(tool))))) + 1, of)


def balanced(more: float, row: int, *, base: float, gain: float, less: float) -> float:
    """The probability that (u + γ ΔH)(1 − λ l) ≥ 1 − α, for u uniform in (0, 1): ARPO's for l = 0."""
    left = 1 - less * row
    return min(max(1 - (1 - base) / left + gain * more, 0.0), 1.0) if left > 0 else 0.0


@trait("by_token")
@reads_entropy
@bounds(scale="[0, inf)", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: Any, *, inner: Advantage = grpo.advantage, scale: float = 0.2, eps: float = EPS
) -> Tensor:  # -> (N, T)
    doubt = batch.extra["entropy"].to(batch.reward.dtype)
    here = doubt[batch.mask]
    return inner(batch, ledger) * (1 + scale * (doubt - here.mean()) / (here.std(correction=0) + eps)) * batch.mask


@bounds(low="[0, 1]", high="[0, inf)", dual="0 or [1, inf)")
def loss(out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.28, dual: float = 3.0) -> Out:
    """`loss.clipped`, in which a token with A > 0 above 1 + `high` keeps the gradient (1 + high) A ∇log π."""
    value, seen = clipped(out, batch, low=low, high=high, dual=dual)
    ratio = ops.log_ratio(out, batch).exp()
    over = (ratio > 1 + high) & (credit(batch) > 0)
    kept = -credit(batch) * (1 + high) / ratio.detach() * ratio
    return value.where(~over, kept), seen


def recipe(**changes: Any) -> Recipe:
    # α_H = 0.2, dual 3 and the forks of ARPO are the paper's; β = 0.5 and λ = 0.05 are those of its code. The released
    # scripts have the split off. Half of the attempts start afresh where the first dialogue has no second turn. Rule 1
    # had ARPO's mean of entropies, β = 1, and a penalty of 0.25 for each fork in a row on one path, at most 0.9.
    tree = partial(play, split=True, copies=1, base=0.5, gain=0.2, steep=0.5, less=0.05, tokens=20)
    shaped = partial(advantage, inner=grpo.advantage, scale=0.2)
    return arpo.recipe(
        name="aepo", play=tree, enrich=(enrich,), advantage=shaped, loss=partial(loss, low=0.2, high=0.28, dual=3.0),
    ).but(**changes)
