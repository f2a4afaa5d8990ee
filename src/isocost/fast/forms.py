"""`isocost.world.Fast`: what the core, and the writer of the journal, reach of this folder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from json.encoder import encode_basestring_ascii

from isocost.batch import Batch
from isocost.fast.columns import WaveGroup
from isocost.fast.pack import pack
from isocost.fast.wave import ColumnWave
from isocost.ledger import JournalLine
from isocost.seams import Recipe
from isocost.types import Group

_quoted = lru_cache(maxsize=4096)(encode_basestring_ascii)
_JOIN = '", "'.join


class Forms:
    """The second forms for an engine that writes whole waves."""

    def wave(self, recipe: Recipe) -> ColumnWave | None:
        return ColumnWave.of(recipe)

    def pack(self, groups: Sequence[Group], version: int) -> Batch | None:
        return pack(groups, version)

    def line(self, line: JournalLine) -> str:
        return of_wave(line) or line.text()


def of_wave(line: JournalLine) -> str | None:
    """A line of the journal as JSON, without its data and the encoder; None where these have to make it."""
    group = line.group
    if not isinstance(group, WaveGroup) or (every := group.wave.values) is None:
        return None
    rows, wave, place, problem = slice(group.first, group.last), group.wave, group.place, group.problem
    values = every[rows]
    if not math.isfinite(sum(values)):
        return None
    fates = f'["{_JOIN(line.fates)}"]' if line.fates else "[]"
    return (
        f'{{"step": {line.step}, "wave": {place.wave}, "slot": {place.slot}, "id": {_quoted(problem.id)}, '
        f'"variant": {_quoted(problem.variant)}, "version": {wave.written.version}, '
        f'"attempts": {wave.attempts[rows]}, "rewards": {[round(x, 6) for x in values]}, '
        f'"lengths": {wave.lengths[rows]}, "stops": ["{_JOIN(wave.stops[rows])}"], '
        f'"fates": {fates}, "cancelled": {line.cancelled}}}'
    )
