"""The contract again, in the world of a real decoder with the embedded base."""

import pytest

from isocost.contract.check import check
from isocost.local.world import Compute, open_world
from isocost.meter import Meter
from isocost.tasks.builtin.sums import sums
from isocost.tasks.verify.grade import Grader
from isocost.world import World


def small_world() -> World:
    meter = Meter()
    return open_world("tiny", sums(count=64), Grader("exact", meter=meter), meter=meter, reference=True,
                      compute=Compute(device="cpu"))


@pytest.mark.parametrize("name", ["gspo", "dapo", "isoeasy"])
def test_contract(name):
    assert [(f.promise, f.why) for f in check(name, small_world) if not f.kept] == []
