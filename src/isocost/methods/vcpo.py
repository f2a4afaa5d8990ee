"""VCPO: of stale rollouts take the baseline of least variance, and a step as long as the rollouts that count allow.

    L = −(1/R) Σ_i (1/|y_i|) Σ_t sg(min(w_i, 8)) (r_i − b) / std r · log π,   w_i = Π_t π_θ / π_sampler
    b = Σ_i w_i² ‖∇ log π(y_i)‖² r_i / Σ_i w_i² ‖∇ log π(y_i)‖²  in each group
    lr ← lr · √min(1, ρ / ρ_full),   ρ = (Σ w)² / (R Σ w²)          Huang et al. 2026, arXiv:2602.17616
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import improve, loss
from isocost.seams import Recipe

CARD = Card("VCPO", "2602.17616", 2026, "grpo", "Training stays stable on rollouts many steps old.")


def recipe(**changes: Any) -> Recipe:
    # The credit is the parent's: b moves with it, so (r − b) / std r is what is left of (r − mean r) / std r.
    # ρ counts by ratios as they are; b by those of the gradient, which are capped (as released, b's are not).
    return grpo.recipe(
        name="vcpo",
        loss=partial(loss.reweighed, over="sequence", high=8.0),
        improve=partial(improve.least_variance, full=1.0, power=0.5),
    ).but(**changes)
