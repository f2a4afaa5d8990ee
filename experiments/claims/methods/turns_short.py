"""ScalingInter-RL, arXiv:2509.08755, with stages of 15 updates in which the turns are 5."""

from functools import partial
from typing import Any

from isocost.methods import Card, scalinginter
from isocost.seams import Recipe

CARD = Card("ScalingInter, turns are 5", "2509.08755", 2025, "scalinginter", "A horizon that grows beats fixed ones.")


def recipe(**changes: Any) -> Recipe:
    stages = partial(scalinginter.pace, stages=(5,), each=15, max_turns=16)
    return scalinginter.recipe(name="turns_short", pace=stages).but(**changes)
