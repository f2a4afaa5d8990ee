"""A plan of updates on a set and then samples: the law with a planted truth, and a study from plan to audit."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import control_offline
from isocost.control import data
from isocost.control.tasks import open_task
from isocost.disk.jsonfile import line
from isocost.errors import UserError
from isocost.laws.value_fit import Arrivals, ControlPrice, arrivals, fit_control
from isocost.planner.control import prescribe
from isocost.planner.control.outcome import PRESCRIBED, audit_control, mean_arrival, runs_to_train, seal_control
from isocost.planner.control.pilot import ControlCosts, plan_control_pilot
from isocost.planner.control.prescribe import Wish, prescribe_control, unidentified
from isocost.runs.arm import Arm
from isocost.steps.control import profile as profiles
from isocost.steps.control import train as trains
from isocost.steps.control.plan import priced_by
from isocost.steps.kinds import audit, own_step, plan
from isocost.steps.study import StudyRecord
from logs_to_import import said
from truth.control import OfflineLaw, PlantedControl

# of U / 1000
TRUTH = PlantedControl(OfflineLaw(200.0, 2000.0, 0.5), (64, 0.0), (1e-3, 0.0), spread=0.15, noise=0.005)
CENTRE, GRID = Arm(sigma=2.0, batch=64, rate=1e-3, width=64), (125, 250, 500, 1000, 2000)
PRICE = ControlPrice(0.5, 0.25, 0.0, "seconds", 0.5)        # a sample with its two updates: 1; an update on the set 0.5


def planted(arm, seed, samples, truth=TRUTH):
    at = Arm(sigma=arm["offline"] / 1000, batch=arm["batch"], rate=arm["rate"])
    rng = np.random.default_rng([seed, int(arm["offline"]), round(1e6 * arm["rate"])])
    return replace(truth.run(at, seed, samples, rng), arm=arm)


def sweep(samples=6000, seeds=6):
    pilot = plan_control_pilot(CENTRE, samples, PRICE, None, sigmas=GRID, seeds=seeds)
    return pilot, [planted(r.arm, r.seed, r.samples) for r in pilot.runs]


def test_the_cheapest_number_of_updates_on_the_set_is_that_of_the_truth():
    """U / 2 + 200 + 2000 exp(-U / 500) is least where 4 exp(-U / 500) = 1/2, at U = 500 ln 8 = 1,040: 970 in all."""
    pilot, curves = sweep()
    assert len(pilot.runs) == 5 * 6 and pilot.cost == pytest.approx(6 * (5 * 6000 + 0.5 * sum(GRID)))
    law = fit_control(curves, 0.7)
    assert law.over == "offline" and law.floor[0] == pytest.approx(200, rel=0.25)
    best = law.cheapest(PRICE)
    assert best.low < 1039.7 < best.high and best.high < 4 * best.low
    assert float(law.cost(PRICE, np.array([1039.7]))[0, 0]) == pytest.approx(969.9, rel=0.1)
    found = prescribe_control(curves, Wish(PRICE, wanted=0.7))
    assert not found.refused and found.arm["offline"] == float(f"{best.value:.2g}") and found.arm["sigma"] == 2.0
    assert found.cost == pytest.approx(0.5 * found.arm["offline"] + found.samples)
    assert found.arrival.low < np.exp(TRUTH.mean(found.arm.but(sigma=found.arm["offline"] / 1000))) < found.arrival.high
    dear = law.cheapest(replace(PRICE, first=2.0))
    assert dear.value < best.value          # dearer updates on the set: fewer of them
    late = [replace(planted(c.arm.but(offline=500), c.seed, 6000), arm=c.arm) if c.arm["offline"] == 2000 else c
            for c in curves]
    rivals = prescribe_control(late, Wish(PRICE, wanted=0.7)).rivals
    assert {k: arm["offline"] for k, arm in rivals.items()} == {
        "the pilot's best": 1000, "the most offline updates": 2000}


def test_a_set_that_does_not_help_and_a_grid_that_ends_too_early_are_not_identified():
    flat = [planted(c.arm, c.seed, 6000, TRUTH.lasting(law=OfflineLaw(500.0, 0.0, 1.0))) for c in sweep()[1]]
    assert "fall as offline updates rise in" in unidentified(fit_control(flat, 0.7), PRICE)
    law = fit_control(sweep()[1], 0.7)
    assert "run 8000 offline updates too" in unidentified(law, replace(PRICE, first=1e-4))
    assert prescribe_control(flat, Wish(PRICE, wanted=0.7)).refused


def test_a_run_that_has_the_return_at_its_first_evaluation_is_censored_from_below():
    """30 % of a normal lie below the first evaluation: taken as arrivals there they pull the mean up by 0.04."""
    truth, spread = np.random.default_rng(0).normal(6.0, 0.3, 4000), 0.3
    bound = float(np.quantile(truth, 0.3))
    time, early = np.maximum(truth, bound), truth < bound
    seen = Arrivals(time, np.ones(4000, bool), early)
    assert mean_arrival(seen, spread)[0] == pytest.approx(6.0, abs=0.012)
    assert time.mean() - truth.mean() > 0.03 and mean_arrival(replace(seen, early=None), spread)[0] > 6.03
    arm = Arm(sigma=2.0, batch=64, rate=1e-3, offline=500)
    curve = planted(arm, 0, 6000)
    assert arrivals([curve], -1.0).side.tolist() == [-1] and arrivals([curve], 2.0).side.tolist() == [1]
    assert arrivals([replace(curve, arm=arm.but(offline=None))], -1.0).side.tolist() == [0]     # of samples alone


def test_runs_that_mostly_have_the_return_at_their_first_evaluation_miss_only_if_that_is_too_soon():
    found = prescribe_control(sweep()[1], Wish(PRICE, wanted=0.7))
    forecast = seal_control(found, 0.15, {})

    def verdict(soon):
        curves = [replace(planted(r.arm, r.seed, r.samples), run=r.name) for r in runs_to_train(found)[PRESCRIBED]]
        curves[1:] = [replace(c, samples=soon * np.array([1, 2, 3]), returns=np.ones(3)) for c in curves[1:]]
        return audit_control(forecast, curves, dict.fromkeys((c.run for c in curves), forecast.seal))

    said = verdict(found.arrival.value)
    assert said.verdict == "cannot tell" and "too many had it at their first evaluation" in said.reason
    assert verdict(found.arrival.low / 9).verdict == "miss"


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A profiled study whose runs are planted."""
    def run_all(folder, runs, of, title, workers, observer):
        assert of.data and of.sets == {"tempo.warmup": "100"}
        for run in runs:
            where, curve = folder / run.name, planted(run.arm, run.seed, run.samples)
            where.mkdir(parents=True, exist_ok=True)
            (where / "metrics.jsonl").write_text("".join(line({"step": i, "env_steps": s, "return": r}) + "\n" for i, (
                s, r) in enumerate(zip(curve.samples, curve.returns, strict=True))))
            (where / "run.json").write_text(json.dumps({
                "schema": 2, "name": run.name, "kind": "control", "purpose": run.purpose, "seed": run.seed,
                "seal": of.seal, "arm": run.arm.but(offline=None).data(), "task": {"name": of.task},
                "offline": {"updates": run.arm["offline"]}, "budget": {"env-steps": run.samples}}))
            (where / "end.json").write_text('{"schema": 2, "reason": "spent"}')

    monkeypatch.setattr(trains, "run_all", run_all)
    task, out, file = open_task("maze:4"), tmp_path / "s", tmp_path / "set.parquet"
    data.write(data.make(task, {"random": 1.0}, 200, 0), task.space, file)
    out.mkdir()
    of = profiles.FromSet(str(file), GRID, sets=("tempo.warmup=100",)).asked("maze:4")
    (out / "study.json").write_text(json.dumps({
        "schema": 2, "kind": "control", "source": "control", "task": "maze:4", "method": "wsrl", "seed": 0,
        "phases": {}, **of}))
    costs = ControlCosts(0.5, 0.25, 0.0, 1e6, 0.0, first_seconds=0.5, first_flop=4e6)
    found = profiles.ControlProfile(
        "maze:4", "wsrl", 64, -1.0, 1.0, 64, 1e-3, 6000, ((1e-3, 0.2, 0.5),),
        Arm(sigma=2.0, batch=256, rate=3e-4, width=64), costs, 1.0, GRID)
    (out / "profile.json").write_text(json.dumps({"schema": 2, **found.to_dict()}))
    return out


