"""Keys and values of texts that go on in a later call, so that it reads only what is new: a dialogue that has its next
turn, or a search its next step.

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
Key = tuple[tuple[int, int, int], int, bytes]       # a group and a text


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
        self._rows: OrderedDict[Key, list[Waiting]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def put(self, place: Place, row: Waiting) -> None:
        """Keep a row. Attempts with equal texts have a row each."""
        self._rows.setdefault(key := _key(place, row.tokens), []).append(row)
        self._rows.move_to_end(key)
        self.bytes += row.own.nbytes
        while self.bytes > self.most and self._rows:
            self._dropped(self._removed(next(iter(self._rows))))

    def take(self, place: Place, tokens: ndarray, *, copied: bool = False) -> Waiting | None:
        """The row of a text, or a copy of it, which leaves it to the next who asks; None if there is none."""
        if (key := _key(place, tokens)) not in self._rows:
            return None
        if copied:
            return replace(row := self._rows[key][-1], own=row.own.clone())
        return self._removed(key)

    def clear(self) -> None:
        """Drop all, because the weights have changed."""
        self._rows.clear()
        self.bytes = 0

    def _removed(self, key: Key) -> Waiting:
        row = (rows := self._rows[key]).pop()
        if not rows:
            del self._rows[key]
        self.bytes -= row.own.nbytes
        return row


def _key(place: Place, tokens: ndarray) -> Key:
    return place.wave_key, place.slot, tokens.tobytes()
