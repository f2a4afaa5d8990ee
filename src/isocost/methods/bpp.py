"""BPP: a memory of a few key frames, the results at which something just happened, in place of a history.

    K = {t : φ(o_t) = 1, φ(o_{t−1}) = 0},   a_t ~ π(· | q, {o_k : k ∈ K, k ≤ t − Δ}, o_t),   the latest 4 of K
    trained by imitation of right attempts          Mark et al. 2026, arXiv:2602.15010
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, fbc, gigpo
from isocost.parts import pace, view
from isocost.parts.play import viewed
from isocost.seams import Recipe

CARD = Card("BPP", "2602.15010", 2026, "fbc", "Key frames generalise where whole histories do not.")

needs = gigpo.needs


def recipe(**changes: Any) -> Recipe:
    # φ is whether the key that the environment gives a state has `mark`; the paper asks a vision model about the
    # picture, Δ seconds late, which is `delay` turns. The paper imitates people; here the policy's own right attempts.
    framed = partial(viewed, view=partial(view.keyframes, mark="=", most=4, delay=0))
    return fbc.recipe(name="bpp", play=framed, pace=partial(pace.warmed, max_turns=30)).but(**changes)
