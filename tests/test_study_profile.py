"""What is sampled before anything is trained: none of it is lost, and all of it is billed."""

import asyncio
import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from isocost import meter as meters
from isocost.cli.commands import main
from isocost.compare import training as comparing
from isocost.compare.design import Conditions, design
from isocost.compare.results import detectable
from isocost.disk.jsonfile import write_json
from isocost.doctor import CHECKS, run_checks
from isocost.errors import UserError
from isocost.laws.curves import Curve
from isocost.report.records import load
from isocost.report.sections.accounts import spent
from isocost.runs.arm import Arm
from isocost.runs.record import read_json, read_lines
from isocost.steps.events import Observer
from isocost.steps.folder import found
from isocost.steps.look.evaluate import evaluate_model
from isocost.steps.training import pass_rates as profiles
from isocost.steps.training.pass_rates import SAMPLES, pass_rates
from isocost.steps.training.profile import profile
from isocost.types import Cost
from isocost.worlds.setting import Setting, open_setting

DATA = ("--data", "sums:base=easy,count=60")
SETTING = Setting.of(data=DATA[1])
PROBLEMS = 8
CLOCK = ("seconds", "rate", "cost", "lost")


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return done.output


def counts(data):
    return Cost.of(data).counts()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A profile that nobody stopped, the lines that it wrote, and what its meter says."""
    kept = tmp_path_factory.mktemp("profile") / "profile.jsonl"
    opened = open_setting(SETTING, check=True)
    found = asyncio.run(pass_rates(opened, problems=PROBLEMS, kept=kept))
    return found, read_lines(kept), opened.world.meter


def test_what_was_opened_is_closed_though_nothing_could_be_sampled(tmp_path):
    kept, opened, closed = tmp_path / "profile.jsonl", open_setting(SETTING), []
    opened.world.close = lambda: closed.append(True)
    kept.write_text("no JSON\n")
    with pytest.raises(UserError, match="line 1, is not whole JSON"):
        asyncio.run(pass_rates(opened, problems=PROBLEMS, kept=kept))
    assert closed


def test_every_line_s_cost_together_is_the_meter_s(whole):
    found, lines, meter = whole
    assert len(lines) == 1 + PROBLEMS and meter.logical.keys() == {meters.PROBE, meters.CHECK}
    check, *each = (Cost.of(x["cost"]) for x in lines)
    total = sum(each, Cost())
    assert total.counts() == meter.of(meters.PROBE).counts() and check.counts() == meter.of(meters.CHECK).counts()
    assert meter.total.counts() == counts(found["cost"]) and meter.of(meters.CHECK).counts() == Cost(verify=60).counts()
    assert total.rollouts == PROBLEMS * SAMPLES and found["lost"] == Cost().data()


def test_a_profile_that_was_killed_goes_on_and_says_the_same(whole, tmp_path, monkeypatch):
    out, asked = tmp_path / "s", []
    sample = profiles.group_of

    async def dies(recipe, world, problem, place, *rest):
        if place.slot >= 5:
            while len(read_lines(out / "profile.jsonl")) < 1 + 5:
                await asyncio.sleep(0)
            raise KeyboardInterrupt
        return await sample(recipe, world, problem, place, *rest)

    async def counted(recipe, world, problem, *rest):
        asked.append(problem.id)
        return await sample(recipe, world, problem, *rest)

    command = ("profile", "--out", out, *DATA, "--problems", PROBLEMS)
    with monkeypatch.context() as m:
        m.setattr(profiles, "group_of", dies)
        assert CliRunner().invoke(main, list(map(str, command))).exit_code != 0
    check, *lines = read_lines(out / "profile.jsonl")
    there = {x["id"] for x in lines}
    assert not (out / "profile.json").exists() and len(there) == 5
    with monkeypatch.context() as m:
        m.setattr(profiles, "group_of", counted)
        said(*command)
    found = read_json(out / "profile.json")
    assert len(asked) == PROBLEMS - 5 and not there & set(asked)
    assert {k: v for k, v in found.items() if k not in (*CLOCK, "schema")} == json.loads(
        json.dumps({k: v for k, v in whole[0].items() if k not in CLOCK}))
    assert counts(found["cost"]) == counts(whole[0]["cost"])
    assert counts(found["lost"]) == counts(check["cost"]) == Cost(verify=60).counts()      # the answers, checked twice
    assert not (out / "profile.jsonl").exists()


def test_a_profile_that_is_interrupted_bills_what_it_has_sampled_and_not_marked(tmp_path, monkeypatch):
    """Ctrl-C when two problems are marked and the others are half written: in the next profile's bill as lost."""
    setting, engine = Setting.of(data="sums:work=1,count=60", max_tokens=14), []
    kept, write, stopped = tmp_path / "profile.jsonl", profiles.Stream.write, []

    def opened():
        world = open_setting(setting)
        world.world.engine.burst = 1
        engine.append(world.world)
        return world

    def interrupts(self, *lines):
        write(self, *lines)
        if len(read_lines(kept)) >= 2 and not stopped:      # several groups may be marked in one go
            stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)   # a shell's background jobs ignore it
    try:
        with monkeypatch.context() as m, pytest.raises(KeyboardInterrupt):
            m.setattr(profiles.Stream, "write", interrupts)
            asyncio.run(pass_rates(opened(), problems=PROBLEMS, kept=kept))
    finally:
        signal.signal(signal.SIGINT, before)
    lines, spent = read_lines(kept), engine[0].meter.total
    marked = [x for x in lines if x["rewards"]]
    assert len({x["slot"] for x in lines}) == len(lines) and len(marked) >= 2
    assert sum((Cost.of(x["cost"]) for x in lines), Cost()).counts() == spent.counts()
    assert spent.rollouts > sum(x["cost"]["rollouts"] for x in marked)
    found = asyncio.run(pass_rates(opened(), problems=PROBLEMS, kept=kept))
    both = [Cost.of(found[k]) for k in ("cost", "lost")]
    assert sum(both, Cost()).counts() == (spent + engine[1].meter.total).counts()
    assert both[0].rollouts == PROBLEMS * SAMPLES and both[1].decode > 0


