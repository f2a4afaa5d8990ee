"""Rollout-GDRO: sort problems by how often they are solved, and give each bin the rollouts that make it surest.

    min_n Σ_b q̂_b v_b / n_b   s.t.   Σ_b q̂_b n_b = n̄,   n_b whole;   left real, n_b ∝ √v_b
    Panaganti et al. 2026, arXiv:2601.19280
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import allocate
from isocost.seams import Recipe

CARD = Card("Rollout-GDRO", "2601.19280", 2026, "grpo", "Rollouts teach more where outcomes are unsure.")


def recipe(**changes: Any) -> Recipe:
    # The paper learns the worth of each n_b with a bandit, from the surrogate's value at the n_b played, and prices
    # rollouts with a multiplier. On fresh rollouts that value is 0 at every n; and under an exact budget the price is
    # the same for all choices. What remains is its theory's proxy, v_b / n_b, known for all n_b at once: the dynamic
    # program over it is the paper's, the bandit is not here. v is p(1 − p), p from a flat prior, so that a bin of
    # which nothing was right is not written off.
    by_bin = partial(allocate.by_spread, least=2, most=4.0, bins=10, k=8, window=16, margin=0.02)
    return grpo.recipe(name="rolloutgdro", allocate=by_bin).but(**changes)
