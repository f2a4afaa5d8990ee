"""Random numbers have addresses: nothing about how they are asked for can change them."""

import numpy as np
import pytest

from isocost.chance import FEW, Purpose, blocks, generator, key, philox, uniforms
from isocost.types import Place

PLACE = Place(seed=7, wave=3, slot=5)


def words(counter, key):
    return [int(x[0]) for x in philox(tuple(np.array([c]) for c in counter), key)]


def test_philox_gives_the_published_vectors():
    """Known-answer vectors of Philox-4x32-10 (Random123)."""
    full = 0xFFFFFFFF
    assert words((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert words((full,) * 4, (full, full)) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344)
    assert words(pi, (0xA4093822, 0x299F31D0)) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def test_a_position_draws_the_same_in_whatever_range_it_is_asked_for():
    whole = uniforms(PLACE, range(6), 0, 0, 23)
    parts = np.concatenate([uniforms(PLACE, range(6), 0, a, b - a) for a, b in ((0, 3), (3, 4), (4, 11), (11, 23))], 1)
    assert (whole == parts).all()
    assert (uniforms(PLACE, [4], 0, 0, 23)[0] == whole[4]).all()


def test_every_part_of_an_address_matters():
    base = uniforms(PLACE, [0], 0, 0, 8)
    others = [
        uniforms(Place(8, 3, 5), [0], 0, 0, 8),
        uniforms(Place(7, 4, 5), [0], 0, 0, 8),
        uniforms(Place(7, 3, 6), [0], 0, 0, 8),
        uniforms(PLACE, [1], 0, 0, 8),
        uniforms(PLACE, [0], 1, 0, 8),
        uniforms(PLACE, [0], 0, 8, 8),
        uniforms(Place(7, 3, 5, Purpose.EVALUATION), [0], 0, 0, 8),
        uniforms(Place(7 + (1 << 32), 3, 5), [0], 0, 0, 8),
    ]
    assert all((base != o).all() for o in others)


def test_draws_are_uniform_inside_the_open_interval():
    u = uniforms(PLACE, range(64), 0, 0, 1024).ravel()
    assert u.min() > 0 and u.max() < 1
    counts = np.histogram(u, bins=64, range=(0, 1))[0]
    expected = len(u) / 64
    assert ((counts - expected) ** 2 / expected).sum() < 110  # chi-squared with 63 degrees: p = 0.0002


def test_generators_differ_by_address_and_purpose():
    draws = {
        tuple(generator(*a).integers(1 << 30, size=4))
        for a in ((0, Purpose.CHOOSE, 0), (0, Purpose.CHOOSE, 1), (0, Purpose.SPLIT, 0), (1, Purpose.CHOOSE, 0))
    }
    assert len(draws) == 4


@pytest.mark.parametrize("count", [1, 3, FEW])
def test_few_numbers_are_the_same_as_among_many(count):
    """Few blocks are computed in Python's integers, many in numpy's: also of words that have more than 32 bits."""
    rng = np.random.default_rng(0)
    wave, slot, attempt, first = rng.integers(-1, 2**40, (4, 2 * FEW))
    turn = rng.integers(0, 2**20, 2 * FEW)
    key = 0xFFFFFFF1, 0x80000001
    many = blocks(key, wave, slot, attempt, turn, first, count)
    one = [blocks(key, *(x[i : i + 1] for x in (wave, slot, attempt, turn, first)), count) for i in range(2 * FEW)]
    assert many.dtype == one[0].dtype and (np.concatenate(one) == many).all()


def test_an_attempt_beyond_65_536_does_not_draw_the_next_turns_numbers():
    """Numbers of attempts below that are as they were: `before` is the address as one sum."""
    def before(attempt, turn, block):
        words = philox(tuple(np.array([x]) for x in (block, attempt + (turn << 16), PLACE.slot, PLACE.wave)), own)
        return [(float(w[0]) + 0.5) / 2**32 for w in words]

    own = key(PLACE)
    for attempt, turn, block in ((0, 0, 0), (65_535, 0, 3), (65_535, 65_535, 9), (7, 1, 1 << 24)):
        assert uniforms(PLACE, [attempt], turn, 4 * block, 4)[0].tolist() == before(attempt, turn, block)
    many = [0, 1, 65_535, 65_536, 65_537, 131_072, (1 << 24) - 1, 1 << 24, (1 << 24) + 65_536, (1 << 32) - 1]
    drawn = [tuple(row) for turn in range(3) for start in (0, 8) for row in uniforms(PLACE, many, turn, start, 8)]
    drawn += [tuple(row) for slot in (6, 7) for row in uniforms(Place(7, 3, slot), many, 0, 0, 8)]
    numbers = [x for row in drawn for x in row]
    assert len(set(drawn)) == len(drawn) == 80 and len(set(numbers)) == len(numbers)
    alone = [uniforms(PLACE, [k], 1, 4, 4)[0].tolist() for k in many]        # few numbers, in Python's integers
    assert alone == uniforms(PLACE, many, 1, 4, 4).tolist()
