"""GUI-G1: rewards for a box's middle, overlap and size; hard targets count more, and no length or spread divides.

    r = 1{middle in target} + 0.25 IoU + 0.125 · 4 / Σ_e 1/x_e,   x_e = 1 − |difference of edge e| / side
    A_i = w (r_i − mean r),   w = 2 (1 − √(target / screen))
    L = (1/R) Σ_i (1/64) Σ_t max(−A ρ, −A clip(ρ, 1 ± 0.2))
    Zhou et al. 2025, arXiv:2505.15810
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import sqrt
from typing import Any

from torch import Tensor

from isocost.batch import Batch
from isocost.methods import FAILS, HOLDS, Card, drgrpo, grpo
from isocost.ops import spread
from isocost.parts import boxes
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Problem, Rollout
from isocost.world import World

CARD = Card("GUI-G1", "2505.15810", 2025, "drgrpo", "Rewards for hit, overlap and size together keep boxes honest.")


@trait("not_whether_right")
@bounds(overlap="[0, inf)", size="[0, inf)")
async def reward(group: Group, world: World, *, overlap: float = 0.25, size: float = 0.125) -> Group:
    """The verifier's score, plus shares of the overlap with `meta["box"]` and of the agreement of the edges.

    Parts: `right`, `overlap`, `size`. Problems without a box have the verifier's score (GUI-G1, arXiv:2505.15810).
    """
    group = await verified(group, world)
    target = group.problem.meta.get("box")
    if target is None:
        return group
    return group.of(_measured(r, tuple(target), group.problem.meta["size"], overlap, size) for r in group.rollouts)


def _measured(rollout: Rollout, target: boxes.Box, side: int, overlap: float, size: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    box = boxes.parsed(rollout.final)
    both = boxes.overlap(box, target) if box else 0.0
    alike = boxes.edges_agree(box, target, side) if box else 0.0
    parts = {"right": score.value, "overlap": both, "size": alike}
    return rollout.scored(replace(score, value=score.value + overlap * both + size * alike, parts=parts))


def difficulty(problem: Problem) -> float:
    """Above 1 for targets of less than a quarter of the screen, at most 2; 1 for a problem without a box."""
    box, side = problem.meta.get("box"), problem.meta.get("size", 1)
    return 1.0 if box is None else 2 * (1 - sqrt(boxes.area(tuple(box))) / side)


@trait("compares_siblings")
def advantage(batch: Batch, ledger: object) -> Tensor:  # -> (N, T)
    hard = batch.reward.new_tensor([difficulty(g.problem) for g in batch.groups for _ in range(g.size)])
    return spread(hard, batch) * drgrpo.advantage(batch, ledger)


def needs(profile: Mapping[str, Any]) -> tuple[str, str]:
    """Targets that are boxes; otherwise it is Dr. GRPO."""
    if "box" not in profile.get("columns", ()):
        return FAILS, "problems have no `box`: without one it is drgrpo"
    state, why = grpo.needs(profile)
    return state, why if state != HOLDS else f"every problem has a box; {why}"


def recipe(**changes: Any) -> Recipe:
    # The weight of difficulty is the paper's idea in a form of our own: it gives relative sizes, not the formula. Its
    # answers are coordinates of pixels without thoughts, 128 tokens at most, and the constant 64 is its length.
    # Left out: its borders are of pixels, by the width and the height of each screen; here a box is of whole cells of a
    # square one, borders included.
    return drgrpo.recipe(
        name="guig1", reward=partial(reward, overlap=0.25, size=0.125), advantage=advantage,
        weight=partial(drgrpo.weight, tokens=64),
    ).but(**changes)
