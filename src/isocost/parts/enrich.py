"""What else a batch must carry before credit is assigned. Each returns a batch with one more `extra`."""

from __future__ import annotations

import torch

from isocost.errors import UserError
from isocost.traits import gives, requires
from isocost.types import Batch
from isocost.world import World

# What a function declares that reads one of them from `batch.extra`.
reads_reference = requires(
    "reference", at="enrich",
    why="it compares with the policy that the run began with; add enrich.reference to `enrich`",
)
reads_values = requires(
    "values", at="enrich", why="it goes by what a critic foresees, which enrich.values asks it; add that to `enrich`"
)
reads_entropy = requires(
    "entropy", at="enrich", why="it goes by how unsure an attempt was; add enrich.entropy to `enrich`"
)


@gives("reference")
def reference(batch: Batch, world: World) -> Batch:
    """Log-probs of the policy the run began with, as `extra["reference"]`; charged as `score` tokens."""
    if world.reference is None:
        raise UserError("this recipe compares with the policy it began with: open the world with reference=True")
    return batch.but(extra={**batch.extra, "reference": world.reference.score(batch).logp})


@gives("values")
def values(batch: Batch, world: World) -> Batch:
    """What the critic foresees at each sampled token, as `extra["values"]`; charged as `score` tokens."""
    if world.critic is None:
        raise UserError("this recipe learns a value function: it needs a world with a critic")
    return batch.but(extra={**batch.extra, "values": world.critic.values(batch)})


@gives("lag")
def lag(batch: Batch, world: World) -> Batch:
    """How many steps ago each token was sampled, as `extra["lag"]`; 0 where none was."""
    out, now = torch.zeros_like(batch.logp), world.engine.version
    segments = [s for g in batch.groups for r in g.rollouts for s in r.segments]
    for row, text in enumerate(segments):
        out[row, : len(text)] = torch.from_numpy(now - text.version).to(out) * batch.mask[row, : len(text)]
    return batch.but(extra={**batch.extra, "lag": out})


@gives("entropy")
def entropy(batch: Batch, world: World) -> Batch:
    """Entropy of the distribution that each token was drawn from, as `extra["entropy"]`; charged as `score` tokens."""
    return batch.but(extra={**batch.extra, "entropy": world.learner.score(batch).entropy})
