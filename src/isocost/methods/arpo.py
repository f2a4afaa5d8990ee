"""ARPO: start fewer dialogues than a group has, and fork them after tool answers that leave the policy uncertain.

    ΔH_t = H_t − H_0,  H_t the sum of the entropies of the first k tokens of turn t, in units of log |V|
    fork before turn t with probability α + β ΔH_t, until M leaves are there;  A_i = GRPO's over the M leaves
    Dong et al. 2025, arXiv:2507.19849
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import log
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost import chance
from isocost.batch import Batch
from isocost.gather import together
from isocost.methods import Card, gigpo, grpo
from isocost.methods.ettrl import entropies
from isocost.parts import pace as paces
from isocost.parts.play import fork, sample, turn_starts
from isocost.seams import Advantage, Pace, Recipe
from isocost.traits import asks, bounds, trait
from isocost.types import Place, Problem, Rollout, Segment
from isocost.world import World

CARD = Card(
    "ARPO", "2507.19849", 2025, "grpo", "Forks after uncertain tool answers find more with half of the calls.", rule=2,
)
Unsure = Callable[[Sequence[Rollout], World, Place], list[ndarray]]
Odds = Callable[[float, int], float]       # (ΔH, rounds in a row with a fork before this one) -> that of a fork
Count = Callable[[Sequence[list[float]]], int]     # doubts of the turns of the first dialogues -> how many start afresh

needs = gigpo.needs


@trait("one_call", "not_as_posed", "shares_beginnings", "needs_turns")
@asks("entropy")
@bounds(trunks="[1, inf)", copies="[1, inf)", base="[0, 1]", gain="[0, inf)", tokens="[1, inf)")
async def play(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place,
    start: Segment | Rollout | None = None, *,
    trunks: int = 8, copies: int = 1, base: float = 0.5, gain: float = 0.2, tokens: int = 20,
    unsure: Unsure = entropies,
) -> list[Rollout]:
    """Trees: up to `trunks` whole dialogues, forked before turns in which the policy is uncertain (arXiv:2507.19849).

    Before each turn but the first a dialogue is forked with probability `base` + `gain` · ΔH, into `copies` more, the
    earliest turns first, and so are the forks, until all attempts are used. ΔH is how much the entropies of the turn's
    first `tokens` tokens sum to more than those of the first turn, in units of log |V|, V the model's own vocabulary.
    Attempts that no fork used start afresh. A leaf's `parent` is (dialogue, token); the environment replays the shared
    turns with their luck, uncharged.
    Outside of training, and from a start, attempts are sampled plainly. Requires dialogues of one segment.
    """
    if place.purpose != chance.Purpose.TRAIN or start is not None:
        return await sample(problem, attempts, world, pace, place, start)
    odds = partial(linear, base=base, gain=gain)
    return await grown(problem, attempts, world, pace, place, trunks, None, odds, copies, tokens, unsure)


def linear(more: float, row: int, *, base: float, gain: float) -> float:
    """The probability of a fork: `base` + `gain` · ΔH, in [0, 1]."""
    return min(max(base + gain * more, 0.0), 1.0)


async def grown(
    problem: Problem, attempts: Sequence[int], world: World, pace: Pace, place: Place, trunks: int, count: Count | None,
    odds: Odds, copies: int, tokens: int, unsure: Unsure,
) -> list[Rollout]:
    """As many leaves as attempts, grown in rounds: in each the next turn of all dialogues, their forks included.

    `count` says, of the doubts of the first `trunks` dialogues, how many there are.
    """
    left, leaves, known = list(attempts), list[Rollout](), list[tuple[Rollout, list[float]]]()

    async def start(many: int) -> None:
        nonlocal left
        made = await sample(problem, left[:many], world, pace, place)
        left = left[many:]
        learn(made)

    def learn(made: Sequence[Rollout]) -> None:
        leaves.extend(made)
        long = [r for r in made if len(r.turns) > 1 and r.segments[-1].written]
        if left and long:
            each = zip(long, unsure(long, world, place), strict=True)
            known.extend((r, doubts(r, entropy, tokens, log(world.learner.vocabulary))) for r, entropy in each)

    await start(trunks)
    if count is not None and left:
        await start(max(count([each for _, each in known]) - trunks, 0))
    turn = row = 0
    while left and (turn := turn + 1) < max((len(each) for _, each in known), default=0):
        jobs: list[tuple[Rollout, list[int]]] = []
        for trunk, each in known:
            if left and _shared(trunk) < turn < len(each):
                address = (place.purpose, place.wave, place.slot, trunk.attempt, turn)
                draw = chance.generator(place.seed, chance.Purpose.FORK, *address).random()
                if draw < odds(each[turn] - each[0], row):
                    jobs.append((trunk, left[:copies]))
                    left = left[copies:]
        row = row + 1 if jobs else 0
        made = await together(*(
            fork(trunk, turn_starts(trunk.segments[-1])[turn], mine, world, pace, place) for trunk, mine in jobs
        ))
        learn([leaf for each in made for leaf in each])
    await start(len(left))
    return sorted(leaves, key=lambda r: r.attempt)


def doubts(rollout: Rollout, entropy: ndarray, tokens: int, unit: float) -> list[float]:
    """The sum of the entropies of the first tokens of each turn, in units of `unit`. -> (turns,)"""
    text = rollout.segments[-1]
    each = (entropy[np.flatnonzero(text.turn == t)[:tokens]] for t in sorted(turn_starts(text)))
    return [float(x.sum()) / unit for x in each]


def _shared(rollout: Rollout) -> int:
    """The last turn that is not forked again: the first of a dialogue, and that in which a fork begins."""
    return 0 if rollout.parent is None else int(rollout.segments[-1].turn[rollout.parent[1]])


@trait("compares_siblings", "by_group_spread")
@trait("by_token", hard=True)
def advantage(
    batch: Batch, ledger: Any, *, inner: Advantage = grpo.advantage, hard: bool = False
) -> Tensor:  # -> (N, T)
    credit = inner(batch, ledger)
    return shared_mean(credit, batch) if hard else credit


def shared_mean(credit: Tensor, batch: Batch) -> Tensor:
    """The mean credit of all leaves that share a token, at that token in each of them. Of rollouts of one row. -> (N,
    T)
    """
    owner = torch.arange(credit.numel()).reshape(credit.shape)
    at = {(int(g), r.attempt): i for i, (g, r) in enumerate(zip(batch.group, _rollouts(batch), strict=True))}
    done = set[int]()

    def fill(i: int, r: Rollout) -> None:
        parent = None if r.parent is None else at.get((int(batch.group[i]), r.parent[0]))
        if i not in done and r.parent is not None and parent is not None:
            done.add(i)
            fill(parent, _rollouts(batch)[parent])
            owner[i, : r.parent[1]] = owner[parent, : r.parent[1]]

    for i, r in enumerate(_rollouts(batch)):
        fill(i, r)
    flat, here = owner[batch.mask], credit[batch.mask]
    total = torch.zeros(credit.numel(), dtype=credit.dtype).index_add(0, flat, here)
    count = torch.bincount(flat, minlength=credit.numel()).clamp(min=1)
    out = torch.zeros_like(credit)
    out[batch.mask] = (total / count)[flat]
    return out


def _rollouts(batch: Batch) -> list[Rollout]:
    return [r for g in batch.groups for r in g.rollouts]


def recipe(**changes: Any) -> Recipe:
    # The paper's 8 dialogues of 16, a beam of 2, and the probabilities of its code, in which entropies are summed over
    # the first tokens of a turn. They are of the ten likeliest tokens there, while it samples; here they are of all,
    # the learner scores whole dialogues, which is charged, and the forks are decided afterwards, round by round, which
    # makes the same tree. advantage.hard gives shared tokens the mean of their leaves; with a sum over tokens the
    # gradient is the same. Left out: −1 for an invalid form, and 0.1 more for a right answer that used two tools. Rule
    # 1 took the mean of the entropies, over 11.93 for every model, so that it forked with a probability of nearly 0.5.
    tree = partial(play, trunks=8, copies=1, base=0.5, gain=0.2, tokens=20)
    credit = partial(advantage, inner=grpo.advantage, hard=False)
    turns = partial(paces.warmed, max_turns=10)
    return grpo.recipe(name="arpo", play=tree, advantage=credit, pace=turns, rollouts=16).but(**changes)
