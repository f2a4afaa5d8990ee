"""What pages and examples of commit 7782f415 import works unedited, with one warning; a run begun then goes on."""

import hashlib
import importlib
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from isocost import moved
from isocost.runs.files import read_json
from programs import Shell

HERE = Path(__file__).parent
OLD = HERE / "fixtures" / "examples_7782f415"      # those that have changed since
NOW = HERE.parent / "examples"
# Every `from isocost.X import ...` of the README, pages and examples of 7782f415, a module a line.
SHOWN = """
isocost: chance methods train
contract: conflicts
contract.check: check
envs.rooms: Rooms Walk problems
errors: UserError
laws.curves: curves
laws.fit: fit_law
laws.papers.data: fit_gap times_less
laws.papers.inference: Saturation allot best_of best_temperatures worth_of_size
laws.papers.known: LAWS Points estimate
laws.papers.size: SizeLaw SizeRun fit_size
laws.papers.strategy: by_difficulty
laws.papers.value: DataLaw Lines cheapest rounded
laws.papers.verification: bilevel spreads
ledger: Ledger
local.world: open_world
loop: train
meter: Meter
methods: Card grpo
ops: per_group siblings_of spread
parts: enrich play
parts.reward: verified
planner: forecast
planner.learning_rate: fit_rate probe_results
planner.rollouts: Plan
recipe: tune
report.fit: left_out residuals
stats.forms: SIGMOID fit_form risen
stats.passk: pass_at
steps.evaluate: evaluate_model
steps.events: Observer
steps.settings: setting_with
tasks.grade: Grader
tasks.load: load_problems
traits: bounds trait
types: Fault Group Message Place Problem Role Sampling Score Segment Shown Stop
worlds: toy
"""
# The examples of 7782f415 that may import the package, with the start of their SHA-256.
EXAMPLES = {
    "first_run.py": "68043b919bcb62e1",
    "imported_log.py": "e0d8ffd77e05ecfb",
    "openai_server.py": "c6a055322b229c3a",
    "own_environment.py": "68a909ce422d41c5",
    "own_harness.py": "97ce874873da45db",
    "own_method.py": "7c21c015e54a804e",
    "own_reward.py": "85d732d4c5b89c65",
    "own_trainer.py": "3698d73012da19dc",
    "plan_object.py": "e20861d094300d87",
}


@pytest.mark.parametrize("line", SHOWN.strip().splitlines())
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_every_import_that_a_page_of_then_shows_works(line):
    module, _, names = line.partition(": ")
    module = "isocost" if module == "isocost" else f"isocost.{module}"
    for name in names.split():
        exec(f"from {module} import {name}", {})


def test_the_examples_of_then_are_kept_unedited():
    for name, digest in EXAMPLES.items():
        kept = OLD / name if (OLD / name).exists() else NOW / name
        assert hashlib.sha256(kept.read_bytes()).hexdigest().startswith(digest), (
            f"{name} has changed: keep the one of 7782f415 in tests/fixtures/examples_7782f415")


def test_an_example_of_then_that_has_changed_since_runs(tmp_path, programs_at_once):
    """The others run in test_examples.py."""
    assert {p.name for p in OLD.glob("*.py")} == {"openai_server.py", "own_harness.py"}
    done = Shell(tmp_path, programs_at_once).run(["python", OLD / "openai_server.py"])
    assert done.code == 0 and "over HTTP: pass@1 0.4" in done.out and done.err.count("FutureWarning") == 1, done
    done = Shell(tmp_path, programs_at_once).run(["isocost", "envs", "check", OLD / "own_harness.py"])
    assert done.code == 0 and "BROKEN" not in done.out, done


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_public_name_is_found_at_its_old_name_with_one_warning_for_all():
    for home, names in moved.RENAMED.items():
        assert names and not {*names} & {*names.values()}
        old = next((o for o, n in moved.MODULES.items() if n == home), home)
        for name, today in names.items():
            assert getattr(importlib.import_module(old), name) is getattr(importlib.import_module(home), today)
    code = "from isocost.ledger import Line; from isocost.promise import Finding; from isocost.steps.fit import Law"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.count("Warning") == 1
    assert "isocost.ledger.Line is isocost.ledger.JournalLine now; old import paths end with the next" in done.stderr
    with pytest.raises(ImportError, match="cannot import name 'Other'"):
        exec("from isocost.ledger import Other", {})


def test_a_run_that_began_with_the_users_own_method_goes_on(tmp_path, monkeypatch, ran):
    """`median.py` is part of the run's identity, so it imports what stood at 7782f415."""
    with tarfile.open(HERE / "fixtures" / "begun_method_7782f41.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / "begun")
    before = (metrics := Path("method", "metrics.jsonl")).read_bytes()
    assert read_json(Path("method", "end.json"))["steps"] == 47
    said = ran("train", "./median.py", "--model", "tiny", "--lora", 1, "--data", "sums:base=easy,count=240",
               "--budget", "2000-rollouts", "-n", 4, "-B", 2, "--evaluations", 2, "--out", "method")
    assert "held-out reward, test split 0.5113" in said     # as the code of then ends it
    assert metrics.read_bytes().startswith(before)
    end = read_json(Path("method", "end.json"))
    assert (end["steps"], end["reason"], end["bill"]["train"]["rollouts"]) == (250, "spent", 2000)
