"""WebAgent-R1, arXiv:2505.16421, with a placeholder that the model of the pages can read: a space."""

from functools import partial
from typing import Any

from isocost.methods import Card, webagentr1
from isocost.parts import view
from isocost.parts.play import viewed
from isocost.seams import Recipe

CARD = Card("WebAgent-R1, a space for a page", "2505.16421", 2025, "webagentr1", "Placeholders cost no success.")


def recipe(**changes: Any) -> Recipe:
    short = partial(viewed, view=partial(view.placeholders, keep=1, words=" "))
    return webagentr1.recipe(name="webagentr1_pages", play=short).but(**changes)
