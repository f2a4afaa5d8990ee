"""MRT: think on only where that beats stopping here and answering.

    A_i = r_i − J(μ|c),   J(μ|c) the mean score of siblings that stop at the prefix c and answer
    the progress of what follows c;  over episodes Σ_j J(μ|z_≤j) − J(μ|z_<j) = J(μ|z) − J(μ|x)
    a group: a scout, cut at a random episode into c; some who stop there; some who go on from c, alone trained on
    Qu et al. 2025, arXiv:2503.07572
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from isocost.methods import Card, grpo
from isocost.ops import EPS, spread
from isocost.parts import forced
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import gives, requires
from isocost.types import Batch, Group
from isocost.world import World

CARD = Card("MRT", "2503.07572", 2025, "grpo", "Equal accuracy in fewer tokens: every block must raise the chance.")


@gives("the worth of stopping")
async def reward(group: Group, world: World) -> Group:
    """What the verifier says; for those who go on, part `stopped` is the mean of those who stopped: J(μ|c)."""
    group = await verified(group, world)
    stops = [r.score.value for r in group.rollouts if r.cohort == forced.STOPPED and r.score is not None]
    if not stops:
        return group
    mean = sum(stops) / len(stops)
    return group.of(
        r if r.score is None or r.cohort else r.scored(replace(r.score, parts={"stopped": mean, **r.score.parts}))
        for r in group.rollouts
    )


def select(group: Group, ledger: object) -> Group | None:
    # The loss is on continuations alone: the scout and those who stopped have done their part.
    on = [r for r in group.rollouts if r.score is not None and "stopped" in r.score.parts]
    return group.of(on) if on else None


@forced.reads_stops
@requires(
    "the worth of stopping", at="reward",
    why="it measures from siblings that stopped at the same prefix, whose mean mrt.reward notes",
)
def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    # As released: the stop replaces the siblings' mean, and there is no spread. α, the bonus's weight, is then a scale.
    scores = [r.score for g in batch.groups for r in g.rollouts if r.score is not None]
    lead = batch.reward.new_tensor([s.value - s.parts.get("stopped", s.value) for s in scores])
    return spread(lead.where(lead.abs() > EPS * batch.reward.abs(), 0.0), batch)    # a mean's rounding is no lead


def recipe(**changes: Any) -> Recipe:
    # A chat model needs play.words, such as forced.TIME_IS_UP: without, to stop is only to go on with less room.
    play = partial(forced.halted, stopping=0.5)
    return grpo.recipe(
        name="mrt", play=play, reward=reward, select=select, advantage=advantage, rollouts=16
    ).but(**changes)
