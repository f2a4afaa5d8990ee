"""Which problems come next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from isocost import chance
from isocost.traits import addressed, exported
from isocost.types import Problem

if TYPE_CHECKING:
    from isocost.ledger import Ledger


@addressed
@exported()
def uniform(pool: Sequence[Problem], ledger: Ledger, count: int, rng: np.random.Generator) -> list[Problem]:
    """Every problem once per epoch, in a random order for each epoch.

    The order is addressed by (seed, epoch), and the position in it by the number of problems drawn. A resumed run, and
    one that drops or refills groups, therefore continues where it was. A wave may span two epochs. `rng` is not used.
    """
    size, out, at = len(pool), list[Problem](), ledger.drawn
    while len(out) < count:
        epoch, place = divmod(at + len(out), size)
        out += [pool[i] for i in order(ledger.seed, epoch, size)[place : place + count - len(out)]]
    return out


@lru_cache(maxsize=8)
def order(seed: int, epoch: int, size: int) -> list[int]:
    """The order of the problems of an epoch."""
    return chance.generator(seed, chance.Purpose.CHOOSE, epoch).permutation(size).tolist()


def first(pool: Sequence[Problem], order: ndarray, count: int) -> list[Problem]:
    """The first `count` problems in this order, which repeats if the pool is smaller."""
    return [pool[i] for i in np.resize(order, count)]
