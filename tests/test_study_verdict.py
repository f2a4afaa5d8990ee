"""`isocost verdict` and the live table, on records as a run writes them."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from isocost.cli import printer as tell
from isocost.cli.commands import main
from isocost.cli.live import standing
from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.planner.audit import MeanOfRuns
from isocost.planner.budget import Machine
from isocost.planner.forecast import Forecast
from isocost.planner.stopping import _Noise
from isocost.runs.arm import Arm
from isocost.runs.job import Job
from isocost.screen.words import counted
from isocost.stats.intervals import Interval
from isocost.steps.look.verdict import Bearings, groups_of, judge_run, per_cost
from isocost.steps.training import train
from isocost.worlds.setting import Setting

C = [0, 512, 1024, 2048, 4096]
STALLED = [0.30, 0.33, 0.34, 0.34, 0.34]
RISING = [0.30, 0.38, 0.46, 0.54, 0.62]


def job(name, budget=None):
    budget = budget or {"rollouts": 8192.0}
    return Job(name, Setting(), "grpo", 0, budget, Arm(n=8, B=16, lr=1e-3), points=(512, 8192), purpose="train")


def write(folder, name, rewards, budget=None, answers=None, best=None):
    """A run that has been evaluated at C and goes on; `best` are its best@4."""
    asked = job(name, budget)
    run = folder / name
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({
        "schema": 1, "name": name, "purpose": "train", "seed": 0, "budget": dict(asked.budget),
        "job": {**asked.to_dict(), "arm": asked.arm.data()}, "method": "grpo", "model": {"parameters": 1000},
        "arm": {"n": 8, "B": 16, "lr": 1e-3, "multiplier": 1.0},
        "problems": {"select": 128, "audit": 128},
    }))
    lines = [{"step": c // 128, "rollouts": c, "eval/select": r, "eval/audit": r, "eval/exact": True, "epoch": 0.0}
             for c, r in zip(C, rewards, strict=True)]
    for line, value in zip(lines, best or (), strict=bool(best)):
        line |= {"eval/select/best@4": value, "eval/audit/best@4": value}
    step = {"step": 31, "rollouts": 4096, "reward": 0.3, "prefill": 100, "decode": 5000, "score": 0, "train": 5100}
    (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in (*lines[:-1], step, lines[-1])))
    (run / "timing.jsonl").write_text("".join(
        json.dumps({"step": c // 128, "rollouts": c, "tokens": c, "seconds": c / 100}) + "\n" for c in C))
    rng = np.random.default_rng(0)
    counts = rng.binomial(8, rng.beta(2, 2, 128)) if answers is None else answers
    (run / "journal.jsonl").write_text("".join(
        json.dumps({"wave": i // 16, "slot": i % 16, "rewards": [1.0] * int(k) + [0.0] * int(8 - k)}) + "\n"
        for i, k in enumerate(counts)))
    return run


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (done.output, done.exception)
    return done.output


def test_a_run_is_judged_from_its_record_alone(tmp_path):
    stalled, rising = write(tmp_path, "a", STALLED), write(tmp_path, "b", RISING)
    assert "a: stop" in said("verdict", stalled, "--target", "0.6")
    assert "b: continue" in said("verdict", rising, "--target", "0.6")
    found, = json.loads(said("verdict", rising, "--target", "0.6", "--json"))
    assert found["word"] == "continue" and found["looks"] == 4 and found["C"] == 4096
    assert found["per_cost"]["per_run_hour"] == pytest.approx(found["per_cost"]["per_1000_rollouts"] * 360)


def test_what_is_no_run_or_has_no_evaluation_is_refused(tmp_path):
    assert "neither a study nor a run" in said("verdict", tmp_path, code=2)
    run = write(tmp_path, "a", STALLED)
    (run / "metrics.jsonl").write_text("")
    assert "evaluated yet" in said("verdict", run, code=2)
    assert "--target" in said("verdict", run, "--target", "1.5", code=2)


@pytest.mark.parametrize(("budget", "end"), [
    ({"rollouts": 8192.0}, 8192), ({"tokens": 10_000.0}, 8192), ({"seconds": 81.92}, 8192),
    ({"flop": 2 * 1000 * 5100 * 2 + 6 * 1000 * 5100 * 2}, 8192), ({"tokens": 10.0}, 4096),
    ({"rollouts": 8192.0, "tokens": 8000.0}, 6553.6), ({"rollouts": 8192.0, "tokens": 80_000.0}, 8192),
])
def test_the_end_of_a_budget_in_another_unit_is_estimated_from_the_pace_so_far(tmp_path, budget, end):
    assert judge_run(write(tmp_path, "a", RISING, budget), Bearings()).end == pytest.approx(end)


def test_groups_are_put_together_and_only_those_that_can_be_counted(tmp_path):
    run = write(tmp_path, "a", RISING, answers=[8, 0, 3])
    record = json.loads((run / "run.json").read_text())
    with open(run / "journal.jsonl", "a") as f:
        f.write(json.dumps({"wave": 9, "slot": 0, "rewards": [1.0] * 5}) + "\n")
        f.write(json.dumps({"wave": 9, "slot": 0, "rewards": [0.0] * 3}) + "\n")       # one group, two lines
        f.write(json.dumps({"wave": 9, "slot": 1, "rewards": [0.0] * 7 + [None]}) + "\n")
    assert groups_of(run, record).right == (8, 0, 3, 5)
    with open(run / "journal.jsonl", "a") as f:
        f.write(json.dumps({"wave": 10, "slot": 0, "rewards": [0.5] * 8}) + "\n")
    assert groups_of(run, record) is None       # no right and wrong to count
    with open(run / "journal.jsonl", "a") as f:
        f.write('{"wave": 10, "slot": 1, "rew')
    assert groups_of(run, record) is None       # a torn line is not read


def test_dead_groups_call_for_another_n(tmp_path):
    rng = np.random.default_rng(0)
    run = write(tmp_path, "a", RISING, answers=rng.binomial(8, rng.beta(1.2, 14.0, 256)))
    assert "a: change n to" in said("verdict", run)


def test_money_per_reward_follows_the_machine(tmp_path):
    run = write(tmp_path, "a", RISING)
    found = judge_run(run, Bearings())
    told = per_cost(found, run, Machine(devices=4, side_by_side=2, price=2.5, currency="usd"))
    assert told["per_run_hour"] == pytest.approx(2 * told["per_device_hour"])
    assert told["per_device_hour"] == pytest.approx(2.5 * told["per_usd"])


@pytest.mark.parametrize(("budget", "share"), [
    ({"rollouts": 8192.0}, 0.5), ({"rollouts": 8192.0, "tokens": 6250.0}, 0.8), ({"env-steps": 100.0}, 0.25),
])
def test_progress_is_that_of_the_limit_that_is_nearest(tmp_path, budget, share):
    run = write(tmp_path, "a", RISING)
    with (run / "metrics.jsonl").open("a") as f:
        f.write(json.dumps({"step": 32, "rollouts": 4096, "reward": 0.3, "decode": 5000, "env_steps": 25}) + "\n")
    assert standing(job("a", budget), run).share == pytest.approx(share)


def study_of_best(folder):
    """A study whose laws are of best@4."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps({"schema": 1, "setting": Setting().to_dict(), "metric": "best@4"}))


