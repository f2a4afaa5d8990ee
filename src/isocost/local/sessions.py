"""Keys and values of dialogues between their turns, so that a turn reads only what is new.

A row of a dialogue keeps its memory when its turn ends. The next turn of the attempt takes it back if its text begins
with what was read; otherwise it is read again, with the same result to the last bit. Memory is bounded: the rows that
have waited longest are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from numpy import ndarray
from torch import Tensor

from isocost.types import Place

BYTES = 2**28       # of rows that wait for their next turn, at most
Key = tuple[Place, int]     # an attempt


@dataclass(frozen=True)
class Waiting:
    """A row between two turns: the tokens whose keys are kept, those of its lead in `home` and the others in `own`."""

    tokens: ndarray
    home: Any           # `isocost.local.cache.StartMemory`
    own: Tensor         # memory for `room` tokens
    room: int

    def begins(self, tokens: ndarray) -> bool:
        """Whether a text begins with these tokens and goes on."""
        known = len(self.tokens)
        return known < len(tokens) and tokens[:known].tobytes() == self.tokens.tobytes()


class Sessions:
    """The rows that wait, by attempt."""

    def __init__(self, most: int = BYTES):
        self.most, self.bytes = most, 0
        self._rows: OrderedDict[Key, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, key: Key, row: Waiting) -> None:
        self._drop(key)
        self._rows[key] = row
        self.bytes += row.own.nbytes
        while self.bytes > self.most and self._rows:
            self._drop(next(iter(self._rows)))

    def take(self, key: Key, tokens: ndarray) -> Waiting | None:
        """The row of an attempt, if the text that it goes on with begins with what was read."""
        row = self._drop(key)
        return row if row is not None and row.begins(tokens) else None

    def clear(self) -> None:
        """Drop all, because the weights have changed."""
        self._rows.clear()
        self.bytes = 0

    def _drop(self, key: Key) -> Waiting | None:
        row = self._rows.pop(key, None)
        if row is not None:
            self.bytes -= row.own.nbytes
        return row
