"""TSPO: learn which frames to look at, from whether the answer is right and how many of the frames show the event.

    r = right + located,   located = frames named that lie in the event / frames named
    A_i = (r_i − mean r) / (std r + 1e-4)
    L = −(1/R) Σ_i A_i (1/k_i) Σ_{t ≤ k_i} log π(y_it),   y_i1 .. y_ik the tokens of the turns that name frames
    Tang et al. 2025, arXiv:2508.04369
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from isocost.batch import Batch
from isocost.methods import FAILS, HOLDS, Card, gigpo, grpo, reinforce
from isocost.ops import lengths, spread
from isocost.parts import pace
from isocost.parts.intervals import Interval, numbered
from isocost.parts.reward import verified
from isocost.parts.weight import count
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout
from isocost.world import World

CARD = Card("TSPO", "2508.04369", 2025, "grpo", "Frames that a trained policy chooses answer more than even ones.")


def inside(named: str, event: Interval) -> float:
    """The share of the frames, a letter each, that lie in an event; 0 of none."""
    return sum(event[0] <= k < event[1] for k in map(numbered, named)) / max(len(named), 1)


@trait("not_whether_right")
@bounds(located="[0, inf)")
async def reward(group: Group, world: World, *, located: float = 1.0) -> Group:
    """The verifier's score, and `located` times the share of the frames named that lie in `meta["event"]`.

    The frames are the second word of what the verifier reads, a letter each. Problems without an event have the
    verifier's score (TSPO, arXiv:2508.04369). Parts: `right`, `located`.
    """
    group = await verified(group, world)
    event = group.problem.meta.get("event")
    return group if event is None else group.of(_summed(r, event, located) for r in group.rollouts)


def _summed(rollout: Rollout, event: Interval, located: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    share = inside(rollout.final.partition(" ")[2], event)
    parts = {"right": score.value, "located": share}
    return rollout.scored(replace(score, value=score.value + located * share, parts=parts))


@trait("needs_turns")
def weight(batch: Batch) -> Tensor:
    """1 / (R k) for the k tokens of a rollout's turns before its last, 0 for the answer: -> (N, T).

    A rollout of one turn has that one. So on one question and one answer it is `weight.rollout_mean`.
    """
    last = batch.turn.new_zeros(len(batch.reward)).scatter_reduce(0, batch.rollout, batch.turn.amax(-1), "amax")
    names = batch.mask & (batch.turn < last.clamp(min=1)[batch.rollout, None])
    length = lengths(batch.but(mask=names))
    return torch.where(names, spread(1 / (length.clamp(min=1) * count(length)), batch), 0.0)


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Dialogues about problems that say where the event is."""
    state, why = gigpo.needs(profile)
    if state == HOLDS and "event" not in profile.get("columns", ()):
        return FAILS, "problems have no `event`: the place of a frame earns nothing"
    return state, why


def recipe(**changes: Any) -> Recipe:
    # The choice of frames is a turn of the policy. So its log-probability is that of the tokens which name them, one
    # after the other, where the paper's agent draws all frames at once by Gumbel top-k over scores of its own. The
    # answer's tokens are not trained, as in the public code, whose answering model is frozen; here both are one model,
    # so the answer is not frozen. That code's exp(l − sg l) has the gradient of l. Left out: video, the agent's scores
    # from image and text features, and its two kinds of training data.
    return grpo.recipe(
        name="tspo", reward=partial(reward, located=1.0), advantage=partial(grpo.advantage, eps=1e-4), weight=weight,
        loss=reinforce.loss, pace=partial(pace.warmed, max_turns=3),
    ).but(**changes)