def test_a_run_is_judged_by_its_study_s_metric(tmp_path):
    study_of_best(tmp_path)
    run = write(tmp_path / "runs", "a", STALLED, best=RISING)
    found, = json.loads(said("verdict", run, "--target", "0.7", "--json"))
    assert found["metric"] == "best@4" and found["reward"] == RISING[-1] and found["word"] == "continue"
    assert "best@4 0.620 on the validation split" in said("verdict", run)
    # Of a run that stands alone it is pass@1, by which the same target is out of reach.
    alone, = json.loads(said("verdict", write(tmp_path / "alone" / "of", "a", STALLED), "--target", "0.7", "--json"))
    assert alone["metric"] == "pass@1" and alone["reward"] == STALLED[-1] and alone["word"] == "stop"


def test_four_attempts_at_best_of_four_are_one():
    curve = Curve("a", Arm(n=8, B=16, lr=1e-3), 0, np.array([0.0, 512.0]), *(np.array([0.3, 0.4]) for _ in range(4)),
                  samples=8)
    once, best = (_Noise.of(None, replace(curve, metric=m)) for m in ("pass@1", "best@4"))
    assert once.attempts == 128 * 8 and best.attempts == 128 * 2


def test_a_forecast_is_in_the_metric():
    interval = Interval(0.6, 0.5, 0.7, 0.9, "prediction", 9.0)
    sealed = Forecast(Arm(n=8, B=16), 4096, ("a",), None, (), interval, 0.3, (), "", "", 1.0, 1.0, 1.0, "", (), {})
    console = Console(width=120)
    with console.capture() as shown:
        tell.show(train.ForecastResult(sealed, "best@4"), console)
    assert "mean held-out best@4 of 1 run of 4,096 rollouts" in shown.get()


