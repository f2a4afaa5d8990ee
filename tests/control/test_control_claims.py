"""Claims of control: rows are complete, the gate comes before the seal, and answers follow from the kept numbers."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from claim_records import follows
from experiments import control_claims as claims
from experiments.control.measures import overestimation
from isocost.control.data import read
from isocost.control.networks import Params
from isocost.control.tasks import open_task, random_return
from isocost.laws.tracks import Track
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, load_policy, run_stack

KEPT = sorted(claims.KEPT.glob("*.json"))


@pytest.mark.parametrize("file", KEPT, ids=lambda f: f.stem)
def test_a_record_is_that_of_its_row_and_its_answers_follow(file):
    of, record = claims.rows()[file.stem], json.loads(file.read_text())
    follows(of, record)
    assert not {*record.get("at_equal_flop", ())} - {a["says"] for a in record.get("answers", ())}


def test_claims_that_share_runs_share_task_and_settings():
    """Else a run of one would be refused, or taken for another's."""
    rows = claims.rows()
    for of in rows.values():
        one = rows[of.runs or of.claim.name]
        assert (of.task, of.claim.cost, of.mixture, of.grid) == (one.task, one.claim.cost, one.mixture, one.grid)
        for other in rows.values():
            if other.home == of.home:
                assert all(of.arms[k] == other.arms[k] for k in set(of.arms) & set(other.arms)), of.claim.name


def test_every_arm_has_a_task_and_a_method_that_there_are():
    """Else a pilot would end with an error after the arms before it were trained."""
    for of in claims.rows().values():
        for own in of.arms.values():
            assert open_task(own.get("task", of.task)).space.observation > 0
            assert claims.methods.agent(own["method"]).name


def test_each_seed_has_a_set_of_its_own_that_is_made_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = claims.rows()
    peaks, mixed = rows["fql_flow"], replace(rows["weighting"], mixture={"random": 0.5, "navigate": 0.5, "steps": 200})
    for of in (peaks, mixed):
        arm = next(iter(of.arms.values()))
        files = [claims.set_of(of, arm, seed) for seed in (0, 1, 0)]
        assert files[0] == files[2] != files[1]
        one, two = (read(claims.Path(f), open_task(of.task)) for f in files[:2])
        assert one.hash != two.hash
    action = read(claims.Path(claims.set_of(peaks, arm, 0)), open_task("bandit")).rows[:, 1:3].numpy()
    assert abs((action.sum(1) > 0).mean() - 0.5) < 0.03 and np.abs(np.abs(action).mean() - 0.5) < 0.02
    narrow = replace(peaks, mixture={**peaks.mixture, "peaks": 0.05})      # the row was changed after its pilot
    action = read(claims.Path(claims.set_of(narrow, arm, 0)), open_task("bandit")).rows[:, 1:3].numpy()
    assert abs(action[action.sum(1) > 0].std() - 0.05) < 0.005


def test_an_arm_can_have_a_set_of_its_own_and_updates_on_it_before_its_samples(tmp_path, monkeypatch):
    """Two sets for all seeds; an arm without a use for one has none, and one that names shares has another."""
    monkeypatch.chdir(tmp_path)
    mix = {"random": 0.5, "navigate": 0.5, "steps": 200, "sets": 2}
    each = {"method": "wsrl", "sigma": 1.0, "batch": 16, "width": 16, "members": 2, "rate": 1e-3, "offline_updates": 3,
            "sets": {"tempo.warmup": "4"}}
    arms = {"a": each, "b": each | {"mixture": mix | {"random": 0.2, "navigate": 0.8}, "samples": 16}}
    of = claims.ControlClaim(replace(claims.rows()["sharsa_horizon"].claim, name="x", cost="32-env-steps"), arms,
                             "maze:8", mixture=mix)
    assert claims.set_of(of, {"method": "sac"}, 0) is None
    assert claims.set_of(of, each, 0) == claims.set_of(of, each, 2) != claims.set_of(of, each, 1)
    assert claims.set_of(of, arms["b"], 0) != claims.set_of(of, each, 0)
    pilots = {claims.set_of(of, each, claims.FIRST + k) for k in range(3)}     # none is a set of the claim's
    again = {claims.set_of(replace(of, mixture=mix | {"first": 7}), each, k) for k in range(3)}
    assert len(pilots) == len(again) == 2 and not (pilots | again) & {claims.set_of(of, each, k) for k in range(3)}
    made = claims.trained(of, "pilot", [0])
    ends = {k: claims.read_json(f[0] / "end.json") for k, f in made.items()}
    assert {k: (e["samples"], e["updates"]) for k, e in ends.items()} == {"a": (32, 31), "b": (16, 15)}
    track = claims._track(made["a"][0])
    assert list(track.cost[:3]) == [0, 1, 2] and track.end == 32      # untrained; after the set; in the warm-up


