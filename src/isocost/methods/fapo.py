"""FAPO: pay a right answer with a wrong step less than a clean one, so that it helps at first and not later.

    r = 1 right and clean;  1 − λ right and flawed;  −1 wrong.      λ = 1: A_flawed ∝ −(p_clean − p_wrong)
    positive while wrong answers are more than clean ones, then negative     Ding et al. 2025, arXiv:2510.22543
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts.reward import judged, verified
from isocost.scorers import stepped
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout, Score
from isocost.world import World

CARD = Card("FAPO", "2510.22543", 2025, "grpo", "Fewer flawed positives, and more right answers, in as many tokens.",
            acts="flawed")


@trait("not_whether_right")
@bounds(less="[0, 2]", misses="[0, 1]", flags="[0, 1]")
async def reward(
    group: Group, world: World, *, judge: str = "", less: float = 1.0, misses: float = 0.0, flags: float = 0.0,
) -> Group:
    """1 for a right answer, 1 - `less` for one that the scorer `judge` finds flawed, -1 for a wrong one (FAPO,
    arXiv:2510.22543).

    The judge is asked about right answers only: below 1/2 is flawed. Without a name it is the checker of every step and
    of the answer that built-in families have; other problems then have no flawed answers. `misses` and `flags` are its
    errors (`isocost.scorers.erring`). An answer without a score by it counts as clean. The note `flawed` is 1 where one
    was found; the part `right` is the verifier's score.
    """
    group = await verified(group, world)
    right = [r for r in group.rollouts if r.score is not None and r.score.value > 0]
    judge = judge or ("steps:by=min" if stepped(group.problem) else "")
    errs = f"{',' if ':' in judge else ':'}misses={misses},flags={flags}" if misses or flags else ""
    said = await judged(group.problem, right, world, judge + errs) if right and judge else {}
    return group.of(_paid(r, said.get(r.attempt), less) for r in group.rollouts)


def _paid(rollout: Rollout, said: float | None, less: float) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    flawed = said is not None and said < 0.5
    value = -1.0 if score.value <= 0 else 1.0 - less if flawed else 1.0
    noted = rollout.but(notes={**rollout.notes, "flawed": float(flawed)})
    return noted.scored(Score(value, {"right": score.value}))


def recipe(**changes: Any) -> Recipe:
    # The paper's judge is a model of 4B that it trains; here it is any scorer. The policy update is that of the parent.
    three = partial(reward, judge="", less=1.0, misses=0.0, flags=0.0)
    return grpo.recipe(name="fapo", reward=three).but(**changes)
