"""BFS-Prover-V2: imitate the steps of right answers that are neither certain nor noise, and restart from the base.

    keep step k of a right answer if  low ≤ its rank among the batch's steps by −(1/|k|) Σ log π(k) < high,  from 0 to 1
    every K steps  θ ← θ_0, the optimiser new, and M updates on the newest right answers of all problems so far
    Xin et al. 2025, "BFS-Prover-V2", arXiv:2509.06493
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.credit import credited
from isocost.errors import UserError
from isocost.methods import Card, fbc
from isocost.parts import enrich
from isocost.parts.improve import SHELF, policy, remember
from isocost.parts.play import episodes
from isocost.parts.reward import verified
from isocost.scorers import step_of
from isocost.seams import Improve, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Group, Rollout
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("BFS-Prover-V2", "2509.06493", 2025, "fbc", "Beginning again from the base raises a plateau.")
STEP = "step"       # of each token: the number of its step, from 1; 0 for what the policy did not write


async def reward(group: Group, world: World, *, ends: str = "") -> Group:
    """The verifier's score. The note `step` numbers the steps of each attempt, which the text `ends` ends.

    Without `ends` it is what ends a step of a built-in family, and an empty line elsewhere.
    """
    group = await verified(group, world)
    mark = step_of(group.problem, ends)
    return group.of(_numbered(r, mark, world) for r in group.rollouts)


def _numbered(rollout: Rollout, ends: str, world: World) -> Rollout:
    numbers = []
    for text in rollout.segments:
        begin = np.zeros(len(text) + 1, dtype=np.float32)
        begin[episodes(text, ends, world.text.decode)] = 1.0
        numbers.append(np.where(text.own, begin[:-1].cumsum(), 0.0).astype(np.float32))
    return rollout.but(notes={**rollout.notes, STEP: tuple(numbers)})


@trait("by_token")
@bounds(low="[0, 1]", high="[0, 1]")
def advantage(batch: Batch, ledger: object, *, over: float = 0.0, low: float = 0.1, high: float = 0.95) -> Tensor:
    """1 on the tokens of kept steps, else 0: those whose rank by surprise in the batch is in [low, high). (N, T)"""
    right = fbc.advantage(batch, ledger, over=over)
    step = batch.extra[STEP].to(torch.int64)
    name = (torch.arange(len(step))[:, None] * (int(step.max()) + 1) + step)[batch.mask & (right > 0)]
    if not len(name):
        return right
    _, whose, count = torch.unique(name, return_inverse=True, return_counts=True)
    surprise = -batch.logp[batch.mask & (right > 0)].to(torch.float64)
    each = torch.zeros(len(count), dtype=torch.float64).index_add(0, whose, surprise) / count
    order = each.sort().values          # equal steps have one rank, the middle of theirs
    rank = (torch.searchsorted(order, each) + torch.searchsorted(order, each, right=True)) / (2 * len(each))
    out = torch.zeros_like(right)
    out[batch.mask & (right > 0)] = ((rank >= low) & (rank < high))[whose].to(right)
    return out


@asks("weights", "forget")
@bounds(period="[1, inf)", updates="[1, inf)", room="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, period: int = 64, updates: int = 16,
    room: int = 512, inner: Improve = policy,
) -> dict[str, float]:
    """Any improvement; every `period` steps training restarts from the policy before training.

    The newest right attempts of each problem are kept, of at most `room` problems; after a restart `updates` updates
    imitate them, a batch each. Raises UserError without a reference.
    """
    for group in batch.groups:
        remember(group, ledger, room)
    seen = inner(batch, recipe, world, ledger)
    again = (ledger.step + 1) % period == 0
    if again:
        if world.reference is None:
            raise UserError("beginning again needs the policy before training: open the world with reference=True")
        base, kept = world.reference.weights(), list(ledger.kept[SHELF])
        for name, own in world.learner.weights().items():
            own.copy_(base[name])
        world.learner.forget()
        for k in range(updates):
            some = [kept[(k * len(batch.groups) + i) % len(kept)] for i in range(min(len(batch.groups), len(kept)))]
            inner(credited(some, recipe, world, ledger), recipe, world, ledger)
    return {**seen, "begun again": float(again)}


def recipe(**changes: Any) -> Recipe:
    # The paper begins again where the share of solved problems no longer rises; here after a number of steps. It then
    # solves all problems again by the best policy, for shorter answers, and filters their steps harder; here the newest
    # right answers are those, under the same filter, by the log-probs of the policy that sampled them. Shares of steps
    # that are kept are not published in numbers that carry over. Left out: best-first search for proofs in training
    # (each attempt is sampled), and the planner with its shared lemmas.
    learn = partial(improve, period=64, updates=16, room=512, inner=partial(policy, ratios=False))
    steps = partial(advantage, over=0.0, low=0.1, high=0.95)
    return fbc.recipe(
        name="bfsprover", reward=partial(reward, ends=""), advantage=steps, enrich=(enrich.reference,), improve=learn
    ).but(**changes)
