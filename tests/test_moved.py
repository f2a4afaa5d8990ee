"""Modules that moved are found at their old names, for one version and with one warning."""

import importlib
import subprocess
import sys

import pytest

from isocost.moved import MODULES
from isocost.runs.names import today


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_every_old_name_has_what_its_module_has():
    for old, new in MODULES.items():
        there, now = importlib.import_module(old), importlib.import_module(new)
        public = {k: v for k, v in vars(now).items() if not hasattr(v, "__path__") and k[:2] != "__"}
        assert all(getattr(there, k, None) is v for k, v in public.items()), old


def test_one_process_is_warned_once_and_at_its_own_line(tmp_path):
    file = tmp_path / "mine.py"
    for old, new in (("isocost.tasks.grade", "isocost.tasks.verify.grade"),
                     ("isocost.tasks.verify", "isocost.tasks.verify.verifiers")):      # and a room of that name
        name = "Grader" if old.endswith("grade") else "numeric"
        file.write_text(f"from {old} import {name}\nfrom isocost.planner.rollouts import Plan\n")
        done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True)
        assert done.stderr.count("FutureWarning") == 1
        assert f"{file}:1: FutureWarning: {old} is {new} now" in done.stderr


def test_a_recorded_function_has_the_name_of_its_module_now():
    assert today({"fn": "isocost.tasks.sums:f", "x": [1]}) == {"fn": "isocost.tasks.builtin.sums:f", "x": [1]}
    assert today({"fn": "isocost.parts.loss:plus"}) == {"fn": "isocost.methods.isoeasy:plus"}
