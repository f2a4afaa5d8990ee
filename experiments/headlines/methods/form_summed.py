"""GRPO on the sum of two rewards, 1 for a right attempt and 1 for one in form: what GDPO is held against."""

from functools import partial
from typing import Any

from isocost.methods import Card, grpo, timemaster
from isocost.seams import Recipe

CARD = Card("GRPO, right plus form", "2402.03300", 2024, "grpo", "Two rewards are added, then compared.")


def recipe(**changes: Any) -> Recipe:
    return grpo.recipe(name="form_summed", reward=partial(timemaster.reward, right=1.0, form=1.0)).but(**changes)
