"""RC with the paper's summary replay buffer: rounds go on from summaries of earlier epochs.

    s_0 ~ buffer(x), empty in the first epoch;   after T rounds the new s_1 .. s_T replace x's older summaries
    Wu et al. 2026, "Reasoning Cache", arXiv:2602.03773
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, rc
from isocost.parts.play import sample
from isocost.seams import Recipe

CARD = Card("Reasoning Cache with its buffer", "2602.03773", 2026, "rc", "The horizon grows with every epoch.")


def recipe(**changes: Any) -> Recipe:
    # The schedule plays the rounds, so that it may read the buffer; the play samples plainly.
    rounds = partial(rc.buffered, rounds=3, states=2)
    return rc.recipe(name="rc_buffered", play=sample, schedule=rounds).but(**changes)
