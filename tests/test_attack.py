"""`make attack` counts what ran, and ends with an error where an attack got through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import attack
from programs import Shell

HERE = Path(__file__).parent
KILLS = {"killed": 60, "at_random_instants": 51, "configurations": 20, "seed": 0, "resumed": 58, "equal": 58,
         "stale_killed": 5, "stale_equal": 5}


@pytest.mark.parametrize(("body", "code", "says"), [
    ("def test_refused(refused):\n    assert 'no folder' in refused('ls', '/nowhere')\n", 0,
     "1 had to be refused: 1 were, with one line and no traceback"),
    ("def test_breach():\n    assert 'owned' == ''\n", 1, "FAILED: 1 attacks got through"),
    ("def test_many(record_property):\n    record_property('attempts', 100)\n", 0, "100 attacks were tried: 0 got"),
    ("", 1, "FAILED: no attack ran"),
])
def test_it_ends_as_its_attacks_end(body: str, code: int, says: str, tmp_path: Path, programs_at_once: Path):
    (tmp_path / "conftest.py").write_text((HERE / "attacks" / "conftest.py").read_text())
    (tmp_path / "test_one.py").write_text(body)
    done = Shell(HERE.parent, programs_at_once).run(["python", HERE / "attack.py", "--instants", "0", tmp_path])
    assert done.code == code and says in done.out, done


def test_too_few_and_unequal_are_faults():
    tally = attack.Tally(ended=Counter({("refused", "passed"): 599, ("other", "skipped"): 9}))
    assert attack.faults(tally, KILLS, whole=False) == []
    assert attack.faults(tally, KILLS, whole=True) == ["599 attacks, expected at least 600"]
    (one,) = attack.faults(tally, {**KILLS, "equal": 57}, whole=False)
    assert one == "1 resumed runs differ from the run that was not killed"
    assert "58 of 58 resumed runs left equal bytes" in attack.summary(tally, KILLS)
