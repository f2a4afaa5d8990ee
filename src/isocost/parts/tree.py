"""Decode strategies that fork: attempts share the beginning of another and go their own way from there.

Unlike what `forced` gives away, the shared beginning is the policy's own and has credit in every leaf that holds it, so
the gradient of a prefix is that of all its leaves. A leaf is an attempt: the engine does not see one begin, so its
rollout is charged here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from math import ceil

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.pack import pack
from isocost.parts.play import sample
from isocost.seams import Pace
from isocost.traits import bounds, trait
from isocost.types import Cost, Group, Place, Problem, Rollout, Score, Segment
from isocost.world import World


def entropies(trunks: Sequence[Rollout], world: World, place: Place) -> list[ndarray]:
    """The entropy of the distribution that each token was drawn from, per attempt: (T,). Charged as `score` tokens."""
    known = tuple(t.scored(Score(0.0)) for t in trunks)      # no update: any score will do
    batch = pack([Group(trunks[0].problem, known, place)], world.engine.version)
    rows = world.learner.score(batch).entropy.float().cpu().numpy()
    return [row[: len(t.segments[-1])] for row, t in zip(rows, trunks, strict=True)]


@trait("one_call", "not_as_posed", "shares_beginnings")
@bounds(points="[0, inf)", branches="[0, inf)")
async def forked(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, start: Segment | None = None, *,
    points: int = 2, branches: int = 2, unsure: Callable[[Sequence[Rollout], World, Place], list[ndarray]] = entropies,
) -> list[Rollout]:
    """Trees: whole attempts, each forked where it was least sure (ETTRL's rollouts, arXiv:2508.11356).

    At the `points` of highest entropy in a trunk the token is drawn again, `branches` times, and the attempt goes on
    from there. n attempts are n leaves in ⌈n / (1 + branches · points)⌉ trees; forks are dealt in turn, so where n is
    no multiple some points have one less. A leaf's `parent` is (trunk, token). A start is gone on from as it is. Nor is
    there a tree outside of training: where a whole trunk was least sure is told by its end too, so leaves are not the
    policy's draws, and a pass rate of theirs is not its own.
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
    grown = await asyncio.gather(*(_branch(*cells[k], numbers[k], world, pace, place) for k in numbers))
    return [*trunks, *(leaf for leaves in grown for leaf in leaves)]


async def _branch(
    trunk: Rollout, at: int, attempts: Sequence[int], world: World, pace: Pace, place: Place
) -> list[Rollout]:
    start = trunk.segments[-1].cut(at)
    if start.written:
        world.meter.charge(Cost(rollouts=len(attempts)))
    made = await sample(trunk.problem, attempts, world, pace, place, start)
    return [r.but(parent=(trunk.attempt, at)) for r in made]


def _most(text: Segment, doubt: ndarray, points: int) -> list[int]:
    """Where the doubt was greatest among the policy's own tokens, in order; ties to the first."""
    own = np.flatnonzero(text.own)
    return sorted(own[np.argsort(-doubt[own], kind="stable")[:points]].tolist())