def read(path):
    return StudyRecord.read(path)


def test_a_study_of_updates_on_a_set_goes_from_plan_to_audit(study):
    with pytest.raises(UserError, match="compares numbers of updates before the first sample"):
        plan(read(study), {"sigma": (1.0, 2.0, 4.0)})
    pilot = plan(read(study), {"wanted": 0.7, "workers": 1})
    assert {r.arm["offline"] for r in pilot.pilot.runs} == set(GRID) and "125, 250, 500" in pilot.pilot.why
    assert "isocost pilot" in str(pilot.rows())
    price = priced_by(read(study), {"update_cost": "0.25s"})[1]
    assert (price.sample, price.update, price.first) == (0.5, 0.5, 0.75), "an update on the set has the cost, too"
    own_step(read(study), "pilot", {}, ())(read(study))
    assert "isocost fit" in str(plan(read(study), {}).rows())
    law = own_step(read(study), "fit", {}, ())(read(study))
    assert "125 offline updates" in str(law.rows()) and "best batch" not in str(law.rows())
    found = plan(read(study), {})
    assert not found.plan.refused and "offline updates, then 2 updates per sample" in str(found.rows())
    own_step(read(study), "train", {}, ())(read(study))
    assert "offline updates" in json.loads((study / "forecast.json").read_text())["falsifier"]
    outcome = audit(read(study))
    assert outcome.verdict == "hit" and {a.name for a in outcome.audit.arms} == {"prescribed", "the pilot's best"}
    assert outcome.audit.arms[1].arm["offline"] == 2000         # the most, which no other rival is then
    said("report", study)
    assert "offline updates (log scale)" in (study / "report.html").read_text()


