"""Uniform: every context with the same chance. What other teachers are compared with.

    c ~ U[0, 1]^P                 "Random" of TeachMyAgent, arXiv:2103.09815
"""

from __future__ import annotations

import numpy as np

from isocost.control.teachers import Lesson, Lessons
from isocost.found import Card

CARD = Card("Uniform", "2103.09815", 2021, None, "Tasks at random serve as well as chosen ones.")


def choose(past: Lessons, rng: np.random.Generator) -> Lesson:
    """Any context."""
    return past.anywhere(rng)
