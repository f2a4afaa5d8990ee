"""Logs of value-based control: from a folder of monitor files to a plan page and a configuration."""

import csv
import re

import pytest

from isocost.trainers import cleanrl, sb3
from isocost.trainers.driving.export import ControlPrescription
from logs_to_import import LOGS, said

SB3 = LOGS / "sb3_control"
COSTS = ("--sample-cost", "0.02s", "--update-cost", "0.01s")


def fill(path, cells):
    """The table with the settings of each run, as a user fills it in."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, **cells(row["folder"])} for row in rows)


def of(folder):
    updates, seed = re.fullmatch(r"steps(\d)-s(\d)", folder).groups()
    return {"updates per sample": updates, "batch": "64", "rate": "1e-3", "seed": seed}


@pytest.fixture
def study(tmp_path):
    out = tmp_path / "s"
    said("import", SB3, "--control", "Pendulum-v1", "--out", out)
    fill(out / "arms.csv", of)
    return out


def test_monitor_files_become_a_table_then_a_study_then_a_plan_and_a_configuration(tmp_path, study):
    asked = said("import", SB3, "--control", "Pendulum-v1", "--out", tmp_path / "empty")
    assert "9 runs found" in asked and "fill in updates per sample, batch, rate in" in asked
    assert (tmp_path / "empty" / "arms.csv").read_text().splitlines()[:2] == [
        "folder,updates per sample,batch,rate,seed", "steps1-s0,,,,0"]
    made = said("import", SB3, "--control", "Pendulum-v1", "--out", study)
    assert made.count("pilot-batch64-rate0.001-sigma") == 9 and "sigma 4, batch 64, rate 0.001, seed 2" in made
    assert "never reach" in said("fit", study)
    plan = said("plan", study, "--return", "-900", *COSTS)
    assert "cheapest sigma: " in plan and "samples to a return of -900" in plan and "batch 64 is kept" in plan
    text = said("export", study, "--to", "sb3")
    assert "Pendulum-v1:\n  n_timesteps: " in text and "\n  batch_size: 64\n" in text
    said("report", study)
    assert "Pendulum" in (study / "study.json").read_text() and "plot-curves" in (study / "report.html").read_text()
    assert "its trainer is yours" in said("pilot", study, code=2)
    assert "no forecast of it is sealed" in said("audit", study, code=2)
    assert "unknown target 'trl'" in said("export", study, "--to", "trl", code=2)


@pytest.mark.parametrize(("column", "value", "why"), [
    ("batch", "many", "line 2: batch is 'many', expected a number"),
    ("updates per sample", "0", "sigma is 0 updates per sample, expected a number above 0"),
    ("updates per sample", "-1", "sigma is -1 updates per sample"),
    ("seed", "1", "are both batch64-rate0.001-sigma1, seed 1"),
])
def test_a_table_that_does_not_fit_is_named_by_its_line(study, column, value, why):
    fill(study / "arms.csv", lambda folder: {column: value} if folder == "steps1-s0" else {})
    assert why in said("import", SB3, "--control", "Pendulum-v1", "--out", study, code=2)
    assert not (study / "study.json").exists()


def test_a_plan_of_logs_needs_a_cost_and_one_unit(study):
    said("import", SB3, "--control", "Pendulum-v1", "--out", study)
    assert "a sample costs nothing" in said("plan", study, "--update-cost", "0.01s", code=2)
    two = ("--sample-cost", "0.02s", "--update-cost", "9flop")
    assert "a plan counts in one unit" in said("plan", study, *two, code=2)
    assert "--seeds is of a pilot" in said("plan", study, "--seeds", 4, *COSTS, code=2)
    assert "the largest sigma that was run is taken" in said("plan", study, "--return", "-900")
    assert "n_timesteps" in said("export", study, "--to", "sb3")
    assert "--n has no use with --control" in said("import", SB3, "--control", "x", "--n", 4, "--out", study, code=2)


def test_a_table_of_runs_is_read_from_one_csv(tmp_path):
    """An export of Open RL Benchmark: run, global_step and episodic_return."""
    rows = ["run,global_step,episodic_return"]
    for run in ("sac-s0", "sac-s1"):
        rows += [f"{run},{step},{step / 10}" for step in range(100, 1100, 100)]
    log = tmp_path / "export.csv"
    log.write_text("\n".join(rows) + "\n")
    out = tmp_path / "s"
    columns = [w for pair in ("run=run", "step=global_step", "reward=episodic_return") for w in ("--map", pair)]
    assert "2 runs found" in said("import", log, "--control", "Hopper-v4", "--out", out, *columns)
    fill(out / "arms.csv", lambda folder: {"updates per sample": "1", "batch": "256", "rate": "3e-4"})
    made = said("import", log, "--control", "Hopper-v4", "--out", out, *columns)
    assert made.count("1,000 samples; last return 100") == 2


TABLE = ("|param|value|\n|-|-|\n|exp_name|{name}|\n|seed|3|\n|env_id|Hopper-v4|\n|buffer_size|1000000|\n"
         "|batch_size|256|\n|q_lr|0.001|\n|policy_lr|0.0003|\n|num_envs|1|\n{more}")


@pytest.mark.parametrize(("name", "more", "sigma"), [
    ("sac_continuous_action", "", 1.0), ("dqn", "|train_frequency|10|\n", 0.1), ("own", "", None)])
def test_cleanrl_says_its_batch_and_rate_and_as_far_as_known_its_updates(tmp_path, monkeypatch, name, more, sigma):
    """The table of hyperparameters of CleanRL 1.0.0: one update per step in sac_continuous_action.py."""
    rows = [{"step": 100 * k, "wall": float(k), cleanrl.RETURN: 10.0 * k} for k in range(1, 6)]
    text = {"hyperparameters/text_summary": TABLE.format(name=name, more=more)}
    monkeypatch.setattr(cleanrl, "board", lambda found, apart: (rows, text))
    (log,) = cleanrl.read(tmp_path, {})
    assert (log.about.get("sigma"), log.about["batch"], log.about["rate"], log.facts["seed"]) == (sigma, 256, 1e-3, 3)
    assert [(p.rollouts, p.reward) for p in log.train][-1] == (500, 50)


def test_a_configuration_keeps_updates_per_sample_as_a_ratio():
    p = ControlPrescription("s", "Pendulum-v1", "sac", 0.5, 128, 7e-4, 64, 3000, 5, "Expected: much.")
    text = sb3.write_control(p)
    assert "train_freq: 2\n  gradient_steps: 1" in text and "net_arch=[64, 64]" in text
    assert "learning_rate: !!float 0.0007" in text and "# Expected: much." in text
