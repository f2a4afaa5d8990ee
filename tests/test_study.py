"""A study from end to end through its commands, and what becomes of it when it is stopped, repeated or changed."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.planner.training.afford import RESERVE
from isocost.planner.training.pilot import PilotPlan
from isocost.runs.record import read_json, read_lines
from isocost.steps.study import StudyRecord
from isocost.steps.training import plan as steps
from waiting import until

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
DATA = ("--data", "sums:base=easy,count=240")
WHOLE = ("quickstart", "--size", "tiny", *DATA, "--workers", "1")


def said(*args, code=0):
    """What a command printed; its exit code must be this."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return done.output


@pytest.fixture(scope="module")
def study(tmp_path_factory, ran):
    """A whole study, and what its command said."""
    out = tmp_path_factory.mktemp("studies") / "whole"
    text = ran(*WHOLE, "--out", out)
    return out, text


def results(out):
    """Everything in a study that its seed determines."""
    names = ("metrics.jsonl", "journal.jsonl", "samples.jsonl")
    return {str(p.relative_to(out)): p.read_bytes() for n in names for p in sorted(out.glob(f"runs/*/{n}"))}


def without_clock(x):
    """Plain data without what the clock did."""
    if isinstance(x, dict):
        return {k: without_clock(v) for k, v in x.items() if k not in ("seconds", "timing")}
    return [without_clock(i) for i in x] if isinstance(x, list) else x


def test_it_says_each_step_and_where_the_report_is(study):
    out, text = study
    for word in ("profile:", "plan of the pilot", "learning rate", "prescription", "forecast, sealed", "audit:"):
        assert word in text
    assert str(out / "report.html").split("/")[-1] in text and (out / "report.html").stat().st_size > 100_000


def test_every_phase_has_its_time(study):
    phases = read_json(study[0] / "study.json")["phases"]
    assert set(phases) == {"profile", "probe", "pilot", "fit", "train", "report"} and min(phases.values()) >= 0


def test_both_arms_are_trained_paired_by_seed_under_one_seal_with_three_seeds(study):
    forecast = read_json(study[0] / "forecast.json")
    runs = [read_json(p) for p in study[0].glob("runs/*/run.json")]
    trained = [r for r in runs if r["purpose"] == "train"]
    arms = {r["arm"]["n"]: sorted(x["seed"] for x in trained if x["arm"]["n"] == r["arm"]["n"]) for r in trained}
    assert len(arms) == 2 and len({tuple(s) for s in arms.values()}) == 1 and len(next(iter(arms.values()))) >= 3
    assert {r["seal"] for r in trained} == {forecast["seal"]}
    assert {r["seal"] for r in runs if r["purpose"] != "train"} == {None}
    assert len({json.dumps(r["budget"]) for r in trained}) == 1


def test_every_arm_is_evaluated_at_the_same_compute_and_further_where_its_runs_were_continued(study):
    at = {
        tuple(x["rollouts"] for x in read_lines(p.parent / "metrics.jsonl") if "eval/audit" in x)
        for p in study[0].glob("runs/*/run.json") if read_json(p)["purpose"] in ("pilot", "edge")
    }
    short, long = sorted(at, key=len)
    assert long[:len(short)] == short and len(short) > 2


def test_the_pilot_spends_its_reserve_on_a_check_of_the_rate(study):
    """Runs of the leading n at half, once and twice the rule's rate, all of one length beyond the grid's."""
    pilot = PilotPlan.of(read_json(study[0] / "pilot.json"))
    grid, checks = pilot.of_purpose("pilot"), pilot.of_purpose("edge")
    (n,) = {r.n for r in checks}
    assert not pilot.reserve and len(grid) == 6 and {r.C for r in grid} == {32, pilot.C}
    assert sorted(r.multiplier for r in pilot.runs if r.n == n and r.purpose != "probe") == [0.5, 0.5, 1, 1, 2, 2]
    assert all(r.C > 32 for r in (*checks, *grid) if r.n == n) and {k for k, _ in pilot.rates} <= {n}
    cost = sum(r.C for r in pilot.runs if r.purpose != "probe")
    assert 6 * 32 < cost <= (1 + RESERVE) * 6 * 32 and pilot.pilot_bill.rollouts == sum(r.C for r in pilot.runs)


def test_done_again_it_does_nothing_again(study, ran):
    out, _ = study
    before = results(out)
    sealed = (out / "forecast.json").read_bytes()
    times = {p: p.stat().st_mtime_ns for p in out.glob("runs/*/metrics.jsonl")}
    ran(*WHOLE, "--out", out)
    assert results(out) == before and sealed == (out / "forecast.json").read_bytes()
    assert times == {p: p.stat().st_mtime_ns for p in times}


