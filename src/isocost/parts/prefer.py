"""Preferences between the answers of a group: how likely each is to win against each other one, and its share of wins.

    P(i ≻ j) = 1/2 + (s_i − s_j) / 2 + κ c(i, j), within [0, 1]
    s: scores in [0, 1]. With s of 0 or 1 the one that alone is right wins; else each wins with probability 1/2
    c = 1/2 if the class of j comes after that of i in a circle, −1/2 if before, so that preferences are cyclic
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy import ndarray

from isocost.gather import together
from isocost.parts.reward import judged, verified
from isocost.scorers import answer_of, generative
from isocost.traits import bounds, trait
from isocost.types import Group, Problem, Rollout, Score
from isocost.world import World

PAIRS = "pairwise"      # as a judge: the policy itself is asked about each pair, in both orders


@trait("not_whether_right")
@bounds(cycle="[0, 1]", classes="[3, inf)")
async def reward(
    group: Group, world: World, *, judge: str = "", cycle: float = 0.0, classes: int = 3
) -> Group:
    """The share of wins of each attempt against all of its group, itself included: P(i ≻ i) is 1/2.

    `judge` is a scorer's specification, "pairwise" (the policy compares each pair, in both orders), or empty for the
    verifier's score. `cycle` is κ. An answer's class is a hash of it, modulo `classes`; a missing answer has no
    class. Parts: `right`, the verifier's score, and `over K`, the probability to win against attempt K. An attempt that
    the judge does not score gets no reward.
    """
    group = await verified(group, world)
    own = [r for r in group.rollouts if r.score is not None]
    if judge and judge != PAIRS:
        said = await judged(group.problem, own, world, judge)
        own = [r for r in own if said[r.attempt] is not None]
        score = [float(said[r.attempt] or 0) for r in own]
    else:
        score = [min(max(r.score.value, 0.0), 1.0) if r.score and not judge else 0.0 for r in own]
    chance = np.subtract.outer(score, score) / 2 if judge != PAIRS else await _compared(group.problem, own, world)
    chance = np.clip(0.5 + chance + cycle * circle([_class(r, classes) for r in own], classes), 0.0, 1.0)
    won = {r.attempt: Score(float(p.mean()), {"right": r.score.value if r.score else 0.0, **{
        f"over {other.attempt}": float(x) for other, x in zip(own, p, strict=True)}})
        for r, p in zip(own, chance, strict=True)}
    return group.of(r.scored(won.get(r.attempt)) for r in group.rollouts)


async def _compared(problem: Problem, own: Sequence[Rollout], world: World) -> ndarray:
    """P(i ≻ j) − 1/2, the mean over both orders of a pair; an order without a verdict counts as a draw. (G, G)"""
    pairs = [(i, j) for i in range(len(own)) for j in range(len(own)) if i != j]
    first = await together(*(generative.prefer(problem, own[i].final, own[j].final, world) for i, j in pairs))
    out = np.zeros((len(own), len(own)))
    for (i, j), won in zip(pairs, first, strict=True):
        if won is not None:
            out[i, j] += won / 2 - 0.25
            out[j, i] -= won / 2 - 0.25
    return out


def circle(classes: Sequence[int | None], count: int) -> ndarray:
    """c(i, j) of answers of these classes, out of `count`: antisymmetric, and 0 where one has none. (G, G)"""
    known = np.array([-1 if c is None else c for c in classes])
    ahead = (known[None, :] - known[:, None]) % count
    both = (known[None, :] >= 0) & (known[:, None] >= 0)
    return np.where(both & (ahead == 1), 0.5, np.where(both & (ahead == count - 1), -0.5, 0.0))


def _class(rollout: Rollout, count: int) -> int | None:
    answer = answer_of(rollout.problem, rollout.final)
    return None if answer is None else zlib.crc32(answer.encode()) % count
