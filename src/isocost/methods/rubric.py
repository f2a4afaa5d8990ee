"""Rubrics of Baichuan-M2: pay the weighted criteria that an answer meets, and brevity only where it meets enough.

    r_i = Σ_j w_j 1{answer i meets j} / Σ_{w_j > 0} w_j,   + λ (1 − |y_i| / max |y|) where that is above a threshold
    A_i = r_i − mean r;  clip 1 − 0.2, 1 + 0.28;  tokens averaged over a constant;  no KL
    Baichuan 2025, "Baichuan-M2", arXiv:2509.02208
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

from isocost.errors import UserError
from isocost.methods import Card, drgrpo
from isocost.parts.loss import clipped
from isocost.parts.reward import judged, verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Score
from isocost.world import World

CARD = Card("Rubrics of Baichuan-M2", "2509.02208", 2025, "drgrpo", "Graded criteria raise what one rule does not see.")
RIGHT = "right"     # the criterion that the verifier decides


@trait("not_whether_right")
@bounds(brief="[0, inf)", least="[0, 1]")
async def reward(
    group: Group, world: World, *, criteria: Sequence[str] = ("1*right",), brief: float = 0.0, least: float = 0.8
) -> Group:
    """The weighted share of `criteria` that each attempt meets, plus up to `brief` for brevity if it is above `least`.

    A criterion is WEIGHT*SCORER, such as "2*steps:by=min" or "-1*my_file.py:rude", and is met from a score of 1/2 on;
    "right" is the verifier. A negative weight is a penalty; the maximum without brevity is 1. Lengths are
    compared with the longest attempt above `least`. Parts: `right`, `rubric` and `brief`. An attempt that one of the
    scorers does not score gets no reward. Raises UserError for criteria that cannot be read, or none of a positive
    weight.
    """
    asked = [_criterion(c) for c in ([criteria] if isinstance(criteria, str) else criteria)]
    if not (best := sum(w for w, _ in asked if w > 0)):
        raise UserError(f"reward.criteria is {criteria!r}; expected at least one of a positive weight")
    group = await verified(group, world)
    own = [r for r in group.rollouts if r.score is not None]
    said = [{r.attempt: r.score.value if r.score else None for r in own} if scorer == RIGHT
            else await judged(group.problem, own, world, scorer) for _, scorer in asked]
    met = {r.attempt: [(w, x[r.attempt]) for (w, _), x in zip(asked, said, strict=True)] for r in own}
    points = {a: sum(w for w, x in each if x is not None and x >= 0.5) / best
              for a, each in met.items() if all(x is not None for _, x in each)}
    length = {r.attempt: k for r, k in zip(group.rollouts, group.lengths, strict=True)
              if points.get(r.attempt, 0.0) > least}
    longest = max(length.values(), default=1)
    scored = []
    for r in group.rollouts:
        if r.score is None or r.attempt not in points:
            scored.append(r.scored(None))
            continue
        spared = brief * (1 - length.get(r.attempt, longest) / longest)
        parts = {"right": r.score.value, "rubric": points[r.attempt], "brief": spared}
        scored.append(r.scored(Score(points[r.attempt] + spared, parts)))
    return group.of(scored)


def _criterion(said: str) -> tuple[float, str]:
    found = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?)\s*\*\s*(\S.*)", said)
    if not found:
        raise UserError(f"reward.criteria has {said!r}; expected WEIGHT*SCORER, such as 2*steps")
    return float(found[1]), found[2].strip()


def recipe(**changes: Any) -> Recipe:
    # The threshold and the weight of brevity are not published in numbers that carry over, so brevity is off. Left out:
    # the model that writes a rubric for each case (here one rubric serves all problems, and "right" alone is the
    # default), the patient simulator with its dialogues, and the stages of training by rule and by rubric before these.
    graded = partial(reward, criteria=("1*right",), brief=0.0, least=0.8)
    return drgrpo.recipe(name="rubric", reward=graded, loss=partial(clipped, low=0.2, high=0.28)).but(**changes)
