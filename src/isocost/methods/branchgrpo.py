"""BranchGRPO: paths of denoising that share their beginnings, and credit that is compared within each depth.

    at steps 0, 3, 6 every path forks in two;   V(edge) = mean reward of the leaves below it
    A(edge) = (V − mean_d V) / (std_d V + ε), clipped to ±5, over all edges of depth d in the tree
    Li et al. 2025, "BranchGRPO", arXiv:2509.06040
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.ops import EPS
from isocost.parts.play import fork, lent, sample
from isocost.seams import Pace, Recipe
from isocost.traits import bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import Ask, World

CARD = Card("BranchGRPO", "2509.06040", 2025, "grpo", "Shared beginnings give more reward for each denoising step.")


@trait("one_call", "not_as_posed", "shares_beginnings")
@bounds(forks="[0, inf)", width="[2, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *, forks: tuple[int, ...] = (1, 4, 7), width: int = 2,
) -> list[Rollout]:
    """A tree: all paths fork into `width` after so many tokens of the policy; at the last fork all attempts are there.

    A leaf's `parent` is the path that it forked from. Its shared beginning has the role HINT, so that every edge has
    credit once, in the oldest path through it. What cannot fork, and all that is not for training, is sampled plainly.
    """
    if place.purpose != chance.Purpose.TRAIN or start is not None or world.env is not Ask:
        return await sample(problem, attempts, world, pace, place, start)
    paths, left = await sample(problem, attempts[:1], world, pace, place), list(attempts[1:])
    for depth, after in enumerate(forks):
        own = {r.attempt: np.flatnonzero(r.segments[-1].role != 0) for r in paths}      # HINT of an older path, too
        able = [r for r in paths if len(own[r.attempt]) > after]
        count = len(left) if depth == len(forks) - 1 else min(len(able) * (width - 1), len(left))
        new, left = left[:count], left[count:]
        numbers: dict[int, list[int]] = {}
        for attempt, k in zip(new, islice(cycle(range(max(len(able), 1))), count), strict=True):
            numbers.setdefault(k, []).append(attempt)
        if not able:
            left = [*new, *left]
            break
        grown = await together(*(_grown(able[k], int(own[able[k].attempt][after]), numbers[k], world, pace, place)
                                 for k in numbers))
        paths += [leaf for leaves in grown for leaf in leaves]
    return [*paths, *await sample(problem, left, world, pace, place)]


async def _grown(
    path: Rollout, at: int, attempts: Sequence[int], world: World, pace: Pace, place: Place
) -> list[Rollout]:
    return [lent(r, at) for r in await fork(path, at, attempts, world, pace, place)]


@trait("by_token", "compares_siblings")
@bounds(most="(0, inf]", eps="[0, inf)")
def advantage(batch: Batch, ledger: object, *, most: float = 5.0, eps: float = EPS) -> Tensor:  # -> (N, T)
    """Of every edge: its value's distance from the mean of its depth, in unbiased standard deviations, within ±`most`.

    0 for a depth with one edge, or with equal values. Depths are positions: the paths of a tree have one prompt.
    """
    value, out = values(batch)[0], torch.zeros_like(batch.logp)
    for rows in trees(batch):
        here = batch.mask[rows]
        count = here.sum(0)
        off = (value[rows] - (value[rows] * here).sum(0) / count.clamp(min=1)) * here
        sd = (off.square().sum(0) / (count - 1).clamp(min=1)).sqrt()
        out[rows] = (off / (sd + eps)).clamp(-most, most).masked_fill(sd < 1e-6, 0.0)
    return out


def weight(batch: Batch) -> Tensor:
    """The mean over the edges of all paths from the root to a leaf: an edge counts once for each leaf below it."""
    leaves = values(batch)[1] * batch.mask
    return leaves / leaves.sum().clamp(min=1)


def values(batch: Batch) -> tuple[Tensor, Tensor]:
    """The mean reward of the leaves below each edge, and their number. -> (N, T) each"""
    total, first = batch.reward[batch.rollout, None].to(batch.logp).expand_as(batch.logp).clone(), 0
    leaves = torch.ones_like(total)
    last = {r: i for i, r in enumerate(batch.rollout.tolist())}        # the last row of each rollout
    for group in batch.groups:
        at = {r.attempt: last[first + j] for j, r in enumerate(group.rollouts) if first + j in last}
        for r in sorted(group.rollouts, key=lambda r: -r.attempt):     # leaves before what they grew from
            if r.parent is not None and r.parent[0] in at and r.attempt in at:
                own, old, shared = at[r.attempt], at[r.parent[0]], r.parent[1]
                total[old, :shared] += total[own, :shared]
                leaves[old, :shared] += leaves[own, :shared]
        first += group.size
    return total / leaves, leaves


def trees(batch: Batch) -> list[Tensor]:
    """The rows of each group."""
    group = batch.group[batch.rollout]
    return [torch.nonzero(group == k)[:, 0] for k in group.unique()]


def recipe(**changes: Any) -> Recipe:
    # Forks are after tokens of the policy: in flow2d the first token is the noise that the tree shares, so 1, 4 and 7
    # are the released code's steps 0, 3 and 6. Left out: pruning by width and depth, which spares gradients alone,
    # noise that is scaled at forks, values weighted by the probability of paths, and the variant with noise at few
    # steps.
    return grpo.recipe(
        name="branchgrpo", play=partial(play, forks=(1, 4, 7), width=2),
        advantage=partial(advantage, most=5.0, eps=EPS), weight=weight,
    ).but(**changes)
