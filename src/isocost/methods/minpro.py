"""MinPRO: weight a token by its own ratio and the smallest ratio before it, not by the product of all.

    L = −mean_groups (1/Σ|y_i|) Σ_i Σ_t sg(min(w_t, ε)) A log π,   w_t = ρ_t · min_{j<t} ρ_j,   ρ = π_θ / π_sampler
    A of GRPO, ε = 5; the exact weight of a token is Π_{j≤t} ρ_j          Lei et al. 2026, arXiv:2601.22718
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, cispo
from isocost.parts import loss
from isocost.seams import Recipe

CARD = Card("MinPRO", "2601.22718", 2026, "cispo", "On stale rollouts it is stabler than a ratio for each token.")


def recipe(**changes: Any) -> Recipe:
    # Rollouts of the current step have w = 1, as in the parent; it differs where max_age or minibatches make them
    # stale. The cap is the parent's 5, because the paper's is not known.
    return cispo.recipe(name="minpro", loss=partial(loss.reweighed, over="least", high=5.0)).but(**changes)