def test_a_prompt_that_does_not_fit_is_named_by_its_row_and_can_be_skipped(tmp_path):
    """Before anything is sampled, in every command; what is skipped is skipped in the runs too."""
    rows = [{"prompt": "1" * k + "+2=", "answer": "3", "id": f"row-{k}"} for k in (*range(1, 41), *range(901, 911))]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(x) + "\n" for x in rows))
    asked = ("--data", data, "--max-tokens", "4", "--held-out", "0.3")
    run = ("train", "grpo", "--budget", "128-rollouts", "-n", "2", "-B", "4")
    for command in (("profile", "--out", tmp_path / "s"), (*run, "--out", tmp_path / "r"), ("doctor",)):
        text = said(*command, *asked, code=2)
        assert "line 41: the prompt of 'row-901' has 904 tokens; the model's context is 128" in text
    assert not (tmp_path / "s").exists() and not (tmp_path / "r").exists()
    said("profile", "--out", tmp_path / "s", *asked, "--skip-broken")
    found = read_json(tmp_path / "s" / "profile.json")
    assert found["pool"] + found["select"] + found["audit"] == 40 and "line 41: the prompt of" in found["found"][0]
    said(*run, *asked, "--skip-broken", "--out", tmp_path / "r")
    there = read_json(tmp_path / "r" / "run.json")["problems"]
    assert [there[k] for k in ("train", "select", "audit")] == [found[k] for k in ("pool", "select", "audit")]


def test_rows_whose_answers_are_refused_are_left_out_of_the_runs_too(tmp_path):
    """A run opens the same problems as its study's profile, without having been asked to check them."""
    rows = [{"prompt": f"{k}+2=", "answer": str(k + 2)} for k in range(10, 50)]
    rows.append({"prompt": "7+7=", "answer": "fourteen"})
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(x) + "\n" for x in rows))
    setting = Setting.of(data=str(data), verifier="numeric", skip_broken=True)
    ids = [{p.id for p in open_setting(setting, check=check).problems.problems} for check in (True, False)]
    assert ids[0] == ids[1] and len(ids[0]) == 40


