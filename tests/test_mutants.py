"""The kept records of `tests/mutants.py`: what the suite proved before the rooms moved, it proves now."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import mutants

BODY = """
def f(x, y: int = 3):
    {imports}
    if x < 2.5 and y == 1:  # a line
        raise ValueError("below", x < 1)
    return -x + g(y - 4)
"""


def tree(home, module, imports, body=BODY):
    source = home / "src" / "isocost" / f"{module}.py"
    source.parent.mkdir(parents=True)
    for room in {source.parent, home / "src" / "isocost"}:
        (room / "__init__.py").touch()
    source.write_text(f"{imports}\n\n\ndef g(z):\n    return z\n\n{body.format(imports=imports)}")
    (home / "tests").mkdir()
    name = f"isocost.{module}".replace("/", ".")
    (home / "tests" / "test_it.py").write_text(
        f"from {name} import f\n\n\ndef test_always_fails():\n    assert f is None\n\n\n"
        "def test_it():\n    assert f(3, 1) == -6 and f(3, 2) == -5\n")
    return home


@pytest.fixture
def moved(tmp_path):
    """A module before and after it moved to a room, where it imports another module."""
    return tree(tmp_path / "before", "one", "import math"), tree(tmp_path / "after", "room/two", "import cmath, math")


def test_a_mutant_changes_one_comparison_sign_constant_or_whole_number_but_no_message(moved):
    (f,) = (x for x in mutants.functions(moved[0] / "src") if x.name == "f")
    assert {(m.kind, m.mutated.strip()) for m in mutants.mutants(f)} == {
        ("comparison", "if x <= 2.5 and y == 1:  # a line"), ("comparison", "if x < 2.5 and y != 1:  # a line"),
        ("constant", "if x < 5.0 and y == 1:  # a line"), ("off by one", "if x < 2.5 and y == 2:  # a line"),
        ("sign", "return -x - g(y - 4)"), ("sign", "return -x + g(y + 4)"), ("sign", "return x + g(y - 4)"),
        ("off by one", "return -x + g(y - 5)"),
    }


def test_a_function_is_found_where_its_module_moved_to(moved):
    chosen = mutants.chosen(*moved)
    assert [(m.function.module, m.function.name, there.module) for m, there in chosen] == [
        ("isocost.one", "f", "isocost.room.two")]      # one in a module
    assert mutants.chosen(*moved)[0][0].key == chosen[0][0].key
    source = moved[1] / "src" / "isocost" / "room" / "two.py"
    source.write_text(source.read_text().replace("-x + g", "-x - g"))
    assert not mutants.chosen(*moved)                   # it is another function now


def outcome(moved, mutated):
    """What the tests make of a mutant, in a process that runs no pytest itself: its own is a fork."""
    code = ("import json, sys; from pathlib import Path; import mutants; before, after = map(Path, sys.argv[1:3]); "
            "(m, there), = mutants.chosen(before, after)[:1]; "
            "every = {m.mutated.strip(): m for m in mutants.mutants(m.function)}; "
            "print(json.dumps(mutants.outcome(every[sys.argv[3]], there, after)))")
    done = subprocess.run([sys.executable, "-c", code, *map(str, moved), mutated], cwd=Path(__file__).parent, text=True,
                          capture_output=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.release
def test_a_mutant_is_killed_by_a_test_that_passes_without_it_alone(moved):
    killed = outcome(moved, "return x + g(y - 4)")
    assert (killed["outcome"], killed["test"]) == ("killed", "tests/test_it.py::test_it")
    survived = outcome(moved, "if x <= 2.5 and y == 1:  # a line")
    assert (survived["outcome"], survived["left out"]) == ("survived", ["tests/test_it.py::test_always_fails"])
    assert "if x < 2.5" in (moved[1] / "src" / "isocost" / "room" / "two.py").read_text()


@pytest.mark.release
def test_as_many_mutants_are_killed_as_before_the_rooms_moved():
    kept = json.loads(mutants.KEPT.read_text(encoding="utf-8"))
    rows = kept["mutants"]
    assert kept["before"] == mutants.BEFORE and kept["seed"] == mutants.SEED
    assert Counter(row["kind"] for row in rows) == dict.fromkeys(mutants.KINDS, mutants.EACH)
    assert all({"before", "after"} <= row.keys() for row in rows), "run: nice python tests/mutants.py, and with --at"
    before, after = (sum(row[when]["outcome"] == "killed" for row in rows) for when in ("before", "after"))
    assert after >= before, mutants.lost(rows)
