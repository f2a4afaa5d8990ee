"""What the headlines of agents read from the ends of their runs, from attempts whose numbers are known."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from isocost.types import Fault, Message, Problem, Rollout, Score, Stop, Turn

HOME = Path(__file__).parents[1] / "experiments"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HOME / f"{name}.py")
    assert spec and spec.loader
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


costs, ends = load("agents_costs"), load("agents_ends")


def attempt(faults: list[Fault | None], right: float = 1.0, stop: Stop = Stop.DONE, final: str = "", **meta) -> Rollout:
    problem = Problem("p", (Message("user", "?"),), "a", meta=meta)
    turns = tuple(Turn(key=str(t), fault=f) for t, f in enumerate(faults))
    return Rollout(problem, (), final, stop=stop, turns=turns, score=Score(right))


def test_calls_are_of_successes_and_bad_turns_of_all():
    """Two successes with 3 and 1 calls, of which one failed; a failure with two malformed turns, which ran out."""
    model, tool = Fault.model("no such call"), Fault.tool("failed")
    found = ends.turns([attempt([None, tool, None, None]), attempt([None, None]),
                        attempt([model, model, None], right=0.0, stop=Stop.TURNS)])
    assert found == pytest.approx({"success": 2 / 3, "bad turns": 2 / 3, "form": 2 / 3, "calls": 2.0, "failed": 0.5})


def test_an_attempt_with_a_malformed_turn_is_not_in_form_even_if_it_is_right():
    assert ends.turns([attempt([Fault.model("no"), None]), attempt([None])])["form"] == 0.5


def test_what_is_no_box_overlaps_nothing_and_has_no_size():
    """The target has 4 cells: the box itself; one of 16 around it, which overlaps a quarter; and words."""
    there = [attempt([], final=said, box=(1, 1, 3, 3)) for said in ("1133", "0044", "no")]
    found = ends.regions(there)
    assert found["hit"] == pytest.approx(2 / 3)
    assert found["overlap"] == pytest.approx((1 + 0.25) / 3)
    assert found["size error"] == pytest.approx(np.log(4) / 2)


def test_form_and_calls_are_of_the_last_share_of_the_groups(tmp_path):
    """Four groups of two attempts: the last quarter is the last group, where one of two is in form."""
    old = {"attempts": [0, 1], "stops": ["done"] * 2, "faults": [{}, {}], "turns": [9, 9], "rewards": [1.0, 1.0]}
    new = {**old, "faults": [{"model": 1}, {"tool": 2}], "turns": [3, 5]}
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(x) + "\n" for x in (old, old, old, new)))
    assert costs.form(tmp_path) == 0.5
    assert costs.calls(tmp_path, 0.25) == {"calls": 3.0, "failed": 1.5}
    assert costs.form(tmp_path, 0.5) == 0.75


def test_read_tokens_are_those_of_training_for_each_environment_step(tmp_path):
    lines = [{"step": 0, "rollouts": 8, "env_steps": 10, "prefill": 100},
             {"step": 1, "rollouts": 8, "env_steps": 40, "prefill": 600},
             {"step": 2, "rollouts": 16, "eval/audit": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert costs.read_tokens(tmp_path) == 15.0
