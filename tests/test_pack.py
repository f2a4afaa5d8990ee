"""Groups become a batch: its order, and the age of its rollouts."""

from dataclasses import replace

from isocost.pack import pack
from isocost.types import Place
from toy import group


def test_rows_are_in_order_of_wave_then_slot_whatever_the_order_of_groups():
    places = [(1, 0), (0, 1), (1, 1), (0, 0)]
    groups = [replace(group([10.0 * wave + slot, -1.0]), place=Place(0, wave, slot)) for wave, slot in places]
    batch = pack(groups, 0)
    assert batch.reward.tolist() == [0, -1, 1, -1, 10, -1, 11, -1]
    assert [(g.place.wave, g.place.slot) for g in batch.groups] == sorted(places)
    assert batch.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_rollout_is_as_old_as_its_oldest_token():
    old, new = group([1.0], version=3), group([0.0], slot=1, version=5)
    assert pack([old, new], 5).age.tolist() == [2, 0]