def test_an_audit_of_what_was_changed_since_cannot_tell(study, tmp_path):
    other = shutil.copytree(study[0], tmp_path / "other")
    plan = read_json(other / "plan.json")
    (other / "plan.json").write_text(json.dumps(plan | {"seeds": plan["seeds"] + 1}))
    text = " ".join(said("audit", other, code=4).split())
    assert "audit: cannot tell changed since it was sealed: plan.json" in text


def test_a_run_without_the_seal_is_refused_by_the_audit(study, tmp_path):
    out, _ = study
    run = next(p for p in out.glob("runs/*/run.json") if read_json(p)["purpose"] == "train")
    before = run.read_text()
    run.write_text(before.replace(read_json(run)["seal"], "0" * 64))
    try:
        assert "seal" in said("audit", out, code=2)
    finally:
        run.write_text(before)


@pytest.mark.parametrize(
    "asked",
    [("--seed", "1"), ("--size", "quick"), ("--temperature", "0.5"), ("--budget", "9k-rollouts")],
)
def test_a_study_with_different_settings_is_an_error(study, asked):
    line = said(*WHOLE, "--out", study[0], *asked, code=2).splitlines()[-1]
    assert line.startswith(f"isocost: {study[0]} already contains a study") and "choose another --out" in line


def test_a_different_setting_is_named_by_its_option(study):
    line = said("profile", "--out", study[0], "--problems", "90", code=2).splitlines()[-1]
    assert "--problems was 512 and is now 90" in line


def test_a_plan_is_fixed_once_its_forecast_is_sealed(study):
    for asked in (("plan", study[0], "--budget", "9k-rollouts"), ("pilot", study[0], "--longer", "all=2x")):
        assert "forecast.json is sealed" in said(*asked, code=2)


def test_the_shape_of_a_pilot_is_fixed_once_it_has_runs_and_its_budget_is_not(study, tmp_path):
    out = copied(study, tmp_path)
    assert "only --budget" in said("plan", out, "--size", "tiny", code=2)
    text = said("plan", out, "--budget", "100k-rollouts", "--workers", "1")
    plan = read_json(out / "plan.json")
    assert plan["budget"] == {"amount": 100_000.0, "unit": "rollouts", "asked": ""}
    assert plan["arm"]["C"] == 8 * plan["pilot_C"] and "capped at 8 times the pilot's runs" in " ".join(text.split())


def test_a_larger_budget_adds_seeds_and_a_smaller_one_removes_them(study, tmp_path):
    """What is left where a forecast ends goes to seeds: up to twice as many as the pilot would have planned with."""
    out = copied(study, tmp_path)
    seeds = {}
    for budget in (1_200, 100_000, 1_200):
        said("plan", out, "--budget", f"{budget}-rollouts", "--workers", "1")
        plan, pilot = read_json(out / "plan.json"), read_json(out / "pilot.json")
        trained, arms = {(r["arm"]["n"], r["seed"]) for r in plan["runs"]}, len(plan["arms"])
        assert len(trained) == arms * plan["seeds"] == arms * pilot["train_seeds"]
        assert plan["bill"]["rollouts"] == arms * plan["seeds"] * plan["arm"]["C"]
        assert plan["bill"]["rollouts"] + plan["pilot_bill"]["rollouts"] <= budget
        assert seeds.setdefault(budget, plan["seeds"]) == plan["seeds"]
    assert seeds == {1_200: 3, 100_000: 6}


def test_runs_are_added_to_a_pilot_and_those_there_are_not_paid_for_again(study, ran, tmp_path):
    out = copied(study, tmp_path)
    pilot = read_json(out / "pilot.json")
    before, planned = results(out), PilotPlan.of(pilot)
    own = planned.lengths
    priced = said("pilot", out, "--longer", "2=2x", "--seeds", "4=1", "--dry-run")
    assert f"then n = 2 continued to {2 * own[2]} rollouts, 1 more run of n = 4" in " ".join(priced.split())
    assert results(out) == before and read_json(out / "pilot.json") == pilot
    kept = (out / "runs" / "pilot-n8-s0" / "end.json").read_bytes()
    (out / "runs" / "pilot-n8-s0" / "end.json").unlink()
    assert "1 run of the planned pilot still to end" in said("pilot", out, "--longer", "2=2x", code=2)
    (out / "runs" / "pilot-n8-s0" / "end.json").write_bytes(kept)
    (out / "pilot.json").write_text(json.dumps(pilot | {"reserve": 0.5}))
    assert "still has a reserve to spend" in said("pilot", out, "--longer", "2=2x", code=2)
    law = (out / "law.json").rename(tmp_path / "law.json")
    assert "is not done" in said("fit", out, code=2)
    law.rename(out / "law.json")
    (out / "pilot.json").write_text(json.dumps(pilot))
    ran("pilot", out, "--longer", "2=2x", "--seeds", "4=1", "--workers", "1")
    after, now = results(out), PilotPlan.of(read_json(out / "pilot.json"))
    (added,) = {r.name for r in now.runs} - {r.name for r in planned.runs}
    assert set(after) - set(before) == {f"runs/{added}/{n}" for n in ("metrics.jsonl", "journal.jsonl",
                                                                      "samples.jsonl")}
    assert added in {r.name for r in now.arm_runs if r.n == 4}
    changed = {name.split("/")[1] for name in before if after[name] != before[name]}
    assert changed == {r.name for r in planned.arm_runs if r.n == 2}
    assert all(after[name].startswith(text) for name, text in before.items())
    assert not (out / "law.json").exists() and not (out / "plan.json").exists()
    said("fit", out)
    said("plan", out)
    plan = read_json(out / "plan.json")
    assert now.lengths == {**own, 2: 2 * own[2]} and plan["pilot_C"] == now.lengths[plan["arm"]["n"]]


