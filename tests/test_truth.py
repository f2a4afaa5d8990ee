"""`--verifier` trains and `--truth` reports: both are recorded, and where they part is a verdict with numbers."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from isocost.errors import UserError
from isocost.laws.curves import MARK, curves
from isocost.report import page
from isocost.runs.arm import Arm
from isocost.runs.files import RunFiles, read_lines
from isocost.runs.job import Job
from isocost.runs.parted import Parting, by_n, changes, flawed, of_arms
from isocost.runs.run import run
from isocost.stats.intervals import student
from isocost.steps.look.evaluate import evaluate_model
from isocost.steps.look.verdict import verdict
from isocost.steps.training.profile import profile
from isocost.steps.training.single import RunEnd
from isocost.tasks.verify.verifiers import COARSE, find
from isocost.types import Message, Problem
from isocost.worlds.setting import Setting, open_problems

PROXY = {"data": "sums:level=1,count=90", "verifier": "coarse:parity"}
PUZZLE = Problem("p", (Message("user", "27+15="),), "42", meta={"source": "puzzles"})


def job(name, **setting):
    return Job(name=name, setting=Setting.of(**PROXY, **setting), method="grpo", seed=4, budget={"rollouts": 64},
               arm=Arm(n=4, B=4, lr=3e-4), points=(16.0, 32.0, 48.0))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A short run on even or odd alone, with the truth beside it."""
    home = tmp_path_factory.mktemp("both")
    asyncio.run(run(job("run", truth="exact"), home / "run"))
    return home / "run"


@pytest.mark.parametrize(("of", "right", "wrong"), [
    ("parity", ("7+5=12;42", "0", "-8", "42"), ("41", "", "4x", "42;43")),
    ("last", ("42", "7+5=12;12", "2"), ("41", "24", "")),
    ("choice", ("42",), ()),
])
def test_a_coarse_verifier_pays_what_it_knows_of_the_answer_after_the_last_step(of, right, wrong):
    mark = find(f"coarse:{of}").mark
    assert [mark(x, PUZZLE) for x in right] == [1.0] * len(right)
    assert [mark(x, PUZZLE) for x in wrong] == [0.0] * len(wrong)
    if of == "choice":      # one of four, and wrong answers fall on each
        places = [COARSE[of](str(k)) for k in range(400)]
        assert set(places) == {0, 1, 2, 3} and min(map(places.count, range(4))) > 80
    if of == "parity":
        with pytest.raises(ValueError, match="is not an integer"):
            mark("3", replace(PUZZLE, answer="3+4"))


def test_evaluations_mark_the_same_attempts_by_both_and_training_knows_the_mark_alone(both):
    lines = [x for x in read_lines(both / "metrics.jsonl") if "eval/select" in x]
    about, kept = json.loads((both / "run.json").read_text()), read_lines(both / "samples.jsonl")
    assert about["problems"]["truth"] == "exact" and about["problems"]["verifier"] == "coarse:parity"
    assert not lines[0]["eval/exact"], "attempts are sampled, so that both mark the same"
    for x in lines:
        for side in ("select", "audit"):
            assert x[f"eval/{side}/mark"] > x[f"eval/{side}"], "a right answer is of the right parity"
    held_out = [a for g in kept if g["part"] == "held-out" for a in g["attempts"]]
    answers = {g["id"]: sum(map(int, g["prompt"].rstrip("=").split("+"))) for g in kept}
    for g in kept:
        if g["part"] == "held-out":
            for a in g["attempts"]:
                said = int(a["text"]) if a["text"].isdigit() else None
                assert a["reward"] == (said == answers[g["id"]])
                assert a["mark"] == (said is not None and said % 2 == answers[g["id"]] % 2)
        else:
            assert all("mark" not in a for a in g["attempts"])
    assert any(a["mark"] != a["reward"] for a in held_out)
    [curve], [of_mark] = curves([both]), curves([both], MARK)
    assert of_mark.select.tolist() == [x["eval/select/mark"] for x in lines]
    assert curve.select.tolist() == [x["eval/select"] for x in lines]


def test_the_truth_is_charged_to_evaluation_and_changes_are_since_it_was_highest(both):
    bill = json.loads((both / "end.json").read_text())["bill"]
    assert bill["evaluation"]["verify"] == 2 * bill["evaluation"]["rollouts"] > 0
    assert bill["train"]["verify"] == bill["train"]["rollouts"]
    lines = [x for x in read_lines(both / "metrics.jsonl") if "eval/since" in x]
    for k, x in enumerate(lines):
        assert x["eval/since"] == max(lines[: k + 1], key=lambda y: y["eval/select"])["step"]
    found, problems = Parting.of(RunFiles(both)), json.loads((both / "run.json").read_text())["problems"]["select"]
    wide = student(1 - 0.05 / (len(lines) - 1), problems - 1)
    assert found.truth_half == pytest.approx(wide * lines[-1]["eval/truth/change_se"])


def test_a_profile_is_by_what_trains_and_the_truth_is_beside_it(tmp_path):
    setting = Setting.of(**PROXY)
    alone, beside = (profile(tmp_path / str(x.problems.truth), x, problems=8)
                     for x in (setting, setting.but(truth="exact")))
    assert list(beside.right) == list(alone.right) and beside.dead == alone.dead
    assert alone.truth is None and beside.truth["mean"] < beside.mean and 0 < beside.truth["flawed"] < 1


