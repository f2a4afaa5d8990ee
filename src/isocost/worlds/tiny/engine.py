"""What engines of small modules share: one pass for all attempts that wait for one, and how weights are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter

import torch
from torch import Tensor, nn

from isocost.meter import Meter
from isocost.types import Place


class PassEngine:
    """The base of an engine whose policy is a module in double precision.

    Other rows of a pass change a row's results by less than the rounding of the record.
    """

    def __init__(self, policy: nn.Module, meter: Meter):
        self.policy, self.meter, self.version = policy, meter, 0
        self.halted: set[tuple[int, int, int]] = set()
        self._waiting: list[tuple[tuple[Tensor, ...], asyncio.Future]] = []

    async def passed(self, *rows: Tensor) -> tuple[Tensor, Tensor, float]:
        """The two results of the policy for these rows, computed with all others that wait, and a share of its seconds.
        """
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((rows, done))
        if len(self._waiting) == 1:
            loop.call_soon(self._pass)       # after the other attempts that are ready
        return await done

    def _pass(self) -> None:
        waiting, self._waiting = [one for one in self._waiting if not one[1].cancelled()], []
        if not waiting:
            return
        began = perf_counter()
        sizes = [len(rows[0]) for rows, _ in waiting]
        with torch.no_grad():
            out = self.policy(*(torch.cat(x) for x in zip(*(rows for rows, _ in waiting), strict=True)))
        each = (perf_counter() - began) / sum(sizes)
        for (_, done), a, b in zip(waiting, *(x.split(sizes) for x in out), strict=True):
            done.set_result((a, b, each * len(a)))

    def halt(self, place: Place) -> None:
        """See `isocost.world.Engine`."""
        self.halted.add(place.wave_key)

    async def load(self, weights: Mapping[str, Tensor]) -> None:
        """See `isocost.world.Engine`."""
        self.restore(weights, self.version + 1)

    def restore(self, weights: Mapping[str, Tensor], version: int) -> None:
        """See `isocost.world.Engine`."""
        self.policy.load_state_dict(dict(weights))
        self.version = version