def test_what_cannot_be_taken_up_is_lost_and_in_the_report_s_bill(whole, tmp_path):
    other, unmarked, torn = (dict(x) for x in whole[1][1:4])
    other["id"] = "another problem by now"
    unmarked["rewards"] = [None, *unmarked["rewards"][1:]]
    kept = tmp_path / "profile.jsonl"
    kept.write_text("".join(json.dumps(x) + "\n" for x in (other, unmarked)) + json.dumps(torn)[:40])
    found = asyncio.run(pass_rates(SETTING, problems=PROBLEMS, kept=kept))
    assert counts(found["lost"]) == (Cost.of(other["cost"]) + Cost.of(unmarked["cost"])).counts()
    assert found["right"] == whole[0]["right"] and counts(found["cost"]) == counts(whole[0]["cost"])
    assert len(read_lines(kept)) == 2 + 1 + PROBLEMS    # the torn line is cut, not written on behind
    write_json(tmp_path / "study.json", {"schema": 1, "setting": {}, "phases": {}})
    write_json(tmp_path / "profile.json", {"schema": 1, **found})
    page = str(spent(load(tmp_path)).body)
    assert f"= {SAMPLES * (PROBLEMS + 2)}" in page and "The fates sum to the meter" in page
    assert f"lost</th><td>{SAMPLES * 2}</td>" in page.replace(' class="number"', "")


def test_a_profile_that_was_stopped_does_not_take_the_folder_from_other_settings(whole, tmp_path):
    """What was sampled at the old settings is not used again, and is billed as lost. A profile is not replaced."""
    out = tmp_path / "s"
    command = ("profile", "--out", out, *DATA, "--problems", 4, "--seed", 3)
    found(out, SETTING, seed=3, method=None, profiled=PROBLEMS)
    (out / "profile.jsonl").write_text("".join(json.dumps(x) + "\n" for x in whole[1]))
    said(*command, "--max-tokens", 3)
    made = read_json(out / "profile.json")
    assert counts(made["lost"]) == counts(whole[0]["cost"]) and counts(made["cost"])["rollouts"] == 4 * SAMPLES
    assert read_json(out / "study.json")["setting"]["max_tokens"] == 3
    assert "max_tokens was 3 and is now 5" in CliRunner().invoke(main, [*map(str, command), "--max-tokens", "5"]).stderr


class Told(Observer):
    """Keeps what a step tells of its progress."""

    def __init__(self):
        self.told = []

    @contextmanager
    def counting(self, title):
        yield lambda *now: self.told.append((title, *now))


def test_what_takes_minutes_says_how_far_it_is(tmp_path, capfd):
    """The profile, the checks of doctor and an evaluation: people stop what says nothing."""
    now = Told()
    profile(tmp_path / "s", SETTING, problems=3, observer=now)
    opening, counts = ("profile", "opening the model and the problems"), "problems x 16 completions"
    assert now.told == [opening, *(("profile", counts, k, 3) for k in range(4))]
    now = Told()
    evaluate_model(Setting.of(data="puzzles:count=2", model="tiny-puzzles", max_tokens=4), samples=2, observer=now)
    assert now.told[1:] == [("eval", "problems x 2 completions", k, 2) for k in (1, 2)]
    now = Told()
    opened = open_setting(SETTING)
    asyncio.run(run_checks(opened, checks=CHECKS[:2], observer=now, tell=lambda *x: now.told.append(x)))
    assert now.told == [("sampling for the checks",), ("checks, now template", 0, 2), ("checks, now end ids", 1, 2)]
    assert capfd.readouterr().out == ""


def test_a_dry_run_says_what_it_has_sampled_and_bills_it(tmp_path):
    run = ("train", "grpo", *DATA, "--budget", "1k-rollouts", "--dry-run", "--out", tmp_path / "r")
    cost = json.loads(said(*run, "--json"))["pricing"]
    assert cost["rollouts"] == 2 * SAMPLES and cost["decode"] > 0 and cost["seconds"] > 0
    first = read_json(tmp_path / "r" / "dry-run.json")
    assert first["cost"] == first["spent"] and counts(first["cost"]) == counts(cost)
    text = said(*run)
    assert f"estimating the cost used {2 * SAMPLES} rollouts" in text and f"billed in {tmp_path / 'r'}/dry-run" in text
    assert read_json(tmp_path / "r" / "dry-run.json")["spent"]["rollouts"] == 4 * SAMPLES
    said(*(x for x in run if x != "--dry-run"))
    page = str(spent(load(tmp_path / "r")).body).replace(' class="number"', "")
    assert f"dry runs</th><td>{4 * SAMPLES}</td>" in page and "The fates sum to the meter" in page


