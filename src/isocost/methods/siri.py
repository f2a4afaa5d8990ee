"""SIRI: squeeze the room for answers until they are terse, give it back, and go round again.

    L(t) = (L_max + L_min)/2 + (L_max − L_min)/2 · cos(2πt/T)          r = 1 if clip(y, L(t)) holds the right answer
    "stair": L_min for t mod T < T/2, else L_max;  "stair_cosine": the cosine, with stays of T/4 at either end
    Wen et al. 2025, arXiv:2509.25176
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, dapo
from isocost.parts import pace, reward
from isocost.seams import Recipe

CARD = Card("SIRI", "2509.25176", 2025, "dapo", "After two cycles answers are shorter at equal accuracy.")


def recipe(**changes: Any) -> Recipe:
    # L_max is the run's max_tokens, L_min half of it, as 8192 is of 16384. No fine for length: the cut is the fine.
    # 640 steps a cycle are the paper's; answers followed the schedule by 100 to 200, so a short run wants fewer.
    return dapo.recipe(
        name="siri", reward=reward.verified, pace=partial(pace.cycled, shape="cosine", period=640, shortest=0.5)
    ).but(**changes)
