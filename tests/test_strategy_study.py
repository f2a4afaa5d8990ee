"""A study of test-time strategies from end to end: from stored completions, and of a live model."""

import json
import random
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost import report
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.planner.test_time.prescribe import BandStrategy, StrategyForecasts, StrategyPlan
from isocost.steps import api, kinds
from isocost.steps.settings import setting_of
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.answer import answer, specs
from isocost.steps.test_time.profile import Compared, StrategyProfile, profile_live, profile_stored

PROBLEMS, SAMPLES = 60, 12


def rows(**changes):
    rng = random.Random(0)
    out = []
    for i in range(PROBLEMS):
        for _ in range(SAMPLES):
            right = rng.random() < (i % 10) / 10
            wrong = rng.random() < 0.2
            row = {"problem_id": f"p{i}", "correct": right, "score": 0.8 if right != wrong else 0.2,
                   "answer": "7" if right else str(rng.randrange(10, 14)), "completion_tokens": rng.randrange(20, 60),
                   "prompt_tokens": 30, "level": "long" if i % 2 else "short"}
            out.append({k: v for k, v in {**row, **changes}.items() if v is not None})
    return out


def written(path: Path, made) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in made), encoding="utf-8")
    return path


def run(*words, code=0):
    ended = CliRunner().invoke(main, list(map(str, words)))
    assert ended.exit_code == code, ended.output
    return ended.output


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    here = tmp_path_factory.mktemp("stored")
    file = written(here / "pool.jsonl", rows())
    run("profile", "--completions", file, "--strategies", "all", "--out", here / "s")
    run("plan", here / "s", "--budget", "300-tokens/answer")
    return here / "s"


def test_a_study_of_stored_completions_is_profiled_planned_audited_and_reported(stored):
    study = StudyRecord.read(stored)
    assert study.kind == "test_time"
    profile = StrategyProfile.read(study)
    assert profile.strategies == ("best-of", "vote", "weighted-vote", "until-sure")
    assert profile.bands == ("long", "short")
    said = run("plan", stored, "--accuracy", "0.6")
    assert said.startswith("\naccuracy 0.6: ") and "expected accuracy" in said and "sealed" in said
    judged = CliRunner().invoke(main, ["audit", str(stored), "--json"])
    found = json.loads(judged.output)
    assert judged.exit_code == found["exit_code"] and len(found["outcomes"]) == 2
    assert found["outcomes"][0]["asked"] == "300-tokens/answer"
    page = report.write(stored).read_text()
    assert "accuracy 0.6" in page and page.count('id="plot-strategies"') == 1


def test_the_same_budget_planned_again_has_the_same_seal_and_a_changed_pool_cannot_be_judged(stored, tmp_path):
    there = StudyRecord.read(Path(shutil.copytree(stored, tmp_path / "s")))
    first = kinds.plan(there, {"budget": "300-tokens/answer"})
    assert kinds.plan(there.again(), {}).forecast == kinds.plan(there.again(), {"budget": "300-tokens/answer"}).forecast
    assert StrategyPlan.of(there.again().record("plan.json", "plan")) == first.plan
    lines = (there.path / "pool.jsonl").read_text().splitlines(keepends=True)
    (there.path / "pool.jsonl").write_text("".join(lines[:-1]) + lines[0].replace('"p0"', '"p99"'))
    assert kinds.audit(there.again()).verdict == "cannot tell"
    with pytest.raises(UserError, match=r"a forecast for 300-tokens/answer is sealed, .* is never rewritten"):
        kinds.plan(there.again(), {"budget": "300-tokens/answer"})


def test_from_python_a_study_of_strategies_has_the_same_steps(stored):
    study = api.open(stored)
    assert study.plan(budget="100-tokens/answer").plan.asked == "100-tokens/answer"
    assert study.audit().verdict in ("hit", "miss", "uninformative", "cannot tell")


@pytest.mark.parametrize("words, why", [
    (("fit",), "compares test-time strategies, which have no law to fit: `isocost plan .* chooses one"),
    (("pilot",), "compares test-time strategies: its policy is not trained"),
    (("plan", "--size", "quick"), "--size has no use here: .* its plan takes --accuracy, --answers, --budget"),
    (("plan", "--budget", "5-tokens/answer"), "below one sample, which takes"),
    (("answer", "--data", "puzzles", "--out", "x.jsonl"), "was made of stored completions, so it has no model"),
])
def test_a_command_that_does_not_fit_says_what_does(stored, words, why):
    assert re.search(why, run(words[0], stored, *words[1:], code=2))


@pytest.mark.parametrize("changes, strategies, why", [
    ({"score": None}, "best-of", r"best-of needs the score of each sample, .* --scorer verifier .*; vote, until-sure"),
    ({"score": 1.5}, "all", r"'score' is 1.5; expected a number from 0 to 1"),
    ({"answer": "7"}, "all", "it is the reference's. Name the samples' own with --map answer=COLUMN"),
    ({}, "beam", "stored completions have no strategy 'beam'"),
])
def test_completions_that_do_not_suffice_say_what_is_lacking(tmp_path, changes, strategies, why):
    file = written(tmp_path / "pool.jsonl", rows(**changes))
    with pytest.raises(UserError, match=why):
        profile_stored(tmp_path / "s", file, Compared([strategies]))
    assert not (tmp_path / "s" / "study.json").exists()


