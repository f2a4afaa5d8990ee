"""AIPO: weigh every token by how much likelier it has become since it was sampled, up to a cap.

    L = −(1/R) Σ_i Σ_t sg(min(π(y_t) / μ(y_t), ρ)) A_i log π(y_t),   A_i = r_i − mean r,   μ the sampler itself
    Wu et al. 2025, "LlamaRL", arXiv:2505.24034
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, drgrpo, grpo, reinforce
from isocost.parts import improve
from isocost.parts.loss import corrected
from isocost.seams import Recipe

CARD = Card("AIPO (LlamaRL)", "2505.24034", 2025, "reinforce", "A one-sided cap keeps training on old rollouts stable.")

needs = grpo.needs      # siblings that differ


def recipe(**changes: Any) -> Recipe:
    # The paper's ρ is between 2 and 10; here 4. The ratio is of the policy as it is in each update over the sampler's
    # own log-probs, so that it also corrects for a sampler of another precision, and no old policy is scored. A
    # rollout may be one step old, as generation runs a step ahead. Left out: the executors on groups of machines, the
    # direct transfer of weights, and the model of their speed.
    capped = partial(corrected, inner=reinforce.loss, cap=4.0)
    return reinforce.recipe(
        name="aipo", advantage=drgrpo.advantage, loss=capped, improve=partial(improve.policy, ratios=False), max_age=1,
    ).but(**changes)
