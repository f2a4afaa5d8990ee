"""TTI: let dialogues grow longer as training goes on, so that acting is learnt before exploring is.

    h_i = min(h_min · i, h_max), i = 1, 2, ..;   with rule "plus" h_i = min(h_min + c · i, h_max)
    Shen et al. 2025, "Thinking vs. doing", arXiv:2506.07976
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, fbc
from isocost.parts import pace
from isocost.seams import Recipe

CARD = Card("TTI", "2506.07976", 2025, "fbc", "A horizon that grows beats short and long fixed ones.")


def recipe(**changes: Any) -> Recipe:
    # 10, 20, 30, 30 is the paper's better rule; its script has listed=(10, 20, 20, 30). An iteration of the paper is
    # 512 trajectories, here `each` steps. This pace over GRPO, listed=(10, 20, 30), each=100, is ScalingInter-RL. What
    # max_turns says is also what evaluations have: success under the limit of the day is not success.
    return fbc.recipe(name="tti", pace=partial(pace.widened, rule="times", first=10, max_turns=30)).but(**changes)
