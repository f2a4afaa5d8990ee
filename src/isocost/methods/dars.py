"""DARS: a first look at every problem, then more rollouts where few were right, until advantages sum alike.

    Σ|A| = N · S(a),  S(a) = 2a(1 − a)          ΔN = ⌈(N/2 − N S(a)) / S(a)⌉ for a < ½, N + ΔN ≤ N_max; else 0
    A_i = r_i − mean r over both looks          a = 0 counts as ½/N          Yang et al. 2025, arXiv:2508.13755
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, drgrpo
from isocost.parts import allocate, select
from isocost.seams import Recipe

CARD = Card("DARS, equal treatment", "2508.13755", 2025, "drgrpo", "Depth for hard problems raises pass@k.")


def recipe(**changes: Any) -> Recipe:
    # A wave has n rollouts for each problem on average, so both looks together cost what the parent's one does at the
    # same n: the first takes half (the paper's N = 8), the second deals out the rest. DARS-B is improve.epochs=2.
    more = partial(allocate.by_shortfall, first=0.5, most=32)
    return drgrpo.recipe(name="dars", allocate=more, select=select.mixed, rollouts=16).but(**changes)
