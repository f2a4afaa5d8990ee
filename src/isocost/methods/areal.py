"""AReaL, decoupled PPO: correct for the policy that sampled, and clip to the policy at the start of the step.

    L = (1/R) Σ_i (1/|y_i|) Σ_t (π_prox / π_sampler) · max(−A ρ, −A clip(ρ, 1 ± 0.2)),   ρ = π_θ / π_prox
    π_prox the learner when the step begins; a token with π_prox / π_sampler > 5 is left out     rollouts η = 4 old
    Fu et al. 2025, arXiv:2505.24298
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from isocost.batch import Batch, Forward
from isocost.methods import Card, grpo
from isocost.parts.improve import descend
from isocost.parts.loss import Out, clipped, corrected
from isocost.seams import Recipe
from isocost.traits import bounds, gives, requires
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger

CARD = Card("AReaL", "2505.24298", 2025, "grpo", "PPO with a separate clip tolerates rollouts several steps old.")


@gives("a correction")
@requires(
    "a step's own ratios", at="improve",
    why="it corrects from the sampler to the learner at the start of the step, which areal.improve scores",
)
@bounds(low="[0, 1]", high="[0, inf]", cap="(0, inf]")
def loss(
    out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, cap: float = 5.0, reject: bool = True
) -> Out:
    """PPO's clipped loss relative to the policy at the start of the step, corrected for the sampler (AReaL)."""
    clip = partial(clipped, low=low, high=high)
    return corrected(out, between(out, batch), inner=clip, cap=cap, reject=reject)


def between(out: Forward, batch: Batch) -> Batch:
    """The batch with an old policy interpolated between sampler and learner, if it has a `lag`; else unchanged.

    log π_old = log μ + α (log π − log μ), α = (lag − 1) / lag: an estimate of the learner one step ago, without a
    forward pass (AReaL, arXiv:2505.24298). Tokens of this step, or of the last, keep their sampler.
    """
    if "lag" not in batch.extra:
        return batch
    way = 1 - 1 / batch.extra["lag"].clamp(min=1)
    return batch.but(old=(batch.logp + way * (out.logp.detach() - batch.logp)) * batch.mask)


@gives("a step's own ratios")
@requires(
    "a correction", at="loss",
    why="its ratios are to the learner at the start of the step, so the difference to the sampler must be "
        "corrected; put the loss inside loss.corrected",
)
@bounds(epochs="[1, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, epochs: int = 1, minibatches: int = 1
) -> dict[str, float]:
    """`improve.policy` with ratios to the learner at the start of the step, however old the rollouts (AReaL).

    `loss.corrected` corrects for the policy that sampled: clipping to a policy of several steps ago would hold the
    learner back (arXiv:2505.24298). More than one update scores the whole batch first, unless it has a `lag`: then
    `areal.between` interpolates an old policy at no cost (`areal.lag`).
    """
    if epochs * minibatches > 1 and "lag" not in batch.extra:
        batch = batch.but(old=world.learner.score(batch).logp.to(batch.logp.dtype) * batch.mask)
    return descend(batch, recipe, world, ledger, epochs, minibatches)


@gives("lag")
def lag(batch: Batch, world: World) -> Batch:
    """How many steps ago each token was sampled, as `extra["lag"]`; 0 for tokens that were not sampled."""
    out, now = torch.zeros_like(batch.logp), world.engine.version
    segments = [s for g in batch.groups for r in g.rollouts for s in r.segments]
    for row, text in enumerate(segments):
        out[row, : len(text)] = torch.from_numpy(now - text.version).to(out) * batch.mask[row, : len(text)]
    return batch.but(extra={**batch.extra, "lag": out})


def recipe(**changes: Any) -> Recipe:
    # As released: a token beyond the cap is rejected and stays in the average. With enrich=(areal.lag,) π_prox is
    # interpolated between sampler and learner by age instead of scored. Four updates per step: with one, ρ is 1.
    learn = partial(improve, minibatches=4)
    return grpo.recipe(name="areal", loss=loss, improve=learn, max_age=4).but(**changes)
