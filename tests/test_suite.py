"""The suite itself: whose turn it is, what a room costs, what is made once."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from cpu_seconds import KEPT, by_room, pytest_collection_modifyitems, room, table
from in_turn import (
    PART,
    SHAPED,
    checks_shapes,
    commit,
    in_their_turn,
    in_turn,
    rests_on,
    touched,
    turn,
    when_changed,
)
from isocost import methods
from isocost.control import methods as control_methods

METHODS, CONTROL = "src/isocost/methods", "src/isocost/control"
TESTS = Path(__file__).parent


def test_a_method_that_changed_is_in_its_turn_with_its_children_and_all_that_use_it():
    assert touched([f"{METHODS}/reinforce.py"]) == set(methods.shipped())
    children = {name for name in methods.shipped() if methods.load(name).CARD.parent == "dars"}
    assert {"dars", *children} <= touched([f"{METHODS}/dars.py"]) < set(methods.shipped()) and children
    assert touched(["src/isocost/parts/view.py"]) and touched(["src/isocost/loop.py", "README.md"]) == set()
    assert "isocost.parts.play" in rests_on()["isocost.methods.grpo"]
    every = set(control_methods.KIND.shipped())
    assert {"bro", "brc"} <= touched([f"{CONTROL}/methods/bro.py"], control_methods) < every
    assert touched([f"{METHODS}/grpo.py"], control_methods) == set()
    assert all(touched([f"{CONTROL}/{file}.py"], control_methods) == every for file in ("loop", "networks"))


def test_a_commit_has_about_a_quarter_and_another_commit_another():
    turns = [turn(str(commit)) for commit in range(40)]
    every = set(methods.shipped())
    assert all(len(every) / PART / 2 < len(found) < len(every) / PART * 2 for found in turns)
    assert set().union(*turns) == every and turns[0] != turns[1] and turn("0") == turns[0]


def test_shapes_are_checked_in_a_quarter_of_the_files_and_always_in_some(monkeypatch):
    files = [p.relative_to(TESTS.parent).as_posix() for p in TESTS.rglob("test_*.py")]
    seen = []
    for name in map(str, range(40)):
        monkeypatch.setattr("in_turn.commit", lambda name=name: name)
        seen.append({file for file in files if checks_shapes(file)})
    assert all(set(SHAPED) <= found and len(files) / PART / 2 < len(found) < len(files) / PART * 2 for found in seen)
    assert set().union(*seen) == set(files) and seen[0] != seen[1]


def test_no_method_is_left_out_of_both():
    values = in_their_turn([*methods.shipped(), "mine"])
    kept, left = {v for v in values if isinstance(v, str)}, [v for v in values if not isinstance(v, str)]
    assert kept == {*in_turn(), "mine"} and {v.values[0] for v in left} == set(methods.shipped()) - in_turn()
    assert all([mark.name for mark in v.marks] == ["release"] for v in left)


@pytest.mark.parametrize(("printed", "name"), [([], "release"), (["src/a/kernel/b.cpp"], "skipif")])
def test_what_does_not_change_is_left_to_the_release(monkeypatch, printed, name):
    monkeypatch.setattr("in_turn.git", lambda *words: printed if words[0] == "diff" else [])
    assert when_changed("src/**/kernel/*").name == name


def test_without_a_history_everything_is_in_its_turn(monkeypatch):
    def git(*words):
        raise subprocess.CalledProcessError(128, words)

    monkeypatch.setattr("in_turn.git", git)
    commit.cache_clear()
    assert in_turn.__wrapped__() == set(methods.shipped()) and when_changed("src/nowhere/*").name == "skipif"
    assert checks_shapes("tests/test_nowhere.py")


def test_every_test_file_has_a_room_with_a_budget_and_seconds_are_summed_by_room():
    files = [p.relative_to(TESTS.parent).as_posix() for p in TESTS.rglob("test_*.py")]
    assert {room(file) for file in files} == KEPT["rooms"].keys()
    budget = KEPT["rooms"]["laws"]["budget"]
    seconds = {"tests/test_laws_fit.py": 1.0, "tests/test_sweeps.py": 2.0, "tests/attacks/test_servers.py": 4.0}
    assert by_room(seconds) == {"laws": 3.0, "trainers": 4.0}
    rows = {row.split()[0]: row for row in table({"tests/test_laws_fit.py": budget + 1.0})}
    assert rows["laws"].endswith(" OVER") and "OVER" not in rows["core"] + rows["all"]


def test_the_longest_files_come_first():
    item = {name: SimpleNamespace(nodeid=f"{name}::test_a") for name in (*KEPT["files"], "tests/test_new.py")}
    items = [item[name] for name in sorted(item)]
    pytest_collection_modifyitems(items)
    assert items == [*sorted(item.values(), key=lambda i: -KEPT["files"].get(i.nodeid[:-8], 0))]
    assert items[-1] is item["tests/test_new.py"] and len(items) > 10


def test_a_recorded_study_is_made_once_and_each_test_has_its_own(recorded, tmp_path):
    first, second = recorded(tmp_path / "a", "profile"), recorded(tmp_path / "b", "profile")
    (first / "profile.json").write_text("mine")
    assert (second / "profile.json").read_text() == (recorded(tmp_path / "c", "profile") / "profile.json").read_text()
    assert not (second / "plan.json").exists() and (second / "study.json").exists()
