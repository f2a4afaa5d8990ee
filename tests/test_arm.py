"""Arms: names and numbers that a planner sets of a run, in records of every format."""

import json
import pickle
from copy import deepcopy

import numpy as np
import pytest

from isocost.disk.jsonfile import line
from isocost.errors import UserError
from isocost.runs.arm import Arm

EIGHT = Arm(n=8, B=16)


def test_an_arm_is_a_mapping_that_can_be_a_key_and_does_not_ask_for_the_order_of_its_names():
    assert Arm({"B": 16, "n": 8}) == EIGHT == {"n": 8, "B": 16} and dict(EIGHT) == {"n": 8, "B": 16}
    assert Arm(n=np.int64(8), B=16) == EIGHT and Arm(n=np.int64(8)).label == "n8"
    assert {EIGHT: 1}[Arm(B=16.0, n=8)] == 1 and list(Arm(B=1, n=2)) == list(Arm(n=2, B=1)) == ["n", "B"]
    assert EIGHT["n"] / 2 == 4 and "lr" not in EIGHT and EIGHT.get("lr") is None
    with pytest.raises(TypeError):
        EIGHT["n"] = 4


def test_arms_are_ordered_by_their_values_and_named_by_them():
    arms = [Arm(n=16, B=2), Arm(n=4, B=8), Arm(n=4, B=2)]
    assert sorted(arms) == [arms[2], arms[1], arms[0]] and min(arms) <= arms[0] > arms[1]
    assert (EIGHT.label, Arm(utd=4, width=256, tau=0.005).label) == ("n8-B16", "tau0.005-utd4-width256")


def test_an_arm_is_changed_and_reduced_to_another_one():
    whole = Arm(n=8, B=16, lr=1e-3, turns=None)
    assert whole == {"n": 8, "B": 16, "lr": 1e-3} and whole.only("n", "B", "turns") == EIGHT
    assert whole.but(lr=None, n=4) == Arm(n=4, B=16) and whole["n"] == 8


@pytest.mark.parametrize("value", ["8", True, float("nan"), float("inf"), [8]])
def test_a_value_that_is_not_a_finite_number_is_refused(value):
    with pytest.raises(UserError, match=r"an arm's n is .*, expected a finite number"):
        Arm(n=value)


def test_records_of_both_formats_are_read():
    old = {"purpose": "pilot", "n": 8, "B": 16, "C": 1024, "multiplier": 1.0, "index": 0, "seed": 3, "first_C": None}
    assert Arm.of(old) == Arm.of({"arm": {"B": 16, "multiplier": 1.0, "n": 8}, "C": 1024}) == EIGHT.but(multiplier=1.0)
    assert Arm.of({"arm": {"utd": 4}}) == Arm(utd=4)


def test_it_is_written_as_an_object_and_travels_between_processes():
    assert json.loads(line({"arm": EIGHT})) == {"arm": {"n": 8, "B": 16}} and EIGHT.data() == {"n": 8, "B": 16}
    assert pickle.loads(pickle.dumps(EIGHT)) == deepcopy(EIGHT) == EIGHT and repr(EIGHT) == "Arm(n=8, B=16)"