def test_with_the_verifier_as_scorer_best_of_needs_no_scores(tmp_path):
    file = written(tmp_path / "pool.jsonl", rows(score=None, answer=None))
    found = profile_stored(tmp_path / "s", file, Compared(["all"], "verifier"))
    assert found.exact and found.strategies == ("best-of",)
    by = {r.size: r.accuracy for r in found.table.rows if r.strategy == "best-of"}
    assert by[8] == pytest.approx(found.solved[3])


# of a model ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    out = tmp_path_factory.mktemp("live") / "s"
    setting = setting_of({"data": "puzzles", "limit": 110, "held_out": 0.25, "max_tokens": 48})
    asked = Compared(["best-of", "vote", "particles"], "steps:wrong=0.1", samples=6, sizes=(2,),
                     arms=({"temperature": 0.6},))
    return profile_live(out, setting, asked), setting, asked


def test_a_profile_of_a_model_has_its_pool_its_searches_and_its_arms(live):
    found, _, _ = live
    assert {r.strategy for r in found.table.rows} == {"one", "best-of", "vote", "particles"}
    assert found.cost.decode > 1000
    assert {p.name for p in found.folder.iterdir()} >= {"pool.jsonl", "pool@temperature=0.6.jsonl", "live.jsonl"}


def kept(folder, name):
    """The lines of a file by their ids, without the seconds, which are the clock's."""
    lines = map(json.loads, (folder / name).read_text().splitlines())
    return {(x["id"], x["strategy"] if name == "live.jsonl" else ""): {k: v for k, v in x.items() if k != "cost"}
            for x in lines}


def test_a_profile_that_lost_lines_samples_the_same_again(live, tmp_path):
    found, setting, asked = live
    there = Path(shutil.copytree(found.folder, tmp_path / "s"))
    for name in ("pool.jsonl", "live.jsonl"):
        lines = (there / name).read_text().splitlines(keepends=True)
        (there / name).write_text("".join(lines[3:]))
    profile_live(there, setting, asked)

    for name in ("pool.jsonl", "live.jsonl"):
        assert kept(there, name) == kept(found.folder, name)


def test_answers_follow_the_plan_are_billed_and_are_not_made_twice(live, tmp_path):
    found, _, _ = live
    study = StudyRecord.read(found.folder)
    plan = kinds.plan(study, {"budget": "250-tokens/answer"}).plan
    out = tmp_path / "answers.jsonl"
    first = answer(study.again(), "puzzles:count=3", out)
    again = answer(study.again(), "puzzles:count=4", out)
    assert (first.new, again.new, again.answers) == (3, 1, 4)
    answer(study.again(), "puzzles:count=4", tmp_path / "at-once.jsonl")
    assert kept(tmp_path, "at-once.jsonl") == kept(tmp_path, out.name)
    lines = [json.loads(x) for x in out.read_text().splitlines()]
    assert all(x["cost"]["decode"] == x["tokens"] >= x["depth"] > 0 for x in lines)
    assert StrategyForecasts.of(study.again().record("forecast.json", "plan")).forecasts[-1].label == plan.label


def test_a_plan_by_band_runs_as_one_strategy_with_its_probe(live):
    plan = kinds.plan(StudyRecord.read(live[0].folder), {"budget": "250-tokens/answer"}).plan
    each = tuple(BandStrategy(b, "best-of", n, 9) for b, n in (("below 0.3", 16), ("below 0.7", 8), ("from 0.7", 4)))
    (way,) = specs(replace(plan, each=each, probe=4, edges=(0.3, 0.7)), "steps").values()
    assert way.settings["low"] == 0.3 and way.settings["high"] == 0.7
    assert way.settings["hard"] == "best-of:n=16,scorer=(steps)" and way.settings["easy"].startswith("best-of:n=4")


# of dialogues -------------------------------------------------------------------------------------------------


def test_strategies_choose_among_whole_dialogues_whose_every_turn_is_read_and_searches_are_refused(tmp_path):
    setting = setting_of({"env": "rooms", "limit": 60})
    found = profile_live(tmp_path / "s", setting, Compared(["best-of", "vote", "until-sure"], samples=4, problems=6))
    by = {(r.strategy, r.size): r.accuracy for r in found.table.rows}
    assert by["best-of", 4] == pytest.approx(found.table.solved[2]) and by["vote", 4] >= found.table.always[2]
    lines = [json.loads(x) for x in (tmp_path / "s" / "pool.jsonl").read_text().splitlines()]
    for x in lines:
        assert x["read"] == (x["cost"]["prefill"] - x["cost"].get("reread", 0)) / 4
    with pytest.raises(UserError, match="beam searches over steps, and the environment of a dialogue cannot follow"):
        profile_live(tmp_path / "t", setting, Compared(["beam"], sizes=(4,)))
    assert not (tmp_path / "t" / "study.json").exists()