def test_another_set_than_the_study_began_with_is_found(study):
    file, task = study.parent / "set.parquet", open_task("maze:4")
    data.write(data.make(task, {"random": 1.0}, 200, 1), task.space, file)
    from isocost.runs.control import set_of
    set_of.cache_clear()
    plan(read(study), {"wanted": 0.7, "workers": 1})
    with pytest.raises(UserError, match="has changed since the study began"):
        own_step(read(study), "pilot", {}, ())(read(study))


@pytest.mark.parametrize("more, told", [
    (("--method", "wsrl"), "wsrl learns from a set first: give --offline FILE"),
    (("--method", "wsrl", "--offline", "x"), "needs the numbers of updates on the set to compare"),
    (("--method", "wsrl", "--offline", "x", "--offline-updates", "5,6"), "a study compares at least 3 numbers"),
    (("--set", "tempo.warmup=9"), "--set is of a study that begins on a set"),
    (("--offline", "x", "--offline-updates", "5,6,7"), "sac takes samples of its own, and no set"),
    (("--method", "iql"), "iql learns from a set alone"),
])
def test_a_profile_that_cannot_be_is_one_line_and_leaves_no_folder(tmp_path, more, told):
    assert told in " ".join(said("profile", "--control", "maze:4", "--out", tmp_path / "x", *more, code=2).split())
    assert not (tmp_path / "x" / "study.json").exists()


def test_a_real_profile_measures_what_an_update_on_the_set_takes(tmp_path):
    """The penalty of Cal-QL makes an update on the set dearer, by its FLOP."""
    file = tmp_path / "set.parquet"
    task = open_task("bandit")
    data.write(data.make(task, {"random": 1.0}, 300, 0), task.space, file)
    ask = ("profile", "--control", "bandit", "--method", "wsrl", "--offline", file, "--offline-updates", "6,12,24",
           "--updates-per-sample", 1, "--length", 64, "--width", 16, "--set", "tempo.warmup=10", "--set", "members=2",
           "--set", "losses.drawn=2", "--out", tmp_path / "s")
    text = said(*ask)
    found = json.loads((tmp_path / "s" / "profile.json").read_text())
    run = json.loads(next((tmp_path / "s" / "profile").glob("*/run.json")).read_text())
    assert found["costs"]["first_flop"] == run["offline"]["flop"] > found["costs"]["update_flop"] > 0
    ratio = found["costs"]["first_seconds"] / found["costs"]["update_seconds"]
    assert ratio == pytest.approx(found["costs"]["first_flop"] / found["costs"]["update_flop"])
    costs = found["costs"]
    bills = [json.loads(x.read_text())["bill"]["train"] for x in (tmp_path / "s" / "profile").glob("*/end.json")]
    assert sum(b["seconds"] - costs["sample_seconds"] * b["env_steps"] for b in bills) == pytest.approx(
        sum(12 * costs["first_seconds"] + (b["updates"] - 12) * costs["update_seconds"] for b in bills))
    assert run["offline"]["updates"] == 12 and found["offline"] == [6, 12, 24] and "one on the set" in text
    assert run["agent"]["members"] == 2
    assert said(*ask) == text


def test_a_wide_interval_is_no_obstacle_where_the_cost_is_flat(monkeypatch):
    """Of 20 draws cost is 1 + a (u − 2)², a 0 but in two; at u = 4 its 0.95 quantile, over a least of 1, is 4 a."""
    a = np.zeros(21)
    a[[5, 9]] = 0.1
    law = SimpleNamespace(sigmas=np.array([1.0, 4.0]), cost=lambda price, u: 1 + a[:, None] * (u - 2) ** 2)
    assert prescribe.excess(law, PRICE, 4.0) == pytest.approx(0.4, abs=1e-3)
    assert prescribe.excess(law, PRICE, 2.0) == pytest.approx(0, abs=1e-3)
    assert not control_offline.study(4)["refused"]
    monkeypatch.setattr(prescribe, "DEAR", 0.01)
    assert "apart, and its cost may be 5% above the least" in control_offline.study(4)["refused"]


def test_redrawn_studies_hit_where_they_dare():
    """A small part of experiments/control_offline.py."""
    found = control_offline.summary([control_offline.study(seed) for seed in range(10)])
    assert found["prescribed"] >= 8 and found["verdicts"].get("hit", 0) >= found["prescribed"] - 1
    assert found["cost_over_least"] < 1.1 and sum(found["reasons"].values()) == 10 - found["prescribed"]
