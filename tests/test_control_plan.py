"""A study of control from plan to audit, over runs with a planted law in place of trained ones."""

import json
from contextlib import contextmanager

import numpy as np
import pytest

from isocost.compare.control import compare_control
from isocost.disk.jsonfile import line
from isocost.errors import UserError
from isocost.laws.papers.value import DataLaw
from isocost.laws.value_fit import Arrivals, ControlPrice
from isocost.planner.budget import Budget
from isocost.planner.control.outcome import ControlForecast, mean_arrival, ratio_of
from isocost.planner.control.pilot import ControlCosts, plan_control_pilot
from isocost.planner.control.prescribe import Wish, prescribe_control
from isocost.runs.arm import Arm
from isocost.steps.control import profile as profiles
from isocost.steps.control import runs as made
from isocost.steps.control import train as trains
from isocost.steps.control.train import train_control as train_plan
from isocost.steps.kinds import audit, own_step, plan
from isocost.steps.study import StudyRecord
from logs_to_import import said
from truth.control import PlantedControl

TRUTH = PlantedControl(DataLaw(1.0, 1600.0, 300.0), (64, -0.3), (1e-3, -0.3), spread=0.15, noise=0.005)
COSTS = ControlCosts(1e-4, 1e-4, 1e-6, 1e6, 1e5)
CENTRE = Arm(batch=64, rate=1e-3, width=64)


