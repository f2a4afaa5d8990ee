"""VADE: believe something of every problem's pass rate, and pose those from which the most is to be learned.

    p_i ~ Beta(α_0 + a_i, β_0 + b_i)          top B of p_i (1 − p_i)²
    (a_i, b_i) ← λ_s (a_i, b_i) + (right, wrong)  if posed,   λ_g (a_i, b_i)  if not
    Hu et al. 2025, arXiv:2511.18902
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import choose
from isocost.seams import Recipe

CARD = Card("VADE", "2511.18902", 2025, "grpo", "Choosing by a forgetful posterior leaves fewer dead groups.")


def recipe(**changes: Any) -> Recipe:
    # lean: the published form, largest at 1/3; 1 is the variance, largest at 1/2. The decays are not published: n
    # attempts say nearly all there is to know of a rate that moves, so a second look halves the first; and a problem
    # left alone is half forgotten in 70 steps, about what a policy takes to change.
    chosen = partial(choose.by_belief, lean=2.0, right=1.0, wrong=1.0, touched=0.5, idle=0.99)
    return grpo.recipe(name="vade", choose=chosen).but(**changes)
