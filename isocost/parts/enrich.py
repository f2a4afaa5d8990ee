"""What else a batch must carry before credit is assigned. Each returns a batch with one more `extra`."""

from __future__ import annotations

from isocost.errors import UserError
from isocost.types import Batch
from isocost.world import World


def reference(batch: Batch, world: World) -> Batch:
    """Log-probs of the policy the run began with, as `extra["reference"]`; charged as `score` tokens."""
    if world.reference is None:
        raise UserError("this recipe compares with the policy it began with: open the world with reference=True")
    return batch.but(extra={**batch.extra, "reference": world.reference.score(batch).logp})
