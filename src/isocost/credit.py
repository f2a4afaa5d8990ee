"""Groups -> a batch to train on: padded, enriched, credited, averaged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isocost.batch import Batch
from isocost.pack import pack
from isocost.seams import Recipe
from isocost.types import Group
from isocost.world import World

if TYPE_CHECKING:
    from isocost.ledger import Ledger


def credited(groups: Sequence[Group], recipe: Recipe, world: World, ledger: Ledger) -> Batch:
    """The batch of these groups, with `advantage` and `weight`; ages are counted from the policy now.

    An `improve` that changes which groups an update has calls it again: advantages and averages depend on all of them.
    """
    fast, now = world.fast, world.engine.version
    batch = (fast and fast.pack(groups, now)) or pack(groups, now)            # (N, T), padded once
    for add in recipe.enrich:
        batch = add(batch, world)                                             # reference, values, teacher
    batch = batch.but(advantage=recipe.advantage(batch, ledger))              # (N, T), who gets the credit
    return batch.but(weight=recipe.weight(batch))                             # (N, T), how it is averaged