def write(folder, run, of, truth=TRUTH):
    """The record of a run, as `isocost.runs.control` writes it."""
    where = folder / run.name
    where.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng([run.seed, round(100 * run.arm["sigma"]), round(run.arm["batch"]),
                                 round(1e6 * run.arm["rate"]), run.purpose == "train"])
    curve = truth.run(run.arm, run.seed, run.samples, rng)
    flop = run.arm["sigma"] * (1e6 + 1e5 * run.arm["batch"])
    lines = [{"step": i, "env_steps": s, "updates": s * run.arm["sigma"], "flop": s * flop, "eval/audit": r,
              "return": r}
             for i, (s, r) in enumerate(zip(curve.samples, curve.returns, strict=True))]
    (where / "metrics.jsonl").write_text("".join(line(x) + "\n" for x in lines))
    (where / "run.json").write_text(json.dumps({
        "schema": 2, "name": run.name, "kind": "control", "purpose": run.purpose, "seed": run.seed, "seal": of.seal,
        "arm": run.arm.data(), "task": {"name": of.task}, "budget": {"env-steps": run.samples}}))
    (where / "end.json").write_text(json.dumps({"schema": 2, "reason": "spent"}))


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A profiled study whose runs are planted."""
    def run_all(folder, runs, of, title, workers, observer):
        for run in runs:
            if not (folder / run.name).exists():
                write(folder, run, of)

    monkeypatch.setattr(trains, "run_all", run_all)
    out = tmp_path / "s"
    out.mkdir()
    found = profiles.ControlProfile("pendulum", "sac", 64, -1.0, 1.0, 64, 1e-3, 4000, ((1e-3, 0.2, 0.5),),
                                    Arm(sigma=1.0, batch=256, rate=3e-4, width=64), COSTS, 1.0)
    (out / "study.json").write_text(json.dumps({
        "schema": 2, "kind": "control", "source": "control", "task": "pendulum", "method": "sac", "seed": 0,
        "phases": {}}))
    (out / "profile.json").write_text(json.dumps({"schema": 2, **found.to_dict()}))
    return out


def read(path):
    return StudyRecord.read(path)


def test_flop_of_actions_are_in_the_plan_and_those_of_evaluations_beside_it(study):
    """A profile of an earlier version has neither: a sample then has no cost in FLOP, and is asked for."""
    profile = json.loads((study / "profile.json").read_text())
    new = {"sample_flop": 5e3, "evaluation_seconds": 2.0, "evaluation_flop": 3e6}
    asked = {"budget": "1e16flop", "wanted": 0.7}
    (study / "profile.json").write_text(json.dumps({**profile, "costs": {
        k: v for k, v in profile["costs"].items() if k not in new}}))
    with pytest.raises(UserError, match="a sample costs nothing in FLOP"):
        plan(read(study), asked)
    dear = plan(read(study), {**asked, "sample_cost": "1e9flop"})
    assert not dear.besides
    (study / "profile.json").write_text(json.dumps({**profile, "costs": {**profile["costs"], **new}}))
    found = plan(read(study), asked)
    runs, steps = len(found.pilot.runs), sum(r.samples for r in found.pilot.runs)
    assert dear.pilot.cost - found.pilot.cost == pytest.approx(steps * (1e9 - 5e3))
    assert found.besides.endswith(f"{3e6 * runs:.3g} FLOP") and ("not in the budget", found.besides, "") in found.rows()


def test_a_study_goes_from_plan_to_audit(study):
    asked = {"budget": "5h", "wanted": 0.7, "sample_cost": "0.0003s", "workers": 1, "sigma": (0.5, 1.0, 2.0, 4.0, 8.0)}
    pilot = plan(read(study), asked)
    assert len(pilot.pilot.runs) == 5 * 5 * 5 and pilot.pilot.cost < 2 / 3 * 5 * 3600
    assert own_step(read(study), "pilot", {}, ())(read(study)).runs
    law = own_step(read(study), "fit", {}, ())(read(study))
    assert law.laws_of.laws and "samples to a return" in law.heading
    prescribed = plan(read(study), {}).plan
    assert not prescribed.refused and prescribed.wanted == 0.7
    # D (delta + sigma (c + e B)): the true optimum with these costs, by a grid
    price = ControlPrice(4e-4, 1e-4, 1e-6, "seconds")
    grid = np.geomspace(0.25, 16, 400)
    best = grid[np.argmin([float(TRUTH.law(s) * price.of(s, TRUTH.best(s)[0])) for s in grid])]
    assert prescribed.sigma.low <= best * 1.2 and prescribed.sigma.high >= best / 1.2
    assert prescribed.arm["batch"] % 16 == 0 and set(prescribed.rivals) == {"the pilot's best", "the method's default"}
    dry = train_plan(read(study), dry_run=True)
    assert dry.plan == prescribed and not (study / "forecast.json").exists()
    train_plan(read(study))
    sealed = json.loads((study / "forecast.json").read_text())
    outcome = audit(read(study))
    assert outcome.exit_code in (0, 3) and not outcome.audit.missing
    truth = np.exp(TRUTH.mean(prescribed.arm))
    assert prescribed.arrival.low < truth < prescribed.arrival.high
    default = next(a for a in outcome.audit.arms if a.name == "the method's default")
    assert default.ratio is None or default.ratio.value > 1.0
    assert "return" in said("report", study) or (study / "report.html").exists()
    page = (study / "report.html").read_text()
    assert outcome.audit.reason in page and "plot-samples" in page
    head = page[page.index("Audit: "):page.index("Learning curves")]       # what the page says first
    assert f"Prescription: {prescribed.arm['sigma']:g} updates per sample" in head and outcome.audit.reason in head
    with pytest.raises(UserError, match="has a sealed forecast"):
        plan(read(study), {"wanted": 0.5})
    sealed["plan"]["wanted"] = 0.6
    (study / "forecast.json").write_text(json.dumps(sealed))
    with pytest.raises(UserError, match="was changed after it was sealed"):
        audit(read(study))


def test_a_run_without_the_seal_and_a_record_that_changed_are_found(study):
    plan(read(study), {"wanted": 0.7, "sample_cost": "0.0003s", "workers": 1, "sigma": (0.5, 2.0, 8.0), "seeds": 4})
    own_step(read(study), "pilot", {}, ())(read(study))
    own_step(read(study), "fit", {}, ())(read(study))
    plan(read(study), {"train_seeds": 3})
    train_plan(read(study))
    forecast = ControlForecast.of(json.loads((study / "forecast.json").read_text()))
    run = study / "runs" / forecast.runs["prescribed"][0] / "run.json"
    whole = run.read_text()
    run.write_text(whole.replace(forecast.seal, "0" * 64))
    with pytest.raises(UserError, match="does not have the seal"):
        audit(read(study))
    run.write_text(whole)
    pilot = next((study / "runs").glob("pilot-*")) / "metrics.jsonl"
    pilot.write_text(pilot.read_text() + '{"step": 99, "env_steps": 9e9, "return": 1.0}\n')
    assert audit(read(study)).verdict == "cannot tell"


def test_a_budget_chooses_the_grid_and_one_that_is_too_small_is_refused():
    price = COSTS.price("seconds")
    rich = plan_control_pilot(CENTRE, 3000, price, Budget(1e6, "seconds"))
    poor = plan_control_pilot(CENTRE, 3000, price, Budget(240.0, "seconds"))
    assert len({r.arm["sigma"] for r in rich.runs}) == 5 and len({r.arm["sigma"] for r in poor.runs}) == 3
    assert poor.cost <= 2 / 3 * 240 < rich.cost
    with pytest.raises(UserError, match=r"the smallest pilot has 45 runs of 3,000 samples, and .* needs a budget of "):
        plan_control_pilot(CENTRE, 3000, price, Budget(10.0, "seconds"))
    with pytest.raises(UserError, match="--sigma names 2 values: a law needs at least 3"):
        plan_control_pilot(CENTRE, 3000, price, None, sigmas=(1, 2))
    with pytest.raises(UserError, match="--seeds 2: a law needs at least 3 seeds"):
        plan_control_pilot(CENTRE, 3000, price, None, seeds=2)
    with pytest.raises(UserError, match="--sigma: sigma is 300 updates per sample"):
        plan_control_pilot(CENTRE, 3000, price, None, sigmas=(1, 2, 300))
    with pytest.raises(UserError, match="its budget is in tokens"):
        COSTS.price("tokens")


def test_a_pilot_without_an_update_is_refused_and_a_missing_step_is_named(study):
    with pytest.raises(UserError, match="--length 200: sac acts at random for so long and makes no update"):
        plan(read(study), {"length": 200})
    assert not (study / "pilot.json").exists()
    assert "run `isocost train --plan " in said("audit", study, code=2)
    text = said("plan", study, "--length", 201, "--sigma", "1,2,4", "--budget", "10m", "--workers", 4)
    cost = json.loads((study / "pilot.json").read_text())["cost"]
    assert f"cost: {np.ceil(cost * 25) / 100:.2f}" in text and "seconds of 10m" in text      # four runs side by side


def test_the_best_return_for_a_cost_rises_with_the_cost():
    rng, price = np.random.default_rng(0), ControlPrice(4e-4, 1e-4, 1e-6, "seconds")
    pilot = plan_control_pilot(Arm(batch=64, rate=1e-3), 4000, price, None, sigmas=(0.5, 1, 2, 4, 8), seeds=4)
    curves = [TRUTH.run(r.arm, r.seed, r.samples, rng) for r in pilot.runs]
    low, high = (prescribe_control(curves, Wish(price, left=left, seeds=5)) for left in (6.0, 100_000.0))
    assert low.wanted < high.wanted and low.cost * 5 <= 6
    with pytest.raises(UserError, match=r"0\.1 seconds are left for training, and 5 runs"):
        prescribe_control(curves, Wish(price, left=0.1))
    free = prescribe_control(curves, Wish(ControlPrice(1.0, 0.0, 0.0, "environment steps"), wanted=0.7))
    assert free.arm["sigma"] == 8.0 and free.sigma is None and "updates cost nothing" in free.flags[0]


def test_an_outcome_with_seeds_that_never_arrive():
    seen = Arrivals(np.array([7.0, 7.2, 7.4]), np.array([True, True, False]))
    mean, error = mean_arrival(seen, 0.2)
    assert 7.2 < mean < 7.5 and error > 0.2 / 3**0.5
    assert mean_arrival(Arrivals(np.zeros(2), np.zeros(2, bool)), 0.2)[0] == float("inf")
    rng = np.random.default_rng(0)
    a, b = ([TRUTH.run(Arm(sigma=s, batch=64, rate=1e-3), i, 4000, rng) for i in range(8)] for s in (1.0, 4.0))
    truth = np.exp(TRUTH.mean(a[0].arm) - TRUTH.mean(b[0].arm))
    assert ratio_of(a, b, 0.7).holds(truth)


def test_two_arms_are_compared_at_equal_samples_and_equal_flop(tmp_path):
    for sigma, name in ((1.0, "a"), (4.0, "b")):
        for seed in range(8):
            run = made.ControlRunPlan("run", Arm(sigma=sigma, batch=64, rate=1e-3), seed, 4000)
            write(tmp_path / name, run, made.Trained("pendulum", "sac"))
    found = compare_control([tmp_path / "a", tmp_path / "b"])
    assert found.exit_code == 0 and found.arms[1].ratio.high < 1        # four updates need fewer samples
    assert found.arms[1].at_samples[0] > found.arms[0].at_samples[0]
    assert found.arms[1].at_flop[0] < found.arms[0].at_flop[0]          # and more FLOP
    assert found.flop == pytest.approx(4000 * (1e6 + 64e5))
    assert "they differ in samples" in said("compare", tmp_path / "a", tmp_path / "b")
    assert "has no use for runs of control" in said("compare", tmp_path / "a", tmp_path / "b", "--margin", 0.1, code=2)
    files = sorted(tmp_path.glob("*/*/run.json"))
    abouts = [json.loads(f.read_text()) for f in files]
    for file, about in zip(files[:-1], abouts, strict=False):       # all records but an old one count actions
        file.write_text(json.dumps({**about, "action": {"flop": 1}}))
    mixed = compare_control([tmp_path / "a", tmp_path / "b"])
    assert mixed.flop is None and mixed.arms[0].at_flop is None and mixed.arms[0].at_samples == found.arms[0].at_samples
    assert "not all records count the same FLOP" in said("compare", tmp_path / "a", tmp_path / "b")
    files[-1].write_text(json.dumps({**abouts[-1], "action": {"flop": 1}}))
    assert compare_control([tmp_path / "a", tmp_path / "b"]) == found
    metrics = files[0].with_name("metrics.jsonl")
    metrics.write_text(metrics.read_text().replace('"flop"', '"other"'))
    assert compare_control([tmp_path / "a", tmp_path / "b"]).flop is None, "a run that counts none"
    write(tmp_path / "b", made.ControlRunPlan("run", Arm(sigma=2.0, batch=64, rate=1e-3), 0, 4000),
          made.Trained("pendulum", "sac"))
    with pytest.raises(UserError, match="runs of several settings"):
        compare_control([tmp_path / "a", tmp_path / "b"])


def test_runs_at_a_larger_sigma_may_be_shorter():
    pilot = plan_control_pilot(CENTRE, 3000, COSTS.price("flops"), None, sigmas=(1, 2, 4, 8), shorter=0.4)
    assert {r.arm["sigma"]: r.samples for r in pilot.runs} == {1: 3000, 2: 2274, 4: 1723, 8: 1306}     # 3000 sigma^-0.4
    whole = plan_control_pilot(CENTRE, 3000, COSTS.price("flops"), None, sigmas=(1, 2, 4, 8))
    assert {r.samples for r in whole.runs} == {3000} and "samples at sigma" not in whole.why
    assert "1,306 samples at sigma 8" in pilot.why
    assert pilot.cost == pytest.approx(whole.cost * 24_888 / 45_000, rel=0.01)


class Job:
    """What a stack needs to know of a run."""

    def __init__(self, sigma, batch):
        self.arm, self.budget = {"sigma": sigma, "batch": batch}, {"env-steps": 1000}


def test_a_group_is_parted_where_the_workers_end_earlier_for_it():
    groups = [[Job(s, b) for s in (1, 2, 4, 8) for _ in range(n)] for b, n in ((64, 15), (16, 5), (256, 5))]
    assert [len(s) for s in made.stacks_of(groups, 1)] == [20, 30, 30, 20]    # batch 256 first; 60 are two
    trained = [[Job(s, 256) for s in (1, 2, 8) for _ in range(5)]]
    (whole,), two = made.stacks_of(trained, 1), made.stacks_of(trained, 2)
    assert sorted(map(len, two)) == [7, 8] and made._work(two[0]) < made._work(whole)
    assert sum(map(made._work, two)) > made._work(whole)        # so five stacks would end later
    assert all({j.arm["sigma"] for j in s} == {1, 2, 8} for s in two)


def test_progress_is_counted_in_updates_of_all_runs(tmp_path, monkeypatch):
    told = []

    class Watcher(made.Observer):
        @contextmanager
        def counting(self, title):
            yield lambda *what: told.append(what)

    def run_stack(jobs, outs, *, on_step):
        for out in outs:
            out.mkdir(parents=True)
            (out / "end.json").write_text('{"reason": "spent"}')
        for updates in (100, 250, 1600):
            on_step(jobs[0].name, {"updates": updates})

    monkeypatch.setattr("isocost.runs.control.run_stack", run_stack)
    runs = plan_control_pilot(CENTRE, 1000, COSTS.price("flops"), None).runs[:1]
    made.run_all(tmp_path, runs, made.Trained("pendulum", "sac"), "pilot", 1, Watcher())
    assert told == [("updates", k, 800) for k in (0, 100, 250, 800)]        # sigma 1, after a warm-up of 200
