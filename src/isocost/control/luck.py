"""Random numbers of each run of a stack, addressed by (seed, name, count): no draw depends on another run or order.

A run draws `BLOCK` counts of a name at a time, from a generator of that block's address. Nothing is saved: a resumed
run makes the block of its count again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from isocost.chance import Purpose, generator

BLOCK = 64


@dataclass
class Draws:
    """The numbers of one run: its seed and the blocks that were drawn last, by what they are for."""

    seed: int
    _blocks: dict[tuple[str, str, tuple[int, ...]], tuple[int, np.ndarray]] = field(default_factory=dict)

    def draw(self, kind: str, name: str, count: int, shape: tuple[int, ...]) -> np.ndarray:
        """The float32 numbers of one count: "normal", or "uniform" in [0, 1)."""
        address = kind, name, shape
        at, block = self._blocks.get(address, (-1, None))
        if at != count // BLOCK:
            at = count // BLOCK
            rng = generator(self.seed, Purpose.TRAIN, crc32(f"{kind} {name}".encode()), at)
            size = (BLOCK, *shape)
            block = rng.standard_normal(size, np.float32) if kind == "normal" else rng.random(size, np.float32)
            self._blocks[address] = at, block
        assert block is not None
        return block[count % BLOCK]


@dataclass(frozen=True)
class Luck:
    """The numbers of several runs, each at its own count. `scope` keeps acting and updating apart."""

    sources: Sequence[Draws]
    counts: Sequence[int]
    scope: str

    def _of(self, kind: str, name: str, shape: tuple[int, ...]) -> Tensor:
        drawn = [s.draw(kind, f"{self.scope} {name}", k, shape) for s, k in zip(self.sources, self.counts, strict=True)]
        return torch.from_numpy(np.stack(drawn))

    def normal(self, name: str, *shape: int) -> Tensor:
        """(S, *shape) standard normal numbers. Each use in an update has a name of its own."""
        return self._of("normal", name, shape)

    def uniform(self, name: str, *shape: int) -> Tensor:
        """(S, *shape) numbers in [0, 1)."""
        return self._of("uniform", name, shape)
