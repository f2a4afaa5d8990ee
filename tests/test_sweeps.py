"""What prescriptions give away on real sweeps: the table follows from the kept choices, and shortfalls are right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import sweeps_judge


def test_the_kept_table_follows_from_the_kept_choices_and_sweeps(tmp_path: Path):
    choices = json.loads((sweeps_judge.OUT / sweeps_judge.CHOICES).read_text(encoding="utf-8"))
    sweeps_judge.main(choices, tmp_path / "judged.json")
    kept = (sweeps_judge.OUT / "judged.json").read_text(encoding="utf-8")
    assert (tmp_path / "judged.json").read_text(encoding="utf-8") == kept, "python experiments/sweeps_judge.py --again"


def test_shortfalls_are_from_the_best_n_at_one_rate_and_from_the_best_of_all():
    """Reward is 0.9 - 0.01 n at the rule's rate, 0.05 more at twice the rate, and 0.1 less at the others."""
    sweep, steps = sweeps_judge.Sweep.read("hard"), {0.5: -0.1, 1.0: 0.0, 2.0: 0.05, 4.0: -0.1}
    runs = [{"n": n, "multiplier": x, "index": 0, "cpu": 1.0, "C": [1, sweep.situation.budgets[-1]],
             "audit": [0.9 - 0.01 * n + up] * 2} for n in sweep.situation.ns for x, up in steps.items()]
    row = {"ours": 4, "end": 2, "oracle": 32, "rate": 2.0, "identified": True}
    found = sweeps_judge.judged(replace(sweep, data=sweep.data | {"runs": runs}), "rollouts 28672", row)
    alone = {"ours": 0.02, "end": 0.0, "n8": 0.06, "n16": 0.14, "oracle": 0.30}
    whole = {"ours": 0.02, "end": 0.05, "n8": 0.11, "n16": 0.19, "oracle": 0.35}   # the others are at the rule's rate
    for rule, lost in alone.items():
        assert found[rule] == pytest.approx(lost) and found[f"{rule}_whole"] == pytest.approx(whole[rule])
    assert found["rate_lost"] == pytest.approx(0.0) and found["fell"] == 0.0