def test_overestimation_is_against_the_return_that_the_policy_has(tmp_path):
    """On the lock: the value of the start less 0.99^3 if the best actions are the right ones, else less 0."""
    task, seen = open_task("lock:4"), np.arange(4.0)[:, None]
    for seed, samples in ((0, 300), (1, 900)):
        folder = tmp_path / str(seed)
        job = ControlJob("a", "lock:4", "dqn", seed, {"env-steps": samples}, Arm(batch=16, width=16, rate=3e-3), ())
        run_stack([job], [folder])
        loop = load_policy(folder).loop
        value = Params(loop.networks, loop.weights)("critic", torch.eye(4)[None])[0, 0].detach().numpy()
        opened = (value.argmax(-1) == task.right(seen)[:, 0]).all()
        assert overestimation(folder) == pytest.approx(value[0].max() - 0.99**3 * opened, abs=1e-6)
    assert opened


def test_a_return_over_the_set_is_the_share_of_the_gap_that_is_closed(monkeypatch):
    """The set is at 0.4 and the run at 0.7: half of what is left."""
    of, low = claims.rows()["iql_mixed"], random_return("maze:8")
    mean = low + 0.4 * (open_task("maze:8").reference - low)
    track = Track("a", 0, np.array([0.0, 1.0]), np.array([0.7, 0.7]), False)
    monkeypatch.setattr(claims, "_track", lambda folder: track)
    monkeypatch.setattr(claims, "read_json", lambda file: {"data": {"return": {"mean": mean}}})
    assert claims.numbers(of, "iql", claims.Path("f")) == {"return over the set at mean": pytest.approx(0.5)}


def test_at_equal_flop_both_arms_are_read_up_to_what_the_cheaper_one_took(monkeypatch):
    """The dear one rises by 0.5 a FLOP to 1 at 2: at sixteen even points up to 1 its mean is 17 / 64."""
    def track(folder, unit=""):
        cost, seed = np.array([0.0, 2.0 if folder.parts[0] == "fql" else 1.0]), int(folder.name)
        return Track("a", seed, cost, cost / 2 if cost[1] == 2 else np.array([0.1, 0.1]) * seed, False)

    monkeypatch.setattr(claims, "_track", track)
    made = {arm: [claims.Path(arm, str(seed)) for seed in (0, 1, 2)] for arm in ("fql", "flowbc")}
    (found,) = claims._at_equal_flop(claims.rows()["fql_flow"], made, {"fql": 2.0, "flowbc": 1.0}).values()
    assert (found["of"], found["less"]) == (pytest.approx(17 / 64), pytest.approx(0.1))
    assert not claims._at_equal_flop(claims.rows()["fql_flow"], made, {"fql": 1.0, "flowbc": 1.0})


def test_the_gate_reads_a_run_as_the_questions_do():
    """A run that is 1 behind its middle: 0.5 in the mean over sixteen points, and 1 at its end."""
    track = Track("a", 0, np.array([0.0, 0.5, 0.5001, 1.0]), np.array([0.0, 0.0, 1.0, 1.0]))
    asked = claims.rows()["nstep_longer"]
    end = replace(asked.claim.questions[0], at=1.0)
    mean = claims._as_asked(asked, track)
    assert mean.reward[-1] == pytest.approx(0.5) and mean.reward[0] == 0.0 and mean.end == 1.0
    assert claims._as_asked(replace(asked, claim=replace(asked.claim, questions=(end,))), track) is track