def test_a_dry_run_that_is_refused_says_what_telling_so_has_taken(tmp_path):
    run = ("train", "grpo", *DATA, "--budget", "5-tokens", "--dry-run", "--out", tmp_path / "r")
    told = said(*run, code=2)
    assert "does not pay for one update" in told and f"estimating the cost used {2 * SAMPLES} rollouts" in told
    assert read_json(tmp_path / "r" / "dry-run.json")["spent"]["rollouts"] == 2 * SAMPLES


def planned(seeds):
    known = {"select": 10, "audit": 10, "exact": True, "lengths": {"mean": 3.0}, "parameters": 1000, "rate": {
        "rollouts_per_second": 1000.0, "tokens_per_second": 3000.0}, "cost": {"rollouts": 128, "prefill": 512,
        "decode": 384, "seconds": 0.1}, "prompt": 4.0, "seconds": 0.1}
    common = Conditions("400k-rollouts", seeds=seeds, rollouts=4, groups=4, evaluations=4)
    return design(["grpo", "dapo"], known, common, samples=4)


def test_what_the_probes_differ_by_is_pooled_within_an_arm_at_a_rate(monkeypatch):
    ends = {"a-1-s0": 0.50, "a-1-s1": 0.54, "a-2-s0": 0.20, "a-2-s1": 0.10, "b-1-s0": 0.90, "b-1-s1": 0.88}

    def curves(folders, metric):
        return [Curve(f.name, Arm(n=4, B=4, lr=1e-3, multiplier=float(f.name[2])), i,
                      *(np.array([0.1, ends[f.name]]) for _ in range(5)), metric=metric,
                      diverged=f.name.startswith("a-2")) for i, f in enumerate(folders)]

    monkeypatch.setattr(comparing, "curves", curves)
    jobs = {label: [SimpleNamespace(name=k) for k in ends if k[0] == label] for label in "ab"}
    home = SimpleNamespace(runs=Path("runs"))
    found = comparing.measured_noise(home, planned(10), jobs)  # variances 0.0008 and 0.0002; what diverged is left out
    assert found == {"sd": pytest.approx(0.0005**0.5), "dof": 2}
    one = {label: own[:1] for label, own in jobs.items()}
    assert comparing.measured_noise(home, planned(5), one) is None


def test_the_detectable_difference_follows_from_the_measured_noise():
    few, many = planned(5), planned(10)
    assert "of 0.020 between runs (assumed; probes with one seed do not measure it)" in detectable(few, None)
    assert "of 0.020 between runs (assumed until the probes end)" in detectable(many, None)
    assert f"0.05 or more: 5 seeds then detect nothing below {few.detectable(0.05):.2g};" in detectable(few, None)
    measured = detectable(many, {"sd": 0.04, "dof": 6})
    assert "--pilot" not in measured
    assert "of 0.040 between runs (measured on the probes, 6 degrees of freedom)" in measured
    assert measured.startswith(f"minimum detectable difference between two arms {2 * many.detectable(0.02):.3f} (80%")


def test_the_command_says_what_follows(tmp_path):
    command = ("profile", "--out", tmp_path / "my s", *DATA, "--problems", 2, "--max-tokens", 1)
    brief = said(*command)
    assert brief.endswith(f"  next: isocost plan '{tmp_path / 'my s'}' --budget ...\n") and "ns fail for" not in brief
    cut = read_json(tmp_path / "my s" / "profile.json")["lengths"]["truncated"]
    assert cut > 0.1 and f"! {cut:.1%} of the completions were cut at their length limit, and the numbers" in brief
    assert "next:" not in said(*command, "--json")


def test_samples_are_not_those_of_a_profile(tmp_path):
    """With a paid model, --samples 4 would have cost four times the money."""
    brief = said("profile", "--out", tmp_path / "s", *DATA, "--problems", 2, "--samples", 8)
    assert "a profile samples 16 completions of each problem, and --samples 8 is of each held-out problem" in brief
    done = CliRunner().invoke(main, ["profile", "--out", str(tmp_path / "t"), "--model", "openai:http://localhost:1/v1#m",
                                     *DATA, "--samples", "4"])
    assert done.exit_code == 2 and "a profile samples 16 completions of each problem" in done.stderr
    assert "leave it out; --problems says of how many problems" in done.stderr and not (tmp_path / "t").exists()