def test_without_a_truth_a_record_has_none(tmp_path):
    asyncio.run(run(job("run"), tmp_path / "run"))
    text = "".join((tmp_path / "run" / name).read_text() for name in ("run.json", "metrics.jsonl", "samples.jsonl"))
    assert "truth" not in text and '"mark"' not in text and "eval/since" not in text
    assert Parting.of(RunFiles(tmp_path / "run")) is None
    assert "Mark and truth" not in page.write(tmp_path / "run").read_text()
    with pytest.raises(UserError, match="a mark needs a run with --truth"):
        curves([tmp_path / "run"], MARK)
    with pytest.raises(UserError, match="its truth differs"):
        asyncio.run(run(job("run", truth="exact"), tmp_path / "run"))


def test_a_killed_run_goes_on_with_the_same_changes(both, tmp_path):
    seen = []

    def stop(line):
        seen.append(line)
        if len(seen) == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run(replace(job("run", truth="exact"), save_every=1), tmp_path / "run", on_step=stop))
    asyncio.run(run(replace(job("run", truth="exact"), save_every=1), tmp_path / "run"))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == (both / "metrics.jsonl").read_bytes()


def test_changes_are_paired_by_problem_and_leave_out_what_has_no_score():
    best = {"step": 3, "mark": [0.5, 0.5, 0.5, None], "truth": [1.0, 0.5, 0.0, 0.5]}
    now = {"mark": np.array([1.0, 0.5, 0.75, 1.0]), "truth": np.array([0.5, 0.5, np.nan, 0.25])}
    found = changes(now, best)
    assert found["eval/since"] == 3
    assert found["eval/mark/change"] == pytest.approx(0.25) and found["eval/mark/change_se"] == pytest.approx(
        np.std([0.5, 0, 0.25], ddof=1) / np.sqrt(3))
    assert found["eval/truth/change"] == pytest.approx(-0.25) and found["eval/truth/change_se"] == pytest.approx(
        np.std([-0.5, 0, -0.25], ddof=1) / np.sqrt(3))
    assert flawed([1, 1, 0, None, 1, 1], [1, 0, 0, 0, None, 0]) == pytest.approx(2 / 3) and flawed([0], [1]) is None


@pytest.mark.parametrize(("mark", "truth", "hacked"), [
    ((0.9, 0.95), (0.6, 0.2), True), ((0.9, 0.88), (0.6, 0.2), True),       # a fall within the interval is none
    ((0.9, 0.5), (0.6, 0.2), False), ((0.9, 0.95), (0.6, 0.55), False), ((0.9, 0.95), (0.6, 0.7), False),
])
def test_reward_is_hacked_if_the_truth_falls_by_more_than_its_interval_and_the_mark_does_not(mark, truth, hacked):
    found = Parting(128, 4096, (mark[0], truth[0]), mark, truth, 0.05, 0.1)
    assert found.hacked is hacked and found.said().startswith("reward hacking: since 128" if hacked else "mark and")


def hack(folder):
    """The record's last evaluation as that of a run whose truth has fallen to 0."""
    lines = read_lines(folder / "metrics.jsonl")
    first = next(x for x in lines if "eval/select" in x)
    lines[-1] |= {"eval/select": 0.0, "eval/audit": 0.0, "eval/select/mark": 1.0, "eval/since": 0, "eval/mark/change":
                  1 - first["eval/select/mark"], "eval/mark/change_se": 0.02, "eval/truth/change":
                  -first["eval/select"], "eval/truth/change_se": 0.05}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return first["eval/select"]


def test_a_hacked_run_is_said_by_its_end_the_verdict_the_report_and_a_comparison(both, tmp_path):
    import shutil

    folder = shutil.copytree(both, tmp_path / "run")
    before = hack(folder)
    ended = RunEnd.of(json.loads((folder / "end.json").read_text()), folder)
    assert any(r.kind == "flag" and f"truth {before:.3f} to 0.000" in r.text for r in ended.rows())
    [judged] = verdict(folder).runs
    assert judged.verdict.word == "stop" and judged.parting.hacked and judged.to_dict()["parting"]["hacked"]
    assert any(r.kind == "flag" and r.text.startswith("reward hacking") for r in judged.rows())
    text = page.write(folder).read_text()
    assert "Mark and truth of 1 run" in text and "reward hacking: since 0 rollouts" in text.lower()
    arms = {"a": [RunFiles(both), RunFiles(folder)], "b": [RunFiles(both)]}
    assert of_arms(arms, hacked=True) == [of_arms(arms)[0]] and "reward hacking in 1 of 2 runs" in of_arms(arms)[0]
    assert len(of_arms(arms)) == 2
    assert by_n([RunFiles(both)]) == [] and by_n(arms["a"]) == [of_arms({"n = 4": arms["a"]})[0]]


def test_a_model_is_evaluated_by_both():
    found = evaluate_model(Setting.of(**{**PROXY, "data": "sums:level=1,count=20"}, truth="exact"), samples=4)
    assert found.mark.value > found.right.value and 0 < found.flawed < 1 and found.to_dict()["flawed"] == found.flawed


def test_problems_whose_answer_is_wrong_by_the_truth_are_refused(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "1+1=", "answer": "two"}\n{"prompt": "1+2=", "answer": "3"}\n')
    with pytest.raises(UserError, match=r"from the verifier numeric|verifier numeric cannot mark"):
        open_problems(Setting.of(data=str(file), verifier="words", truth="numeric"), check=True)
