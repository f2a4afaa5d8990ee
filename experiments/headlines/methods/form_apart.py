"""GDPO, arXiv:2601.05242, with two rewards of an agent: 1 for a right attempt and 1 for one in form."""

from functools import partial
from typing import Any

from isocost.methods import Card, gdpo, timemaster
from isocost.seams import Recipe

CARD = Card("GDPO, right and form", "2601.05242", 2026, "gdpo", "Two rewards are compared, then added.")


def recipe(**changes: Any) -> Recipe:
    apart = partial(gdpo.advantage, parts=("right", "form"))
    paid = partial(timemaster.reward, right=1.0, form=1.0)
    return gdpo.recipe(name="form_apart", advantage=apart, reward=paid).but(**changes)
