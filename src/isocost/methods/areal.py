"""AReaL's decoupled PPO: correct for who sampled, and clip against who is learning; these are two policies.

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

CARD = Card("AReaL", "2505.24298", 2025, "grpo", "With a clip of its own, PPO bears rollouts that are steps old.")


@gives("a correction")
@requires(
    "a step's own ratios", at="improve",
    why="it corrects from the sampler to the learner as the step begins, which areal.improve scores the batch for",
)
@bounds(low="[0, 1]", high="[0, inf]", cap="(0, inf]")
def loss(
    out: Forward, batch: Batch, *, low: float = 0.2, high: float = 0.2, cap: float = 5.0, reject: bool = True
) -> Out:
    clip = partial(clipped, low=low, high=high)
    return corrected(out, between(out, batch), inner=clip, cap=cap, reject=reject)


def between(out: Forward, batch: Batch) -> Batch:
    """A batch with a `lag` gets for its old policy one between sampler and learner, and any other stays as it is.

    log π_old = log μ + α (log π − log μ), α = (lag − 1) / lag: a guess of the learner one step ago, which costs no
    forward pass (AReaL, arXiv:2505.24298). Tokens of this step, or of the last, keep their sampler.
    """
    if "lag" not in batch.extra:
        return batch
    way = 1 - 1 / batch.extra["lag"].clamp(min=1)
    return batch.but(old=(batch.logp + way * (out.logp.detach() - batch.logp)) * batch.mask)


@gives("a step's own ratios")
@requires(
    "a correction", at="loss",
    why="its ratios are to the learner as the step begins, so what the sampler was apart from it must be corrected; "
        "put the loss inside loss.corrected",
)
@bounds(epochs="[1, inf)", minibatches="[1, inf)")
def improve(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, epochs: int = 1, minibatches: int = 1
) -> dict[str, float]:
    """`policy`, with ratios to the learner as it is when the step begins, however old the rollouts (AReaL).

    What the rollouts were sampled by is `loss.corrected`'s business: clipping to a policy of several steps ago would
    hold the learner back there (arXiv:2505.24298). More than one update scores the whole batch first, unless it
    carries a `lag`: then `areal.between` puts a policy in between, for nothing (`areal.lag`).
    """
    if epochs * minibatches > 1 and "lag" not in batch.extra:
        batch = batch.but(old=world.learner.score(batch).logp.to(batch.logp.dtype) * batch.mask)
    return descend(batch, recipe, world, ledger, epochs, minibatches)


@gives("lag")
def lag(batch: Batch, world: World) -> Batch:
    """How many steps ago each token was sampled, as `extra["lag"]`; 0 where none was."""
    out, now = torch.zeros_like(batch.logp), world.engine.version
    segments = [s for g in batch.groups for r in g.rollouts for s in r.segments]
    for row, text in enumerate(segments):
        out[row, : len(text)] = torch.from_numpy(now - text.version).to(out) * batch.mask[row, : len(text)]
    return batch.but(extra={**batch.extra, "lag": out})


def recipe(**changes: Any) -> Recipe:
    # As released, what is beyond the cap is rejected and stays in the average. With enrich=(areal.lag,) π_prox is
    # put between sampler and learner by age instead of scored. Four updates a step: with one, ρ is 1.
    learn = partial(improve, minibatches=4)
    return grpo.recipe(name="areal", loss=loss, improve=learn, max_age=4).but(**changes)