def test_added_runs_are_priced_by_what_the_runs_there_cost(study, tmp_path):
    """Whatever the profile's speed was, and its length of answers: there are runs that were timed and metered."""
    out = copied(study, tmp_path)
    pilot = read_json(out / "pilot.json")
    slow = {k: 1000 * v if isinstance(v, float) else v for k, v in pilot["timing"].items()}
    (out / "pilot.json").write_text(json.dumps(
        pilot | {"timing": slow, "prices": pilot["prices"] | {"decode": 1000.0}}))
    ends = [read_json(p) for p in out.glob("runs/*/end.json")]
    metered = sum(e["bill"]["train"]["decode"] for e in ends)
    now = json.loads(said("pilot", out, "--dry-run", "--json"))
    assert now["pilot_bill"]["tokens"] == pytest.approx(metered) and now["timing"]["source"].startswith("measured on")
    told = said("pilot", out, "--longer", "all=2x", "--dry-run")
    assert "of run time to a pilot of" in told and "measured on" in told
    more = json.loads(said("pilot", out, "--longer", "all=2x", "--dry-run", "--json"))
    each = metered / now["pilot_bill"]["rollouts"]
    for bill in ("pilot_bill", "train_bill"):
        assert more[bill]["tokens"] == pytest.approx(each * more[bill]["rollouts"])
    assert more["pilot_bill"]["seconds"] < 100 * sum(e["seconds"] for e in ends)
    assert more["train_bill"]["rollouts"] == pilot["train_bill"]["rollouts"]


