"""TimeMaster: a reward of two parts, the right class and the required form, and GRPO per token.

    r = 0.9 · right + 0.1 · form          A_i = (r_i − mean r) / (std r + ε),   L averaged over all tokens
    Zhang et al. 2025, arXiv:2506.13705
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.methods.mirothinker import malformed
from isocost.parts import weight
from isocost.parts.reward import verified
from isocost.seams import Recipe
from isocost.traits import bounds, trait
from isocost.types import Group, Rollout, Stop
from isocost.world import World

CARD = Card("TimeMaster", "2506.13705", 2025, "grpo", "A small share for the form makes answers readable at no cost.")


@trait("not_whether_right")
@bounds(right="[0, 1]", form="[0, 1]")
async def reward(
    group: Group, world: World, *, right: float = 0.9, form: float = 0.1, pattern: str = ""
) -> Group:
    """Weighted: the verifier's score, and 1 for an attempt in the required form. Parts: `right`, `form`.

    The form: the attempt ended by itself, no turn was malformed, and the whole of what the verifier reads matches
    `pattern`, a regular expression, if given (TimeMaster, arXiv:2506.13705).
    """
    group = await verified(group, world)
    return group.of(_summed(r, right, form, pattern) for r in group.rollouts)


def _summed(rollout: Rollout, right: float, form: float, pattern: str) -> Rollout:
    if (score := rollout.score) is None:
        return rollout
    fits = not pattern or re.fullmatch(pattern, rollout.final, re.DOTALL) is not None
    well = float(fits and rollout.stop is Stop.DONE and not malformed(rollout))
    parts = {"right": score.value, "form": well}
    return rollout.scored(replace(score, value=right * score.value + form * well, parts=parts))


def recipe(**changes: Any) -> Recipe:
    # The paper's form is <think>..</think><class>..</class>: reward.pattern. Left out: SFT before RL, the optional
    # third part (a judge of the extension), and the pictures of time series.
    return grpo.recipe(
        name="timemaster", reward=partial(reward, right=0.9, form=0.1), weight=weight.token_mean
    ).but(**changes)
