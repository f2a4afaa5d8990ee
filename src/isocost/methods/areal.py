"""AReaL's decoupled PPO: correct for who sampled, and clip against who is learning; these are two policies.

    L = (1/R) Σ_i (1/|y_i|) Σ_t (π_prox / π_sampler) · max(−A ρ, −A clip(ρ, 1 ± 0.2)),   ρ = π_θ / π_prox
    π_prox the learner when the step begins; a token with π_prox / π_sampler > 5 is left out     rollouts η = 4 old
    Fu et al. 2025, arXiv:2505.24298
"""

from __future__ import annotations

from functools import partial
from typing import Any

from isocost.methods import Card, grpo
from isocost.parts import improve
from isocost.parts import loss as losses
from isocost.seams import Recipe
from isocost.traits import bounds, gives, requires
from isocost.types import Batch, Forward

CARD = Card("AReaL", "2505.24298", 2025, "grpo", "With a clip of its own, PPO bears rollouts that are steps old.")


@gives("a correction")
@requires(
    "a step's own ratios", at="improve",
    why="it corrects from the sampler to the learner as the step begins, which improve.decoupled scores the batch for",
)
@bounds(low="[0, 1]", high="[0, inf]", cap="(0, inf]")
def loss(
    out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, cap: float = 5.0, reject: bool = True
) -> losses.Out:
    clip = partial(losses.clipped, low=low, high=high)
    return losses.corrected(out, losses.between(out, batch), inner=clip, cap=cap, reject=reject)


def recipe(**changes: Any) -> Recipe:
    # As released, what is beyond the cap is rejected and stays in the average. With enrich=(enrich.lag,) π_prox is
    # put between sampler and learner by age instead of scored. Four updates a step: with one, ρ is 1.
    learn = partial(improve.decoupled, minibatches=4)
    return grpo.recipe(name="areal", loss=loss, improve=learn, max_age=4).but(**changes)