def test_a_pilot_that_would_leave_nothing_stops_after_its_probe(study, tmp_path):
    out = copied(study, tmp_path)
    pilot = read_json(out / "pilot.json")
    spent = sum(read_json(p)["bill"]["train"]["decode"] for p in out.glob("runs/p*/end.json"))
    for amount, code in ((spent // 2, 2), (10 * spent, 0)):
        budget = {"amount": amount, "unit": "tokens", "asked": ""}
        (out / "pilot.json").write_text(json.dumps(pilot | {"budget": budget}))
        text = said("pilot", out, "--workers", "1", code=code)
        assert ("by what was measured so far" in text) == (code == 2)


def test_what_a_kill_lost_comes_off_the_budget(study, tmp_path):
    there = StudyRecord.read(copied(study, tmp_path))
    planned, path = there.planned, there.runs / "pilot-n2-s0" / "end.json"
    before, end = steps.spent(there, planned), read_json(path)
    path.write_text(json.dumps(end | {"bill": end["bill"] | {"lost": {"rollouts": 1000, "decode": 70}}}))
    after = steps.spent(there.again(), planned)
    assert (after.rollouts - before.rollouts, after.tokens - before.tokens) == (1000, 70)


def test_as_many_runs_go_side_by_side_as_were_planned_for_and_others_are_said_to(study, tmp_path):
    out = copied(study, tmp_path)
    assert "side by side and run with" not in said("pilot", out, "--workers", "1")
    said("plan", out, "--workers", "4")
    text = " ".join(said("pilot", out, "--workers", "1").split())
    assert "planned for 4 runs side by side and run with 1" in text and "4 times what the plan says" in text


def copied(study, to):
    """The study as it was before its forecast was sealed."""
    shutil.copytree(study[0], to / "s")
    for name in ("forecast.json", "audit.json"):
        (to / "s" / name).unlink()
    for run in (to / "s" / "runs").glob("train-*"):
        shutil.rmtree(run)
    return to / "s"


def test_eval_measures_a_trained_run_against_where_it_began(study):
    run = next(p.parent for p in study[0].glob("runs/*/run.json") if read_json(p)["purpose"] == "train")
    found = json.loads(said("eval", run, "--base", "--json"))
    assert found["difference"]["value"] == pytest.approx(found["final"]["value"] - found["base"]["value"], abs=1e-9)
    last = [x for x in read_lines(run / "metrics.jsonl") if "eval/audit" in x][-1]
    assert found["final"]["value"] == pytest.approx((last["eval/audit"] + last["eval/select"]) / 2, abs=0.05)


def test_steps_in_the_wrong_order_name_the_step_that_is_missing(tmp_path):
    out = tmp_path / "new"
    for step in ("plan", "pilot", "fit", "audit"):
        assert "isocost profile" in said(step, out, code=2)
    said("profile", "--out", out, *DATA, "--problems", "20")
    assert "isocost plan" in said("pilot", out, code=2)
    assert "isocost plan" in said("fit", out, code=2)
    said("plan", out, "--size", "tiny")
    assert "0 of" in said("fit", out, code=2)
    assert "isocost plan" in said("train", "--plan", out, code=2)
    assert "rollouts" in said("pilot", out, "--dry-run") and not (out / "runs").exists()
    said("plan", out, "--budget", "300-rollouts")  # nothing was run yet, so it may be planned otherwise
    assert read_json(out / "pilot.json")["budget"]["amount"] == 300


def test_a_plan_lists_the_method_defaults_that_the_study_overrides(tmp_path):
    out = tmp_path / "s"
    said("profile", "--out", out, *DATA, "--problems", "20", "--method", "mcgrpo@advantage.eps=0.1")
    told = " ".join(said("plan", out, "--size", "tiny").split())
    assert "mcgrpo@advantage.eps=0.1: overridden here: n = 2, 4, 8 (default 9)" in told
    said("profile", "--out", tmp_path / "g", *DATA, "--problems", "20", "--method", "grpo@loss.high=0.3")
    assert "overridden" not in said("plan", tmp_path / "g", "--size", "tiny")      # it has no sizes of its own


def test_a_signal_while_workers_are_still_starting_takes_effect_once_they_have(study, tmp_path):
    """A worker that has not settled in yet would die of it, and the pool with the worker."""
    command = [sys.executable, "-m", "isocost", *WHOLE, "--out", str(tmp_path / "early")]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert until(lambda: workers_of(process.pid) or process.poll() is not None, pause=0.001)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 143 and "To continue: isocost quickstart" in error and "Traceback" not in error, error


def workers_of(pid):
    """Processes that a process has started for its runs: those that its one helper has forked."""
    helpers = [c for c in children_of(pid) if b"forkserver" in command_of(c)]
    return [c for helper in helpers for c in children_of(helper)]


def children_of(pid):
    """What the kernel lists of a process's children; none of one that has ended."""
    with suppress(OSError):
        return " ".join(f.read_text() for f in Path(f"/proc/{pid}/task").glob("*/children")).split()
    return []


def command_of(pid):
    """The command line of a process; nothing of one that has ended since it was listed."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_a_study_killed_in_its_pilot_goes_on_to_the_same_results(study, ran, programs_at_once, tmp_path):
    """SIGTERM in the middle of the probe, SIGKILL after the pilot's grid, then the same command once more."""
    out, _ = study
    again, note = tmp_path / "again", tmp_path / "pid"
    command = [programs_at_once / "isocost", *WHOLE, "--out", again]

    def killed(signum, when):
        note.unlink(missing_ok=True)
        process = subprocess.Popen(command, env={**ENVIRONMENT, "PID_FILE": str(note)}, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        assert until(lambda: (note.exists() and when()) or process.poll() is not None)
        os.kill(int(note.read_text()), signum)
        _, error = process.communicate(timeout=300)
        return process.returncode, error

    def runs(many):
        return lambda: len(list(again.glob("runs/*/run.json"))) >= many

    code, error = killed(signal.SIGTERM, runs(2))
    assert code == 143 and "To continue: isocost quickstart" in error and "Traceback" not in error
    code, _ = killed(signal.SIGKILL, runs(13))      # 6 of the probe and 6 of the grid: its rate is being checked
    assert code == 128 + signal.SIGKILL
    # Workers find out within a second that their parent is gone, and hold the folder until then.
    assert until(lambda: "another process" not in ran(*WHOLE, "--out", again, code=(0, 2)), pause=0.3)
    assert results(again) == results(out)
    plans = [PilotPlan.of(read_json(path / "pilot.json")) for path in (again, out)]
    assert plans[0].runs == plans[1].runs and plans[0].rates == plans[1].rates
    assert without_clock(read_json(again / "law.json")) == without_clock(read_json(out / "law.json"))
