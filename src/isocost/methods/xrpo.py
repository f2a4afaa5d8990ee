"""XRPO: give more rollouts where the mean reward is least certain, and more credit to right answers that are unusual.

    Π = h(n) − h(n + 1) + λ √(log(1 + T) / n),   h(n) = t_{1 − α/2, n − 1} s / √n,   greedily, in phases
    A_i ← A_i + min(max(ν (1 − exp(s_i − s̄)), 0), κ A_i)   of a right rollout, s_i its mean log π, s̄ the group's
    Bamba et al. 2025, arXiv:2510.06672
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import partial
from math import log, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import Card, grpo
from isocost.ops import in_groups, lengths, spread
from isocost.parts import select
from isocost.parts.allocate import equal
from isocost.seams import Advantage, Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("XRPO", "2510.06672", 2025, "grpo", "Rollouts where a mean is uncertain learn more than equal groups.")


@trait("phased")
@bounds(first="(0, 1]", phases="[1, inf)", bonus="[0, inf)", alpha="(0, 1)")
def allocate(
    problems: Sequence[Problem], ledger: Ledger, total: int, *,
    first: float = 0.5, phases: int = 2, bonus: float = 0.1, alpha: float = 0.05,
) -> Generator[list[int], list[Group], None]:
    """A share `first` for all alike, the rest in `phases` by the priority Π (XRPO, arXiv:2510.06672).

    Within a phase rollouts go one by one to the largest Π, whose n and T grow and whose s stays. T is all rollouts of
    the wave so far. One rollout has no spread, so its Π is the bonus alone.
    """
    groups = yield equal(problems, ledger, max(int(first * total), len(problems)))
    while groups and (left := total - sum(g.size for g in groups)) > 0:
        budget = -(-left // max(phases, 1))
        phases -= 1
        groups = yield counts([g.rewards.tolist() for g in groups], [g.size for g in groups], budget,
                              bonus=bonus, alpha=alpha)


def counts(
    rewards: Sequence[Sequence[float]], sizes: Sequence[int], budget: int, *, bonus: float, alpha: float
) -> list[int]:
    """So many more rollouts for each problem, from its rewards and rollouts so far; ties go to the first.

    A rollout without a reward counts, so that a problem whose verifier fails does not get all the others.
    """
    n = list(sizes)
    s = [float(np.std(r, ddof=1)) if len(r) > 1 else 0.0 for r in rewards]
    more = [0] * len(n)
    for _ in range(budget):
        used = sum(n)
        k = max(range(len(n)), key=lambda i: priority(s[i], n[i], used, bonus=bonus, alpha=alpha))
        n[k] += 1
        more[k] += 1
    return more


def priority(s: float, n: int, used: int, *, bonus: float, alpha: float) -> float:
    """Π of a problem with `n` rewards of spread `s` in a wave with `used` rollouts."""
    narrower = (_half(s, n, alpha) - _half(s, n + 1, alpha)) if n > 1 and s else 0.0
    return narrower + bonus * sqrt(log(1 + used) / n)


def _half(s: float, n: int, alpha: float) -> float:
    return float(stdtrit(n - 1, 1 - alpha / 2)) * s / sqrt(n)


@bounds(novelty="[0, inf)", most="[0, inf)")
def advantage(
    batch: Batch, ledger: Any, *, inner: Advantage = grpo.advantage, novelty: float = 2.5, most: float = 0.5
) -> Tensor:  # -> (N, T)
    credit = inner(batch, ledger)
    total = (batch.logp * batch.mask).sum(-1).to(batch.reward)
    each = torch.zeros_like(batch.reward).index_add(0, batch.rollout, total)
    rare = 1 - in_groups(lambda s: s - s.mean(), each / lengths(batch).clamp(min=1), batch).exp()
    bonus = (novelty * spread(rare, batch)).clamp(min=0).minimum(most * credit)
    return credit + bonus.where(credit > 0, 0.0)      # above its siblings' mean: right


def recipe(**changes: Any) -> Recipe:
    # ν = 2.5, κ = 0.5 and 16 rollouts on average are the paper's; λ, α and the first share are not published. Left
    # out: worked answers of similar problems, found by an embedding of 8B parameters, in the prompts of problems that
    # were never solved.
    more = partial(allocate, first=0.5, phases=2, bonus=0.1, alpha=0.05)
    shaped = partial(advantage, inner=grpo.advantage, novelty=2.5, most=0.5)
    return grpo.recipe(name="xrpo", allocate=more, advantage=shaped, select=select.mixed, rollouts=16).but(**changes)
