"""Keys and values of texts that go on in a later call, so that only what is new is read: of the turns of a dialogue, and
of the steps of a search.

A row keeps its memory when its turn or step ends. Rows are found by their text, so whatever attempt goes on with it, a
fork too, has it. A text that has no row is read again, with the same result to the last bit. Memory is bounded: the
rows that have waited longest are dropped first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from numpy import ndarray
from torch import Tensor

from isocost.types import Place

BYTES = 2**28       # of rows that wait, at most
Key = tuple[tuple[int, int, int], int, bytes]       # a group, in any round of a search, and a text


@dataclass(frozen=True)
class Waiting:
    """A row between two calls: the tokens whose keys are kept, those of its lead in `home` and the others in `own`."""

    tokens: ndarray
    home: Any           # `isocost.local.cache.StartMemory`
    own: Tensor         # memory for `room` tokens
    room: int


class Sessions:
    """The rows that wait, by group and text. `dropped` is given those that nobody can take any more."""

    def __init__(self, most: int = BYTES, dropped: Callable[[Waiting], None] = lambda row: None):
        self.most, self.bytes, self._dropped = most, 0, dropped
        self._rows: OrderedDict[Key, Waiting] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, place: Place, row: Waiting) -> None:
        self._remove(key := _key(place, row.tokens))
        self._rows[key] = row
        self.bytes += row.own.nbytes
        while self.bytes > self.most and self._rows:
            if (oldest := self._remove(next(iter(self._rows)))) is not None:
                self._dropped(oldest)

    def take(self, place: Place, tokens: ndarray, *, copied: bool = False) -> Waiting | None:
        """The row of a text, or a copy of it, which leaves it to the next who asks."""
        key = _key(place, tokens)
        if copied and (row := self._rows.get(key)) is not None:
            return replace(row, own=row.own.clone())
        return self._remove(key)

    def clear(self) -> None:
        """Drop all, because the weights have changed."""
        self._rows.clear()
        self.bytes = 0

    def _remove(self, key: Key) -> Waiting | None:
        row = self._rows.pop(key, None)
        if row is not None:
            self.bytes -= row.own.nbytes
        return row


def _key(place: Place, tokens: ndarray) -> Key:
    return place.wave_key, place.slot, tokens.tobytes()
