"""Kimi k1.5: REINFORCE, and a squared log-ratio that keeps each answer near the policy that sampled it.

    L = (1/R) Σ_i [ −A_i log π(y_i) + (τ/2) (log π(y_i) / π_i(y_i))² ],   A_i = r_i − mean r
    = E (r − r̄ − τ log π/π_i)² / 2τ up to a constant;   π_i the policy that sampled, the optimiser new with each batch
    Kimi Team 2025, arXiv:2501.12599
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, drgrpo, grpo, reinforce
from isocost.parts import improve, loss
from isocost.seams import Recipe

CARD = Card("Kimi k1.5", "2501.12599", 2025, "reinforce", "A squared log-ratio holds many updates near the sampler.")

needs = grpo.needs   # siblings that differ


def recipe(**changes: Any) -> Recipe:
    # τ is not published: 0.1 lets an answer that beat its siblings by 1 become e^10 times as likely, no more. Four
    # updates a batch, for with one the square has no gradient.
    learn = partial(improve.restarted, inner=partial(improve.policy, minibatches=4))
    square = partial(loss.regressed, tau=0.1)
    return reinforce.recipe(name="kimi", advantage=drgrpo.advantage, loss=square, improve=learn).but(**changes)
