"""DART: fewer attempts and shorter limits at tasks that succeed, remembered successes, and only uncertain turns.

    n_i ∝ 1 − s p_i,  p_i the success rate;  at most the turns of the longest success, and a few more
    a group without a success gets one that is remembered;   the ⌈0.8 T⌉ turns of highest mean entropy are trained on
    L = min(π_old / π_sampler, C) · max(−A ρ, −A clip(ρ, 1 − 0.2, 1 + 0.28))     Li et al. 2025, arXiv:2509.23866
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.credit import credited
from isocost.methods import Card, drgrpo, gigpo, grpo
from isocost.methods.ettrl import enrich, reads_entropy
from isocost.ops import spread_turns, turns_of
from isocost.parts import improve as improving
from isocost.parts import loss, pace
from isocost.parts.reward import verified
from isocost.parts.weight import token_mean
from isocost.seams import Attempts, Improve, Recipe, Weight
from isocost.traits import bounds, gives, requires, trait
from isocost.types import Group, Problem, Rollout
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger, Seen

CARD = Card("DART", "2509.23866", 2025, "grpo", "Curated dialogues teach more at equal environment steps.")
TOOK, POOL = "took", "successes"       # the note with a rollout's turns; the ledger keeps successes under this name
NUMBER = 1 << 15      # of a remembered attempt: after those of any group that it may join
Longest = dict[tuple[str, str], float]

needs = gigpo.needs


@trait("tracks_pass_rate", "favours_rare")
@bounds(shrink="[0, 1]", least="[1, inf)")
def allocate(
    problems: Sequence[Problem], ledger: Ledger, total: int, *, shrink: float = 0.75, least: int = 2
) -> list[int]:
    """Attempts in proportion to 1 − `shrink` · success rate, `least` or more each as far as there are enough."""
    rates = [ledger.of(p.id, p.variant).mean for p in problems]
    least = min(least, total // len(problems))
    spare, shares = total - least * len(problems), np.array([1 - shrink * min(max(r, 0.0), 1.0) for r in rates])
    exact = spare * shares / shares.sum() if shares.sum() > 0 else np.full(len(problems), spare / len(problems))
    counts = [least + floor(x + 1e-9) for x in exact]
    first = np.argsort(-(exact - np.floor(exact + 1e-9)), kind="stable")
    for i in first[: total - sum(counts)].tolist():
        counts[i] += 1
    return counts


@requires(TOOK, at="reward", why="it limits dialogues by the turns of earlier successes, which dart.reward notes")
@trait("needs_turns")
@bounds(slack="[0, inf)")
async def schedule(
    problem: Problem, attempts: Sequence[int], play: Attempts, ledger: Ledger, *, slack: int = 2
) -> list[Rollout]:
    """All at once, with at most the turns of the problem's longest success and `slack` more; before one, all turns."""
    longest = ledger.fold(_longest, Longest()).get((problem.id, problem.variant))
    turns = play.pace.max_turns if longest is None else min(int(longest) + slack, play.pace.max_turns)
    return await replace(play, pace=replace(play.pace, max_turns=max(turns, 1)))(problem, attempts)


@gives(TOOK)
async def reward(group: Group, world: World) -> Group:
    """The verifier's score; the note `took` is the number of turns."""
    group = await verified(group, world)
    return group.of(r.but(notes={**r.notes, TOOK: float(len(r.turns))}) for r in group.rollouts)


def _longest(known: Longest, seen: Sequence[Seen]) -> Longest:
    for s in seen:
        for value, took in zip(s.rewards, s.notes.get(TOOK, ()), strict=False):
            if value > 0 and took is not None:
                known[s.id, s.variant] = max(known.get((s.id, s.variant), 0.0), took)
    return known


@reads_entropy
@bounds(share="(0, 1]")
def weight(batch: Batch, *, inner: Weight = token_mean, share: float = 0.8) -> Tensor:
    """Any average, over the share of a rollout's turns, rounded up, with the highest mean entropy. -> (N, T)"""
    return inner(batch.but(mask=batch.mask & (uncertain(batch, share) > 0)))


def uncertain(batch: Batch, share: float) -> Tensor:
    """1 for the tokens of the chosen turns; of equal ones the first. -> (N, T)"""
    turns = turns_of(batch)
    row = turns.row
    here = (batch.mask[row] & (batch.turn[row] == turns.number[:, None])).to(batch.extra["entropy"])
    mean = ((batch.extra["entropy"][row] * here).sum(-1) / here.sum(-1)).tolist()
    chosen, owner = torch.zeros(len(mean), dtype=batch.reward.dtype), turns.rollout.tolist()
    for one in sorted(set(owner)):
        own = [i for i, r in enumerate(owner) if r == one]
        best = sorted(own, key=lambda i: (-mean[i], i))[: ceil(share * len(own))]
        chosen[best] = 1.0
    return spread_turns(chosen, turns, batch)


@bounds(room="[0, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, room: int = 512, inner: Improve = improving.policy
) -> dict[str, float]:
    """Any improvement; a group without a success gets the problem's remembered one (DART, arXiv:2509.23866).

    The ledger keeps the latest success of each problem, at most `room`. A remembered one has the origin "replay", costs
    training tokens alone, and its ratio is to the sampler's log-probs. The batch is computed again with it.
    """
    known = {(g.problem.id, g.problem.variant): g for g in ledger.kept[POOL]}
    filled = tuple(_filled(g, known) for g in batch.groups)
    for g in batch.groups:
        if best := [r for r in g.rollouts if _right(r) and r.origin == "policy"]:
            one = g.of([best[-1].but(origin="replay", attempt=NUMBER)])
            known.pop((g.problem.id, g.problem.variant), None)
            known[g.problem.id, g.problem.variant] = one
    ledger.kept[POOL] = list(known.values())[max(len(known) - room, 0) :]
    added = sum(f.size - g.size for f, g in zip(filled, batch.groups, strict=True))
    if added:
        batch = credited(filled, recipe, world, ledger)
    return {**inner(batch, recipe, world, ledger), "remembered": float(added)}




def _right(rollout: Rollout) -> bool:
    return rollout.score is not None and rollout.score.value > 0


def _filled(group: Group, known: dict[tuple[str, str], Group]) -> Group:
    if any(map(_right, group.rollouts)) or (old := known.get((group.problem.id, group.problem.variant))) is None:
        return group
    return group.of([*group.rollouts, *old.rollouts])


def recipe(**changes: Any) -> Recipe:
    # 80 % of the turns and the four kinds of curation are the paper's; how fast counts shrink, the slack of two turns
    # and C = 2 are not stated there. Credit is without GRPO's spread, which would favour rare successes once more than
    # the counts do. Left out: its rollout service, staggered weights and scheduling by dialogues, which are properties
    # of a cluster.
    corrected = partial(loss.corrected, inner=partial(loss.clipped, low=0.2, high=0.28), cap=2.0)
    return grpo.recipe(
        name="dart", allocate=partial(allocate, shrink=0.75, least=2), schedule=partial(schedule, slack=2),
        reward=reward,
        enrich=(enrich,), weight=partial(weight, inner=token_mean, share=0.8), loss=corrected,
        advantage=drgrpo.advantage, improve=partial(improve, room=512), pace=partial(pace.warmed, max_turns=30),
    ).but(**changes)
