"""Long tests of every method: what changed is tested, and in four commits nearly all."""

from in_turn import PART, in_their_turn, in_turn, rests_on, touched, turn
from isocost import methods

METHODS = "src/isocost/methods"


def test_a_method_that_changed_is_in_its_turn_with_its_children_and_all_that_use_it():
    assert touched([f"{METHODS}/reinforce.py"]) == set(methods.shipped())
    children = {name for name in methods.shipped() if methods.load(name).CARD.parent == "dars"}
    assert {"dars", *children} <= touched([f"{METHODS}/dars.py"]) < set(methods.shipped()) and children
    assert touched(["src/isocost/parts/view.py"]) and touched(["src/isocost/loop.py", "README.md"]) == set()
    assert "isocost.parts.play" in rests_on()["isocost.methods.grpo"]


def test_a_commit_has_about_a_quarter_and_another_commit_another():
    turns = [turn(str(commit)) for commit in range(40)]
    every = set(methods.shipped())
    assert all(len(every) / PART / 2 < len(found) < len(every) / PART * 2 for found in turns)
    assert set().union(*turns) == every and turns[0] != turns[1] and turn("0") == turns[0]


def test_no_method_is_left_out_of_both():
    values = in_their_turn([*methods.shipped(), "mine"])
    kept, left = {v for v in values if isinstance(v, str)}, [v for v in values if not isinstance(v, str)]
    assert kept == {*in_turn(), "mine"} and {v.values[0] for v in left} == set(methods.shipped()) - in_turn()
    assert all([mark.name for mark in v.marks] == ["release"] for v in left)
