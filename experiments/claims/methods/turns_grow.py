"""ScalingInter-RL, arXiv:2509.08755, with stages of 15 updates in which the turns grow from 5 to 16."""

from functools import partial
from typing import Any

from isocost.methods import Card, scalinginter
from isocost.seams import Recipe

CARD = Card("ScalingInter, 5 to 16 turns", "2509.08755", 2025, "scalinginter", "A horizon that grows beats fixed ones.")


def recipe(**changes: Any) -> Recipe:
    stages = partial(scalinginter.pace, stages=(5, 10, 16), each=15, max_turns=16)
    return scalinginter.recipe(name="turns_grow", pace=stages).but(**changes)