@pytest.mark.parametrize(("k", "said"), [(0, "0 seeds"), (1, "1 seed"), (1.0, "1 seed"), (3, "3 seeds")])
def test_one_of_a_thing_is_not_several(k, said):
    assert counted(k, "seed") == said
    assert str(MeanOfRuns(0.1, None, None, 0.9, 1, (0.1,))) == "+0.100 over 1 seed"


def test_a_folder_without_the_study_s_forecast_gives_no_bearings(tmp_path):
    assert Bearings.of(tmp_path) == Bearings() == Bearings.of(None)
    with pytest.raises(UserError):
        judge_run(tmp_path, Bearings())


def brought(folder, runs):
    """Logs of another trainer, imported: 16 evaluations to 2048 rollouts, the reward of an answer each."""
    folder.mkdir()
    for s in range(runs):
        rows = "".join(f"{k},{0.3 + 0.02 * k + 0.01 * s:.3f}\n" for k in range(17))
        (folder / f"n8-s{s}.csv").write_text(f"step,held_out\n{rows}")
    sizes = ("--names", "n{n}-s{seed}", "--B", "16", "--lr", "1e-6")
    said("import", *sorted(folder.glob("*.csv")), *sizes, "--out", folder / "out")
    return folder / "out"


def test_an_imported_run_is_judged_as_its_log_ends(tmp_path):
    run = brought(tmp_path / "one", 1)
    ended = "out: ended, spent (imported: the log ends here)\n"
    assert f"{ended}  held_out 0.620 (held-out reward) after 2,048 of 2,048 rollouts\n" in said("verdict", run)
    found, = json.loads(said("verdict", run, "--target", "0.6", "--json"))
    assert (found["C"], found["end"], found["looks"], found["ended"]) == (2048, 2048, 16, True)


def test_a_run_that_turned_nan_is_reported_as_diverged(tmp_path):
    log = tmp_path / "n8-s0.csv"
    log.write_text("step,held_out\n0,0.3\n1,0.4\n2,0.5\n3,nan\n4,nan\n")
    said("import", log, "--names", "n{n}-s{seed}", "--B", "16", "--lr", "1e-6", "--out", tmp_path / "run")
    told = said("verdict", tmp_path / "run")
    assert "run: ended, diverged (imported: held_out is NaN or infinite to the log's end)\n  held_out 0.500 " in told
    found, = json.loads(said("verdict", tmp_path / "run", "--json"))
    assert (found["ended"], found["reason"]) == (True, "diverged")


@pytest.mark.parametrize(("command", "words"), [
    (("verdict",), "cannot be stopped. See `isocost fit"),
    (("audit",), "no forecast of its trainer's run is sealed; bring that run in with `isocost import`"),
    (("fit", "--metric", "best@4"), "import the logs again with --map held_out=COLUMN"),
])
def test_what_an_imported_study_cannot_have_says_what_to_do_instead(tmp_path, command, words):
    study = brought(tmp_path / "several", 2)
    told = said(command[0], study, *command[1:], code=2)
    assert f"{study} was imported" in told and words in told and told.count("\n") == 1


def test_one_imported_run_has_a_curve_and_a_list_of_what_a_plan_needs(tmp_path):
    told = said("fit", brought(tmp_path / "one", 1))
    assert "one run: a plan needs a study, with other seeds of n = 8" in told
    assert "import its log again, alone or with the others of its sweep: `isocost import LOG... --study" in told
    assert "not a study" in said("plan", tmp_path / "one" / "out", code=2)


@pytest.mark.parametrize(("fallback", "also"), [("the law refuses", []), ("", [4, 8])])
def test_a_run_is_sent_to_another_n_only_where_a_law_says_that_it_may_be_as_good(tmp_path, recorded, fallback, also):
    recorded(tmp_path)
    plan = json.loads((tmp_path / "plan.json").read_text())
    n = plan["arms"][0]["n"]
    (tmp_path / "plan.json").write_text(json.dumps(plan | {"fallback": fallback, "equal": [n, 4], "undecided": [8]}))
    assert list(Bearings.of(tmp_path).equal) == [n, *also]
