"""ChipSeek-R1: pay what can be read, then what is right, and of that what is cheaper than the reference.

    r = 0 if the answer has no form;  s if it has, and is wrong;  f + (1 − f) clip((c_0 − c) / c_0, 0, 1) if right
    c the cost of the answer, c_0 that of the reference;   0 ≤ s ≤ f;   advantages of GRPO
    Chen et al. 2025, "ChipSeek-R1", arXiv:2507.04736
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.errors import UserError
from isocost.methods import Card, grpo
from isocost.parts.reward import verified
from isocost.scorers import answer_of, checks_of
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout, Score
from isocost.world import World

CARD = Card("ChipSeek-R1", "2507.04736", 2025, "grpo", "Right answers become cheaper than the references.",
            acts="saved")


@trait("not_whether_right")
@bounds(syntax="[0, 1]", function="[0, 1]")
async def reward(group: Group, world: World, *, syntax: float = 0.1, function: float = 0.5) -> Group:
    """The reward of the last gate that an answer passes: form `syntax`, value `function`, cost up to 1 (ChipSeek-R1).

    Costs are those of the problems `expressions`; elsewhere a right answer saves nothing. The note `saved` is the
    share of the reference's cost that a right answer saves; parts: `right`, the verifier's score, and `saved`. Raises
    UserError if `syntax` is above `function`.
    """
    if syntax > function:
        raise UserError(f"reward.syntax={syntax} is above reward.function={function}, so a wrong answer would earn "
                        "more than a right one: lower it")
    made = await verified(group, world)
    return made.of(_paid(r, syntax, function) for r in made.rollouts)


def _paid(rollout: Rollout, syntax: float, function: float) -> Rollout:
    if rollout.score is None:
        return rollout
    right, said = rollout.score.value, checks_of(rollout.problem, rollout.final)
    form = said.get("parses", float(answer_of(rollout.problem, rollout.final) is not None))
    saved = said.get("saved", 0.0) if right > 0 else 0.0
    value = (function + (1 - function) * saved) if right > 0 else syntax * form
    noted = rollout.but(notes={**rollout.notes, "saved": saved})
    return noted.scored(Score(value, {"right": right, "saved": saved}))


def recipe(**changes: Any) -> Recipe:
    # The paper's gates are those of a chip's description: form, syntax, simulation, synthesis, and then power, time and
    # area; here they are form, value and one cost, and the weights 0.1 and 0.5 are ours, as the paper's are not known
    # here. Left out: the imitation of worked designs before RL.
    gates = partial(reward, syntax=0.1, function=0.5)
    return grpo.recipe(name="chipseek", reward=gates).but(**changes)
