"""What else a batch must carry before credit is assigned. Each returns a batch with one more `extra`."""

from __future__ import annotations

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.traits import gives, requires
from isocost.world import World

# What a function declares that reads one of them from `batch.extra`.
reads_reference = requires(
    "reference", at="enrich",
    why="it compares with the policy that the run began with; add enrich.reference to `enrich`",
)


@gives("reference")
def reference(batch: Batch, world: World) -> Batch:
    """Log-probs of the policy the run began with, as `extra["reference"]`; charged as `score` tokens."""
    if world.reference is None:
        raise UserError("this recipe compares with the policy it began with: open the world with reference=True")
    return batch.but(extra={**batch.extra, "reference": world.reference.score(batch).logp})
