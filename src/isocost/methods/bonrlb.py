"""BoN-RLB: train on the samples of best-of-N, weighted so that the gradient is that of best-of-N.

    y ~ best of N:   A = ḡ⁺ = N p^{N−1}(1 − p) / (1 − p^N) if right, else 0            (RLB(P), exact)
    "plus":  A = g⁺ = N p^{N−1} / (1 − p^N) if right, else +g⁻ = N p / (1 − p)         (exact as well)
    "minus": A = g⁺ if right, else −g⁻: the exact gradient times (1 + p)/(1 − p)
    p = P(wrong) per problem; exact where p is known. Here it is the group's own share, which biases them: see bon.
    Chow et al. 2024, arXiv:2412.15287
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.methods import Card, bon
from isocost.ops import spread
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, gives, requires, shares, trait
from isocost.types import Group
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("BoN-RLB", "2412.15287", 2024, "bon", "Weights on best-of-N's own samples give the gradient of best-of-N.")
FORMS = {"positive": 0.0, "plus": 1.0, "minus": -1.0}


@gives("failure rates")
async def reward(group: Group, world: World, *, least: float = 0.5) -> Group:
    """The verifier's score; the part `failed` is the share of the whole group that it marked wrong."""
    group = await verified(group, world)
    failed = float((group.rewards < least).mean()) if len(group.rewards) else 0.0
    return group.of(r if r.score is None else r.scored(replace(r.score, parts={"failed": failed, **r.score.parts}))
                    for r in group.rollouts)


@trait("independent_attempts")
@shares(best_of="n")
@bounds(n="[1, inf)")
def select(group: Group, ledger: Ledger, *, n: int = 4) -> Group | None:
    """The best of every n consecutive attempts, ties to the first: independent draws of best-of-n. The rest is dropped.
    """
    blocks = [group.rollouts[at : at + n] for at in range(0, len(group.rollouts) - n + 1, n)]
    best = [max(block, key=lambda r: r.score.value if r.score is not None else -inf) for block in blocks]
    return group.of(best) if best else None


@trait("compares_siblings", n=(">", 1))
@trait("independent_attempts")
@requires(
    "failure rates", at="reward",
    why="it needs the failure rate of whole groups, which bonrlb.reward records before best-of-n is taken",
)
@shares(best_of="n")
@bounds(n="[1, inf)", most="(0, 1)")
def advantage(
    batch: Batch, ledger: object, *, n: int = 4, form: str = "positive", least: float = 0.5, most: float = 0.95
) -> Tensor:  # -> (N, T)
    # g⁺ and g⁻ grow without bound as p approaches 1, so p is limited to `most`; ḡ⁺ there is 0.92 of its limit, 1.
    failed = [r.score.parts["failed"] for g in batch.groups for r in g.rollouts if r.score is not None]
    right, wrong = gains(torch.tensor(failed).to(batch.reward).clamp(max=most), n, form)
    return spread(torch.where(batch.reward >= least, right, wrong), batch)


def gains(p: Tensor, n: int, form: str) -> tuple[Tensor, Tensor]:
    """The advantage of a right and of a wrong sample of best-of-n at failure rate p; any shape."""
    if form not in FORMS:
        raise UserError(f"the form is one of {', '.join(FORMS)}; not {form!r}")
    right, wrong = n * p ** (n - 1) / (1 - p**n), FORMS[form] * n * p / (1 - p)
    return (right, wrong) if FORMS[form] else (right * (1 - p), wrong)


def recipe(**changes: Any) -> Recipe:
    best = partial(select, n=4)
    return bon.recipe(name="bonrlb", advantage=advantage, reward=reward, select=best).but(**changes)
