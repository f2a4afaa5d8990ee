"""ETTRL: fork attempts at high entropy, take the majority answer as right, and scale down uncertain attempts.

    a tree: one attempt, and B more from each of its N tokens of highest entropy;   r_i = 1[answer_i = majority]
    tokens, forks being anywhere: (1 + BN/2) / (1 + BN) of as many attempts from the start
    A_i ← A_i (1 + (H̄ − H_i) / H̄),   H_i the mean entropy of attempt i, H̄ that of the batch
    Liu et al. 2025, arXiv:2508.11356
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import cycle, islice
from math import ceil
from typing import Any

import numpy as np
from numpy import ndarray
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, grpo
from isocost.ops import lengths, spread
from isocost.pack import pack
from isocost.parts.play import fork, sample
from isocost.seams import Advantage, Pace, Recipe
from isocost.traits import asks, bounds, gives, requires, trait
from isocost.types import Group, Place, Problem, Rollout, Score, Segment, Stop
from isocost.world import World

CARD = Card(
    "ETTRL", "2508.11356", 2025, "grpo",
    "It learns without a verifier where most are right, with 60% of the tokens.",
)

reads_entropy = requires(
    "entropy", at="enrich", why="it needs the entropy of each token; add ettrl.enrich to `enrich`"
)


def entropies(trunks: Sequence[Rollout], world: World, place: Place) -> list[ndarray]:
    """Per attempt (T,), the entropy of the distribution that each token was drawn from. Charged as `score` tokens."""
    known = tuple(t.scored(Score(0.0)) for t in trunks)      # there is no update: any score serves
    batch = pack([Group(trunks[0].problem, known, place)], world.engine.version)
    rows = world.learner.score(batch).entropy.float().cpu().numpy()
    return [row[: len(t.segments[-1])] for row, t in zip(rows, trunks, strict=True)]


@trait("one_call", "not_as_posed", "shares_beginnings")
@asks("entropy")
@bounds(points="[0, inf)", branches="[0, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    points: int = 2, branches: int = 2, unsure: Callable[[Sequence[Rollout], World, Place], list[ndarray]] = entropies,
) -> list[Rollout]:
    """Trees: whole attempts, each forked where its entropy was highest (ETTRL's rollouts, arXiv:2508.11356).

    At the `points` of highest entropy in a trunk the token is drawn again, `branches` times, and the attempt continues
    from there. n attempts are n leaves in ⌈n / (1 + branches · points)⌉ trees; forks are distributed in turn, so if n
    is not a multiple some points have one less. A leaf's `parent` is (trunk, token). A start is continued without a
    tree. Outside of training there is no tree either: the points of highest entropy depend on the whole trunk, so
    leaves are not independent draws of the policy, and their pass rate is not the policy's.

    The shared beginning was written by the policy and has credit in every leaf.
    """
    if place.purpose != chance.Purpose.TRAIN:
        return await sample(problem, attempts, world, pace, place, start)
    count = ceil(len(attempts) / (1 + branches * points))
    trunks = await sample(problem, attempts[:count], world, pace, place, start)
    told = unsure(trunks, world, place) if len(attempts) > count else []
    cells = [(t, at) for t, doubt in zip(trunks, told, strict=False) for at in _most(t.segments[-1], doubt, points)]
    left = attempts[count:]
    if not cells:
        return [*trunks, *await sample(problem, left, world, pace, place, start)]
    numbers: dict[int, list[int]] = {}
    for attempt, k in zip(left, islice(cycle(range(len(cells))), len(left)), strict=True):
        numbers.setdefault(k, []).append(attempt)
    grown = await together(*(fork(*cells[k], numbers[k], world, pace, place) for k in numbers))
    return [*trunks, *(leaf for leaves in grown for leaf in leaves)]


def told(rollout: Rollout) -> str:
    """The answer of an attempt: what the verifier would read, without surrounding white space."""
    return rollout.final.strip()


def _most(text: Segment, doubt: ndarray, points: int) -> list[int]:
    """Positions of highest entropy among the policy's own tokens, in order; ties to the first."""
    own = np.flatnonzero(text.own)
    return sorted(own[np.argsort(-doubt[own], kind="stable")[:points]].tolist())


@trait("not_whether_right")
async def reward(group: Group, world: World, *, answer: Callable[[Rollout], str] = told) -> Group:
    """1 for the most frequent answer of the group, else 0; no verifier is called (TTRL, arXiv:2504.16084).

    Ties go to the first answer. A truncated attempt has no answer: it has no vote and scores 0. An attempt whose
    environment failed has no score.
    """
    said = {r.attempt: answer(r) for r in group.rollouts if r.stop in (Stop.DONE, Stop.TURNS)}
    most = {name for name, _ in Counter(said.values()).most_common(1)}
    return group.of(
        r.scored(None if r.stop is Stop.ERROR else Score(float(said.get(r.attempt) in most))) for r in group.rollouts
    )


@gives("entropy")
@asks("entropy")
def enrich(batch: Batch, world: World) -> Batch:
    """Entropy of the distribution that each token was drawn from, as `extra["entropy"]`; charged as `score` tokens."""
    return batch.but(extra={**batch.extra, "entropy": world.learner.score(batch).entropy})


@reads_entropy
@bounds(cap="[0, inf)")
def advantage(
    batch: Batch, ledger: Any, *, inner: Advantage = grpo.advantage, cap: float = 0.0
) -> Tensor:  # -> (N, T)
    credit, doubt = inner(batch, ledger), (batch.extra["entropy"] * batch.mask).sum(-1).to(batch.reward.dtype)
    each = batch.reward.new_zeros(len(batch.reward)).index_add(0, batch.rollout, doubt) / lengths(batch).clamp(min=1)
    shaped = credit * spread(2 - each / each.mean().clamp(min=1e-12), batch)
    return shaped.clamp(-cap, cap) if cap else shaped     # a variant caps it at 2; 0 leaves it alone


def recipe(**changes: Any) -> Recipe:
    # The paper has 12 trees of 5, and updates on 32 of the 60 leaves; here 4 trees, and all leaves are trained on.
    return grpo.recipe(
        name="ettrl", play=partial(play, points=2, branches=2), reward=reward,
        enrich=(enrich,), advantage=partial(advantage, inner=grpo.advantage), rollouts=20,
    ).but(**changes)
