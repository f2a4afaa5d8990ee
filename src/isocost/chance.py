"""Random numbers with addresses: counter-based, so that no draw depends on another one.

Philox-4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), vectorised over attempts and
positions. Key: run seed and purpose. Counter: wave, slot, attempt and turn, position. There is no global
generator and no seed arithmetic, so batching, order and resuming cannot change a draw.

The counter's four words have 32 bits each. Attempt and turn share one of them, 16 bits each; the upper bits of an
attempt from 65,536 on are in the upper 8 bits of position and slot. So no two addresses share a draw up to 2^32
attempts, 2^16 turns, and, in groups of more than 65,536 attempts, 2^26 tokens a turn and 2^24 slots.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

if TYPE_CHECKING:
    from isocost.types import Place  # for the annotation alone

__all__ = ["Purpose", "addresses", "blocks", "generator", "key", "luck", "numbers", "share", "uniforms"]


class Purpose(IntEnum):
    """What a draw is for. Two purposes never share a number."""

    TRAIN = 0
    EVALUATION = 1
    PROFILE = 2
    CHOOSE = 3
    SPLIT = 4
    BOOTSTRAP = 5
    INIT = 6
    SELECT = 7
    REPLAY = 8
    FORK = 9
    GUIDE = 10
    ENVIRONMENT = 11
    ANSWER = 12


_MULTIPLY = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_WORD, _LONG = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
ATTEMPTS = 1 << 16      # whose numbers fit into their part of a word
FEW = 8     # blocks that Python's integers compute faster than numpy, whose 80 calls take the same time for any number


def philox(counter: tuple[ndarray, ndarray, ndarray, ndarray], key: tuple[int, int]) -> tuple[ndarray, ...]:
    """Philox-4x32-10 on arrays: four counter words of one shape -> four words of that shape, each in [0, 2^32)."""
    a, b, c, d = (np.asarray(x, dtype=np.uint64) for x in counter)
    k0, k1 = key
    for _ in range(10):
        p, q = a * _MULTIPLY[0], c * _MULTIPLY[1]
        a, b, c, d = (q >> _SHIFT) ^ b ^ np.uint64(k0), q & _LOW, (p >> _SHIFT) ^ d ^ np.uint64(k1), p & _LOW
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return a, b, c, d


def uniforms(place: Place, attempts: Sequence[int], turn: int, start: int, count: int) -> ndarray:
    """(attempts, count) numbers in (0, 1), for token positions start .. start + count of one turn.

    The number of a position does not depend on the requested range, so a rollout resumed from a prefix draws what it
    would have drawn without the interruption.
    """
    first, attempt = start // 4, np.asarray(attempts, dtype=np.int64)
    wave, slot, turns, positions = (np.full_like(attempt, x) for x in (place.wave, place.slot, turn, first))
    u = blocks(key(place), wave, slot, attempt, turns, positions, (start + count + 3) // 4 - first)
    return u[:, start - 4 * first : start - 4 * first + count]


def key(place: Place) -> tuple[int, int]:
    """Philox's key: the run's seed and the purpose. Draws of one key can be made together."""
    return place.seed & 0xFFFFFFFF, ((place.seed >> 32) & 0xFFFFFF) << 8 | int(place.purpose)


def blocks(
    key: tuple[int, int], wave: ndarray, slot: ndarray, attempt: ndarray, turn: ndarray, first: ndarray, count: int
) -> ndarray:
    """(rows, 4 count) numbers in (0, 1): row i's token positions from 4 first[i] on. The arrays are (rows,)."""
    first, who, slot = _addressed(first, attempt, turn, slot)
    return _drawn(key, first, who, slot, wave, count)


def addresses(places: Sequence[Place], attempts: Sequence[int], turns: Sequence[int]) -> ndarray:
    """(rows, 6) where each row's numbers begin: Philox's counter and key. Blocks are counted in the first column."""
    slot, wave, k0, k1 = np.array([(x.slot, x.wave, *key(x)) for x in places], dtype=np.int64).reshape(-1, 4).T
    attempt, turn = np.asarray(attempts, dtype=np.int64), np.asarray(turns, dtype=np.int64)
    return np.stack((*_addressed(np.zeros_like(slot), attempt, turn, slot), wave, k0, k1), -1)


def numbers(at: ndarray, count: int) -> ndarray:
    """(rows, 4 count) numbers in (0, 1) from `addresses` on."""
    out = np.empty((len(at), 4 * count))
    for k0, k1 in {tuple(x) for x in at[:, 4:].tolist()}:
        some = (at[:, 4:] == (k0, k1)).all(1)
        first, who, slot, wave = at[some, :4].T
        out[some] = _drawn((k0, k1), first, who, slot, wave, count)
    return out


def _drawn(key: tuple[int, int], first: ndarray, who: ndarray, slot: ndarray, wave: ndarray, count: int) -> ndarray:
    if len(first) * count <= FEW:
        return _few(key, first, who, slot, wave, count)
    block = first[:, None] + np.arange(count)
    who, slot, wave = (np.broadcast_to(x[:, None], block.shape) for x in (who, slot, wave))
    words = philox((block, who, slot, wave), key)
    return (np.stack(words, -1).reshape(len(block), -1).astype(np.float64) + 0.5) / 2.0**32


def _addressed(first: ndarray, attempt: ndarray, turn: ndarray, slot: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """The counter's first words (position, attempt and turn, slot), with an attempt's upper bits in position and slot.
    """
    if attempt.max(initial=0) < ATTEMPTS:
        return first, attempt + (turn << 16), slot
    more = np.maximum(attempt, 0) >> 16
    return first + ((more & 0xFF) << 24), attempt - (more << 16) + (turn << 16), slot + (more >> 8 << 24)


def _few(key: tuple[int, int], first: ndarray, who: ndarray, slot: ndarray, wave: ndarray, count: int) -> ndarray:
    """The same, one block after another: a single attempt draws for each of its turns."""
    rows = zip(first.tolist(), who.tolist(), slot.tolist(), wave.tolist(), strict=True)
    words = [w for at, one, place, when in rows for i in range(count) for w in _block(at + i, one, place, when, *key)]
    return (np.array(words, dtype=np.float64).reshape(len(first), 4 * count) + 0.5) / 2.0**32


def _block(a: int, b: int, c: int, d: int, k0: int, k1: int) -> tuple[int, int, int, int]:
    """`philox` of one counter, also where a word has more than 32 bits: products are modulo 2^64."""
    a, b, c, d = a & _LONG, b & _LONG, c & _LONG, d & _LONG
    for _ in range(10):
        p, q = a * 0xD2511F53 & _LONG, c * 0xCD9E8D57 & _LONG
        a, b, c, d = (q >> 32) ^ b ^ k0, q & _WORD, (p >> 32) ^ d ^ k1, p & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return a, b, c, d


def generator(seed: int, purpose: Purpose, *address: int) -> np.random.Generator:
    """A separate numpy generator for one address, for draws that are not tokens."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, int(purpose), *address])))


def share(*parts: object) -> float:
    """A number in [0, 1) that what is named alone decides, such as a text: the same in every run, process and order."""
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def luck(place: Place, attempt: int, turn: int) -> tuple[int, ...]:
    """The address of an environment's random numbers in one turn of an attempt: (purpose, wave, slot, attempt, turn).

    With the run's seed it is all that `generator` needs. Turns record it, so that a turn is replayed with the numbers
    that it had, also in a fork and in a later wave.
    """
    return int(place.purpose), place.wave, place.slot, attempt, turn
