"""DARS, weighted by hardness: the rarer a right answer, the larger the share of rollouts a problem gets.

    ΔN = ⌈(2(1 − a) · N/2 − N S(a)) / S(a)⌉ for a < ½,  S(a) = 2a(1 − a)          Yang et al. 2025, arXiv:2508.13755
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, dars
from isocost.seams import Recipe

CARD = Card("DARS, hardness weighted", "2508.13755", 2025, "dars", "Hard problems gain more than by equal treatment.")


def recipe(**changes: Any) -> Recipe:
    more = partial(dars.allocate, first=0.5, most=64, hard=True)
    return dars.recipe(name="darshw", allocate=more).but(**changes)
