"""MSSR: one rollout for each problem, compared with a decaying estimate of the problem's own pass rate.

    A = r − α / (α + β), brought to mean 0 and spread 1 over the batch;   α ← ρ α + r,   β ← ρ β + 1 − r   afterwards
    A_t = A + min(α_H H_t, |A| / κ)   at a token of entropy H_t        problems drawn by √(v (1 − v)) + ε,  v = α/(α+β)
    "Multimodal stabilized single-rollout", 2025, arXiv:2512.18215
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, ettrl, reinforce
from isocost.ops import EPS, spread
from isocost.parts import loss, weight
from isocost.parts.choose import first
from isocost.seams import Recipe
from isocost.traits import bounds, shares, trait
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card("MSSR", "2512.18215", 2025, "reinforce", "One rollout a problem learns like a group in half the steps.")
Tracks = dict[str, tuple[float, float]]


@trait("tracks_pass_rate")
@shares(decay="rho")
@bounds(least="(0, inf)", rho="[0, 1]", prior="(0, inf)")
def choose(
    pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator, *,
    least: float = 0.01, rho: float = 0.9, prior: float = 1.0,
) -> list[Problem]:
    """Problems by chance in proportion to √(v (1 − v)) + `least`, without repetition while the pool allows it."""
    known = tracked(ledger, rho=rho, prior=prior)
    v = np.array([rate(known, p.id) for p in pool])
    chance = np.sqrt(v * (1 - v)) + least
    order = rng.choice(len(pool), min(count, len(pool)), replace=False, p=chance / chance.sum())
    return first(pool, order, count)


def tracked(ledger: Ledger, *, rho: float, prior: float) -> Tracks:
    """(α, β) of every problem that was sampled, up to the last closed step; both are `prior` for a new one."""
    start: Tracks = {}
    return ledger.fold(partial(_track, rho=rho, prior=prior), start)


def rate(known: Tracks, name: str) -> float:
    """α / (α + β) of a problem; 1/2 for a new one."""
    a, b = known.get(name, (1.0, 1.0))
    return a / (a + b)


def _track(known: Tracks, seen: Sequence[Seen], *, rho: float, prior: float) -> Tracks:
    for s in seen:
        for r in s.rewards if not s.variant else ():
            a, b = known.get(s.id, (prior, prior))
            r = min(max(r, 0.0), 1.0)
            known[s.id] = rho * a + r, rho * b + 1 - r
    return known


@trait("tracks_pass_rate", "by_batch_spread", "by_token")
@ettrl.reads_entropy
@shares(decay="rho")
@bounds(rho="[0, 1]", prior="(0, inf)", entropy="[0, inf)", kappa="[1, inf)", eps="[0, inf)")
def advantage(
    batch: Batch, ledger: Ledger, *, rho: float = 0.9, prior: float = 1.0, entropy: float = 0.4, kappa: float = 2.0,
    eps: float = EPS,
) -> Tensor:  # -> (N, T)
    known = tracked(ledger, rho=rho, prior=prior)      # of closed steps: before these rewards
    own = batch.reward.new_tensor([rate(known, g.problem.id) for g in batch.groups for _ in g.rollouts])
    lead = batch.reward - own
    credit = spread((lead - lead.mean()) / (lead.std(correction=0) + eps), batch)
    bonus = (entropy * batch.extra["entropy"].to(credit)).minimum(credit.abs() / kappa)
    return (credit + bonus) * batch.mask


def recipe(**changes: Any) -> Recipe:
    # ρ is between 0.875 and 0.96 in the paper, where it follows how far the policy has drifted since the problem was
    # last posed, 2^(−KL/0.06); here it is a constant, because that takes a second forward pass. The weight of the
    # prior is not published. n = 1 and as many problems as a group method has rollouts.
    shaped = partial(advantage, rho=0.9, prior=1.0, entropy=0.4, kappa=2.0)
    return reinforce.recipe(
        name="mssr", choose=partial(choose, least=0.01, rho=0.9, prior=1.0), enrich=(ettrl.enrich,), advantage=shaped,
        weight=weight.rollout_mean, loss=partial(loss.clipped, low=0.2, high=0.2), groups=128, rollouts=1,
    ).but(**changes)
