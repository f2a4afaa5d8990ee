"""What is added to a batch before advantages are computed. Each returns a batch with one more `extra`."""

from __future__ import annotations

from isocost.batch import Batch
from isocost.errors import UserError
from isocost.traits import gives, requires
from isocost.world import World

# The declaration of a function that reads `batch.extra["reference"]`.
reads_reference = requires(
    "reference", at="enrich",
    why="it compares with the policy before training; add enrich.reference to `enrich`",
)


@gives("reference")
def reference(batch: Batch, world: World) -> Batch:
    """Log-probs of the policy before training, as `extra["reference"]`; charged as `score` tokens."""
    if world.reference is None:
        raise UserError("this recipe compares with the policy before training: open the world with reference=True")
    return batch.but(extra={**batch.extra, "reference": world.reference.score(batch).logp})
