"""A study of one's own data from profile to report, in the README's order of commands, with and without a pilot."""

import asyncio
import json
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.disk.jsonfile import write_json
from isocost.report.records import load
from isocost.report.sections.problems import profile as problems_section
from isocost.runs.record import read_json, read_lines
from isocost.steps.training.pass_rates import pass_rates
from isocost.worlds.setting import Setting, open_problems

PAIRS = [(a, b) for a in range(20, 60) for b in (17, 56, 65, 69)]
ROWS = [{"prompt": f"{a}+{b}=", "answer": str(a + b), "level": a // 10} for a, b in PAIRS]


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return " ".join(done.output.split())


def write(path, rows=ROWS):
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


GRADED = '''
def reward(completions, answer, **columns):
    """1 for the right answer, 0.1 for one that ends on an even digit, else 0."""
    return [1.0 if c == a else 0.1 * (c[-1:] in "02468") for c, a in zip(completions, answer)]
'''


def test_a_graded_reward_is_profiled_by_all_that_it_pays(tmp_path):
    """Dead groups are those whose 16 rewards, as they were marked, are all equal; by hand from what was sampled."""
    (tmp_path / "mine.py").write_text(GRADED)
    setting = Setting.of(data=str(write(tmp_path / "mine.jsonl")), verifier=f"{tmp_path / 'mine.py'}:reward")
    kept = tmp_path / "profile.jsonl"
    found = asyncio.run(pass_rates(setting, problems=12, kept=kept))
    rewards = [x["rewards"] for x in read_lines(kept) if x["rewards"]]
    assert {r for row in rewards for r in row} == {0.0, 0.1, 1.0} and found["graded"]
    pairs = [[a == b for i, a in enumerate(row) for b in row[:i]] for row in rewards]
    dead = {d["n"]: d["share"] for d in found["dead"]}
    assert dead[2] == pytest.approx(np.mean([np.mean(x) for x in pairs]))
    assert dead[16] == pytest.approx(np.mean([len(set(row)) == 1 for row in rewards]))
    assert found["mean"] == pytest.approx(np.mean(rewards)) and sum(found["histogram"]) == 12
    write_json(tmp_path / "study.json", {"schema": 1, "setting": {}, "phases": {}})
    write_json(tmp_path / "profile.json", {"schema": 1, **found})
    page = str(problems_section(load(tmp_path)).body)
    assert "mean reward is" in page and "right answers out of" not in page


def test_a_profile_of_rows_in_order_of_level_has_every_level(tmp_path):
    """160 rows, level 2 to 5 in the order of the file: a quarter of 40 problems is of each, whatever the order."""
    ids = []
    for name, rows in (("a", ROWS), ("b", ROWS[::-1])):
        setting = Setting.of(data=str(write(tmp_path / f"{name}.jsonl", rows)))
        found = asyncio.run(pass_rates(setting, seed=3, problems=40))
        share = Counter(p.meta["level"] for p in open_problems(setting)[1].train)
        there = Counter(found["levels"])
        assert set(there) == {2, 3, 4, 5}
        assert all(abs(there[k] - 40 * share[k] / sum(share.values())) < 1 for k in share)
        ids.append(set(found["ids"]))
    assert ids[0] == ids[1] != set(asyncio.run(pass_rates(setting, seed=4, problems=40))["ids"])


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """A study of 160 rows, 61 of them held out, that was profiled and nothing else."""
    home = tmp_path_factory.mktemp("own")
    data = write(home / "mine.jsonl")
    said("profile", "--data", data, "--held-out", "0.4", "--max-tokens", "4", "--out", home / "s")
    return home / "s"


def test_a_study_without_a_pilot_goes_from_plan_to_report_and_says_what_is_not_known(profiled, ran):
    text = said("plan", profiled, "--budget", "13k-rollouts")
    assert "there was no pilot" in text and "nothing is forecast" in text
    assert "plan: no pilot" in said("pilot", profiled)
    assert "nothing to fit" in said("fit", profiled) and json.loads(said("fit", profiled, "--json"))["law"] is None
    assert said("plan", profiled) == text
    planned, plan = read_json(profiled / "pilot.json"), read_json(profiled / "plan.json")
    assert planned["direct"] and plan["direct"] and [a["n"] for a in plan["arms"]] == [8, 16] and plan["seeds"] == 3
    text = " ".join(ran("train", "--plan", profiled).split())
    assert "no value is forecast: the study has no pilot" in text
    text = said("audit", profiled, code=4)
    assert "audit: cannot tell no value is forecast: the study has no pilot" in text
    audit = read_json(profiled / "audit.json")
    assert audit["forecast"] is None and audit["gain"]["count"] == audit["difference"]["count"] == 3
    said("report", profiled)
    page = (profiled / "report.html").read_text()
    assert "the plan fixed n, so no other n was tried" in page and "Traceback" not in page
    assert said("verdict", profiled)


def test_runs_are_evaluated_as_planned_and_all_on_the_same_problems(profiled):
    """After the study above."""
    evaluation = read_json(profiled / "pilot.json")["evaluation"]
    assert evaluation == {"problems": 61, "samples": 2, "held_out": None, "first": None}
    for run in profiled.glob("runs/train-*"):
        evaluations = [x for x in read_lines(run / "metrics.jsonl") if "eval/audit" in x]
        bill = read_json(run / "end.json")["bill"]
        assert len(evaluations) == 3 and {x["eval/samples"] for x in evaluations} == {2}
        assert bill["evaluation"]["rollouts"] == 3 * 61 * 2 <= bill["train"]["rollouts"] / 4


def test_where_samples_do_not_do_fewer_problems_are_evaluated(tmp_path, profiled):
    for name in ("study.json", "profile.json"):
        (tmp_path / name).write_bytes((profiled / name).read_bytes())
    text = said("plan", tmp_path, "--budget", "700-rollouts")
    evaluation = read_json(tmp_path / "pilot.json")["evaluation"]
    assert evaluation["samples"] == 1 and evaluation["held_out"] == 61 and 32 <= evaluation["problems"] < 61
    assert f"{evaluation['problems']} of 61 held-out problems" in text
    said("train", "--plan", tmp_path)
    run = next(tmp_path.glob("runs/train-*"))
    there = read_json(run / "run.json")
    assert there["problems"]["select"] + there["problems"]["audit"] == evaluation["problems"]
    assert there["job"]["setting"]["evaluated"] == evaluation["problems"]
    assert json.loads(said("eval", run, "--samples", "1", "--json"))["problems"] == 61, "measured again, on all of them"
    said("train", "--plan", tmp_path)     # what is done is not done again


@pytest.mark.parametrize("budget", ["600-rollouts", "100M-rollouts", "1s", "40h", "2M-tokens", "1e10flop"])
def test_every_budget_has_a_plan(tmp_path, profiled, budget):
    for name in ("study.json", "profile.json"):
        (tmp_path / name).write_bytes((profiled / name).read_bytes())
    text = said("plan", tmp_path, "--budget", budget, "--workers", "1")
    planned = read_json(tmp_path / "pilot.json")
    assert planned["direct"] == (tmp_path / "plan.json").exists()
    assert ("prescription" if planned["direct"] else "plan of the pilot") in text and "evaluation: " in text
    assert "nothing is forecast" in text or not planned["direct"]
    if not planned["direct"]:
        assert "grid runs" in said("pilot", tmp_path, "--dry-run")


def sides_of(data):
    return open_problems(Setting.of(data=str(data), held_out=0.4))[1]


def test_evaluated_problems_do_not_depend_on_the_order_of_rows(tmp_path):
    one, other = write(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", ROWS[::-1])
    sides = [open_problems(Setting.of(data=str(p), held_out=0.4, evaluated=20))[1] for p in (one, other)]
    ids = [({p.id for p in s.select}, {p.id for p in s.audit}) for s in sides]
    assert ids[0] == ids[1] and sum(map(len, ids[0])) == 20 and min(map(len, ids[0])) >= 8
    for k in (2, 3, 31, 32, 33, 63):
        cut = sides_of(one).evaluated(k)
        assert len(cut.select) + len(cut.audit) == min(k, 61) and min(len(cut.select), len(cut.audit)) >= 1
    whole = sides_of(one)
    assert ids[0][0] < {p.id for p in whole.select} and len(sides[0].train) == len(whole.train)
    assert [p for p in whole.select if p in sides[0].select] == list(sides[0].select), "in the order of the rows"


def test_samples_are_refused_where_evaluation_is_exact_and_shares_that_are_none(tmp_path):
    said("profile", "--out", tmp_path / "s", "--data", "sums:base=easy,count=60", "--problems", "8")
    assert "evaluations are exact here" in said("plan", tmp_path / "s", "--budget", "2k-rollouts", "--samples", "3",
                                                code=2)
    assert "evaluation-share" in said("plan", tmp_path / "s", "--budget", "2k-rollouts", "--evaluation-share", "0",
                                      code=2)


def test_what_a_new_plan_of_the_pilot_leaves_out_is_as_it_was_planned(tmp_path):
    home = tmp_path / "s"
    said("profile", "--out", home, "--data", "sums:base=easy,count=60", "--problems", "8")
    budgets = []
    for options in (("--budget", "20k-rollouts"), ("--lr", "1e-4"), ("--size", "tiny"), ("--groups", "4")):
        said("plan", home, *options)
        planned = json.loads((home / "pilot.json").read_text())
        budgets.append((planned["budget"] and planned["budget"]["amount"], planned["preset"]))
    assert budgets == [(20000, "quick"), (20000, "quick"), (None, "tiny"), (None, "tiny")]


def test_a_metric_of_more_samples_than_are_planned_is_refused_by_what_would_do(tmp_path, profiled):
    for name in ("study.json", "profile.json"):
        (tmp_path / name).write_bytes((profiled / name).read_bytes())
    said("plan", tmp_path, "--budget", "700-rollouts")
    assert "--metric best@4 --samples 4" in said("plan", tmp_path, "--metric", "best@4", code=2)
    said("plan", tmp_path, "--metric", "best@4", "--budget", "700-rollouts")
    assert read_json(tmp_path / "pilot.json")["evaluation"]["samples"] == 4
