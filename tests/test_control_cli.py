"""Runs of control from the command line: trained, continued, listed, measured again, and used without the trainer."""

import json

import numpy as np
import pytest

import isocost
from isocost.control.tasks import open_task, random_return
from isocost.errors import UserError
from logs_to_import import said

TRAIN = ("train", "sac", "--control", "bandit", "--updates-per-sample", 2, "--batch", 16, "--width", 16, "--budget",
         "180-env-steps", "--set", "tempo.warmup=100", "--evaluations", 8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two seeds in one stack, and what the command printed."""
    out = tmp_path_factory.mktemp("runs") / "r"
    return out, said(*TRAIN, "--seeds", 2, "--out", out)


def test_each_seed_has_a_record_and_two_updates_for_each_sample_after_the_warm_up(trained):
    out, text = trained
    assert text.count("180 samples, 160 updates") == 2 and text.count("record: ") == 2
    abouts = [json.loads((out / f"seed-{seed}" / "run.json").read_text()) for seed in (0, 1)]
    assert [a["seed"] for a in abouts] == [0, 1]
    assert abouts[0]["arm"] == {"batch": 16, "rate": 3e-4, "sigma": 2.0, "width": 16}
    assert abouts[0]["agent"]["tempo"]["warmup"] == 100


def test_as_many_evaluations_are_made_as_are_asked_for(trained):
    """Besides the start: eight from the eighth sample on, each later than the last by (180 / 8)^(1/7) = 1.560."""
    lines = [json.loads(x) for x in (trained[0] / "seed-0" / "metrics.jsonl").read_text().splitlines()]
    assert [x["env_steps"] for x in lines if "return" in x] == [0, 8, 12, 19, 30, 47, 74, 115, 180]


def test_the_same_command_again_changes_nothing_and_another_budget_is_refused(trained):
    out, text = trained
    before = (out / "seed-0" / "metrics.jsonl").read_bytes()
    assert said(*TRAIN, "--seeds", 2, "--out", out) == text
    assert (out / "seed-0" / "metrics.jsonl").read_bytes() == before
    assert "budget differs" in said(*TRAIN, "--seeds", 2, "--out", out, "--budget", "300-env-steps", code=2)


def test_the_runs_are_listed_with_their_arm(trained):
    text = said("ls", trained[0])
    rows = [row.split() for row in text.splitlines() if "seed-" in row]
    assert len(rows) == 2 and all(row[1] == "sac" and "180" in row and row[-1] == "spent" for row in rows)


def test_a_run_has_no_verdict_and_nothing_is_said_to_be_missing_of_it(trained):
    told = said("verdict", trained[0] / "seed-0", code=2)
    assert "seed-0 is of value-based control: its runs are short and have no verdict" in " ".join(told.split())


def test_a_policy_acts_without_its_trainer_and_eval_measures_it(trained):
    run = trained[0] / "seed-1"
    policy = isocost.load_policy(run)
    one = policy.act([1.0])
    assert one.shape == (2,) and (np.abs(one) <= 1).all()
    np.testing.assert_array_equal(policy.act(np.ones((3, 1))), [one] * 3)
    with pytest.raises(UserError, match=r"has 1 values, got an array of shape \(2,\)"):
        policy.act([1.0, 0.0])
    found = json.loads(said("eval", run, "--samples", 5, "--json"))
    worth = float(open_task("bandit").value(one[None])[0])         # of one step, from the only state
    assert [found["mean"], found["low"], found["high"]] == pytest.approx([worth] * 3) and found["episodes"] == 5
    assert found["random"] == pytest.approx(random_return("bandit"))
    assert found["scaled"] == pytest.approx((worth - found["random"]) / (1 - found["random"]))
    assert f"{worth:.4g} [" in said("eval", run)


def test_a_folder_of_seeds_is_measured_with_an_interval_over_seeds(trained):
    found = json.loads(said("eval", trained[0], "--samples", 5, "--json"))
    means = [r["mean"] for r in found["runs"]]
    assert len(means) == 2 and means[0] != means[1] and found["mean"] == pytest.approx(np.mean(means))
    half = 6.313752 * abs(means[0] - means[1]) / 2          # Student's t of 1 degree of freedom, sd / sqrt 2
    assert (found["low"], found["high"]) == pytest.approx((found["mean"] - half, found["mean"] + half), rel=1e-5)
    assert "over 2 runs" in said("eval", trained[0], "--samples", 5)


def test_runs_of_several_settings_are_not_measured_together(trained, tmp_path):
    for seed, sigma in ((0, 2.0), (1, 4.0)):
        about = json.loads((trained[0] / f"seed-{seed}" / "run.json").read_text())
        about["arm"]["sigma"] = sigma
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "run.json").write_text(json.dumps(about))
    assert "0 and 1 differ in their arm" in said("eval", tmp_path, code=2)


def test_a_run_stops_at_an_amount_and_goes_on_to_the_same_bytes(trained, tmp_path):
    out, flop = tmp_path / "r", json.loads((trained[0] / "seed-0" / "run.json").read_text())["update"]["flop"]
    assert "--stop-at" in said(*TRAIN, "--out", out, "--stop-at", "150-env-steps")
    end = json.loads((out / "end.json").read_text())
    assert (end["reason"], end["samples"], end["stop_at"]["spent"]) == ("stopped", 115, 115)
    said(*TRAIN, "--out", out, "--stop-at", f"{200 * flop}flop")
    assert json.loads((out / "end.json").read_text())["updates"] == 160
    assert (out / "metrics.jsonl").read_bytes() == (trained[0] / "seed-0" / "metrics.jsonl").read_bytes()
    assert "a run of control counts" in said(*TRAIN, "--out", tmp_path / "x", "--stop-at", "9-rollouts", code=2)


@pytest.mark.parametrize("more, told", [
    (("--updates-per-sample", 0), "updates per sample are 0, expected above 0"),
    (("--batch", 24), "batch is 24, expected a multiple of 16: take 32"),
    (("--batch", 256), "batch is 256, and the replay of a run of 180 samples never holds as many"),
    (("--control", "bandits"), "bandit"),
    (("--control", "lock:8"), "sac"),
    (("--set", "tempo.warmup"), "has no value; write SEAM.NAME=VALUE"),
    (("--env", "rooms"), "--env has no use with --control"),
])
def test_what_cannot_be_trained_is_one_line_and_leaves_no_folder(tmp_path, more, told):
    assert told in said(*TRAIN, *more, "--out", tmp_path / "x", code=2)
    assert not (tmp_path / "x").exists()


def test_options_of_control_need_a_task(tmp_path):
    assert "add --control TASK" in said("train", "grpo", "--updates-per-sample", 2, code=2)
    assert "is not a run record" in said("eval", tmp_path, code=2)
