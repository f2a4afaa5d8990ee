"""How a batch becomes one or more updates. The coarse seam: what will not fit the fine ones goes here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from isocost.seams import Recipe
from isocost.types import Batch
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def policy(
    batch: Batch, recipe: Recipe, world: World, ledger: Ledger, *, epochs: int = 1, minibatches: int = 1
) -> dict[str, float]:
    """Descend the recipe's loss, `epochs` times over the batch, in `minibatches` updates each.

    Minibatches hold whole rollouts, and the recipe's average is taken over each by itself. Metrics are means over
    the updates.
    """
    batch, lr = with_old(batch, world, updates=epochs * minibatches), recipe.pace(ledger).lr
    parts = [batch] if minibatches == 1 else [p.but(weight=recipe.weight(p)) for p in _split(batch, minibatches)]
    seen = [world.learner.update(part, recipe.loss, lr=lr) for _ in range(epochs) for part in parts]
    means = {k: sum(s[k] for s in seen) / len(seen) for k in seen[0]}
    return {**means, "learning_rate": lr}


def with_old(batch: Batch, world: World, *, updates: int) -> Batch:
    """The batch with `old` where it is needed: the learner's log-probs at the version that sampled. -> (N, T)

    One update on fresh rollouts needs none: the current forward, detached, is the same and free. Otherwise rows of
    this step are scored (and charged); of older ones the sampler's log-probs are all that is left.
    """
    aged = batch.age[batch.rollout] > 0
    if updates == 1 and not bool(aged.any()):
        return batch
    old, fresh = batch.logp, torch.nonzero(~aged)[:, 0]
    if len(fresh):
        old = old.index_copy(0, fresh, world.learner.score(batch.rows(fresh)).logp.to(old.dtype))
    return batch.but(old=old * batch.mask)


def _split(batch: Batch, parts: int) -> list[Batch]:
    chunks = torch.arange(len(batch.reward), device=batch.rollout.device).tensor_split(min(parts, len(batch.reward)))
    return [batch.rows(_rows_of(chunk, batch)) for chunk in chunks]


def _rows_of(rollouts: Tensor, batch: Batch) -> Tensor:
    return torch.nonzero(torch.isin(batch.rollout, rollouts))[:, 0]
