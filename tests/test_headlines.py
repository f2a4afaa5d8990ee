"""Headlines: the page says what the records say, the records what the sealed questions asked, and a verdict follows
from its interval."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t as student

from isocost.errors import UserError
from isocost.laws.tracks import Track
from isocost.planner.forecast import digest

HOME = Path(__file__).parents[1]


def load():
    """The command of the records folder as the module that its headlines import."""
    if "headline" not in sys.modules:
        spec = importlib.util.spec_from_file_location("headline", HOME / "experiments" / "headline.py")
        assert spec and spec.loader
        sys.modules["headline"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["headline"])
    return sys.modules["headline"]


headline = load()
NAMES = sorted(f.stem for f in headline.KEPT.glob("*.json"))


def runs(**arms):
    return {arm: {seed: {"x": value} for seed, value in enumerate(values)} for arm, values in arms.items()}


def test_a_question_is_answered_by_a_paired_students_interval():
    """Five pairs: differences of mean 3 and variance 2.5, so 3 ± t(4) sqrt(2.5 / 5)."""
    a, b = [2.0, 4.0, 6.0, 8.0, 10.0], [1.0, 2.0, 3.0, 4.0, 5.0]
    asked = headline.Question("", ("a", "x"), ("b", "x")).asked(runs(a=a, b=b), 0.1)
    half = student.ppf(0.95, 4) * np.sqrt(2.5 / 5)
    assert asked["value"] == pytest.approx(3.0)
    assert (asked["low"], asked["high"]) == pytest.approx((3 - half, 3 + half))
    assert (asked["of"], asked["less"], asked["seeds"], asked["level"]) == (6.0, 3.0, 5, 0.9)


@pytest.mark.parametrize(("claimed", "answer"), [
    ((0.0, inf), "holds"), ((1.0, inf), "holds"), ((2.0, inf), "cannot tell"), ((4.6, inf), "does not hold"),
    ((-inf, 0.0), "does not hold"), ((-inf, 3.0), "cannot tell"), ((-0.01, 0.01), "does not hold"),
    ((1.0, 5.0), "holds"), ((2.9, 3.1), "cannot tell"),
])
def test_what_is_claimed_holds_where_the_whole_interval_lies_in_it(claimed, answer):
    """The interval is 3 ± 1.507."""
    found = runs(a=[2.0, 4.0, 6.0, 8.0, 10.0], b=[1.0, 2.0, 3.0, 4.0, 5.0])
    assert headline.Question("", ("a", "x"), ("b", "x"), claimed).asked(found, 0.1)["answer"] == answer


@pytest.mark.parametrize(("answers", "outcome"), [
    (["holds", "holds"], "holds"), (["holds", "cannot tell"], "cannot tell"),
    (["cannot tell", "does not hold", "holds"], "does not hold"),
])
def test_a_headline_holds_where_all_of_its_questions_do(answers, outcome):
    assert headline.outcome_of(answers) == outcome


def test_the_questions_of_a_headline_share_its_level(tmp_path, monkeypatch):
    design = {"labels": ["a", "b"], "unit": "rollouts", "cost": 64, "n": 8, "B": 4}
    (tmp_path / "compare.json").write_text(json.dumps({"design": design, "seal": ""}))
    (tmp_path / "comparison.json").write_text(json.dumps({"missing": [], "rates": {}, "bill": {}}))
    for arm in "ab":
        for seed in range(4):
            folder = tmp_path / "runs" / f"train-{arm}-s{seed}"
            folder.mkdir(parents=True)
            (folder / "run.json").write_text(json.dumps({"seed": seed, "code": {"sources": "x"}}))
    ends = {"a": (3, 5, 4, 4), "b": (1, 2, 3, 2)}
    end = {f"train-{arm}-s{seed}": x for arm, own in ends.items() for seed, x in enumerate(own)}
    monkeypatch.setattr(headline, "read_json", lambda file: json.loads(file.read_text()))
    monkeypatch.setattr(headline, "numbers", lambda _, folder: {"x": end[folder.name]})
    monkeypatch.setattr(headline, "tracks", lambda folders, unit: [
        Track(folders[0].name, 0, np.array([0.0, 64.0]), np.array([0.0, end[folders[0].name]]))])
    question = headline.Question("", ("a", "x"), ("b", "x"))
    asked = headline.Headline("", {}, (), "", ("a", "b"), (), (question, replace(question, says="again")))
    found = headline.asked(asked, tmp_path, "s")
    assert [a["level"] for a in found["answers"]] == [pytest.approx(1 - headline.WRONG / 2)] * 2
    assert [a["value"] for a in found["answers"]] == [2.0, 2.0] and found["runs"]["b"]["2"] == {"x": 3}


def test_only_seeds_that_both_arms_have_are_asked():
    found = runs(a=[2.0, 4.0, 6.0, 8.0, 10.0, 99.0], b=[1.0, 2.0, 3.0, 4.0, 5.0])
    told = headline.Question("", ("a", "x"), ("b", "x")).asked(found, 0.1)
    assert (told["of"], told["value"], told["seeds"]) == (6.0, pytest.approx(3.0), 5)


def test_what_was_trained_before_the_seal_is_not_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "comparisons" / "headline-pope"
    home.mkdir(parents=True)
    (home / "compare.json").write_text("{}")
    with pytest.raises(UserError, match="begun without a seal"):
        headline.run("pope")
    (home / "headline.json").write_text(json.dumps({"schema": 1, "seal": "another"}))
    with pytest.raises(UserError, match="under another seal"):
        headline.run("pope")


def test_one_run_of_an_arm_is_refused():
    with pytest.raises(UserError, match="two runs of each arm"):
        headline.Question("q", ("a", "x"), ("b", "x")).asked(runs(a=[1.0], b=[2.0]), 0.1)


def test_a_file_that_is_no_headline_is_an_error():
    with pytest.raises(UserError, match=r"no headline 'popes': there are .*pope"):
        headline.load("popes")


def test_the_seal_is_of_all_that_must_not_be_chosen_after_the_fact():
    first = headline.load("pope").HEADLINE
    seals = {digest(first.sealed())}
    for change in ({"arms": ("grpo", "pope")}, {"options": ()}, {"claim": "x"}, {"numbers": digest},
                   {"questions": first.questions[:1]},
                   {"questions": tuple(replace(q, claimed=(-1.0, 1.0)) for q in first.questions)}):
        seals.add(digest(replace(first, **change).sealed()))
    assert len(seals) == 7
    assert digest(replace(first, title="another", methods={}, own=()).sealed()) in seals     # words on the page


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_of_the_headline_as_it_stands(name):
    """Arms, options, questions and what reads the numbers are those that were sealed; answers follow from the runs."""
    record, asked = json.loads((headline.KEPT / f"{name}.json").read_text()), headline.load(name).HEADLINE
    assert record["seal"] == digest(asked.sealed()) and record["claim"] == asked.claim
    alpha = headline.WRONG / len(asked.questions)
    for question, answer in zip(asked.questions, record["answers"], strict=True):
        again = question.asked(record["runs"], alpha)
        assert again["answer"] == answer["answer"]
        for k in ("value", "low", "high"):
            assert again[k] == pytest.approx(answer[k]), k
    assert record["outcome"] == headline.outcome_of([a["answer"] for a in record["answers"]])
    assert set(headline.reproduced(asked, record["outcome"])) <= set(record.get("reproduces", {}))


@pytest.mark.parametrize("name", NAMES)
def test_a_headline_says_which_of_its_questions_are_about_whom(name):
    asked = headline.load(name).HEADLINE
    assert {i for numbers in asked.methods.values() for i in numbers} == set(range(len(asked.questions)))
    assert set(asked.own) <= set(asked.methods)
    for method, numbers in asked.methods.items():       # nobody else of those that are tried is asked about
        others = tuple(f"{other}@" for other in asked.methods if other != method)
        assert not any(f"{asked.questions[i].of[0]}@".startswith(others) for i in numbers)


def test_only_those_whose_claim_it_is_are_reproduced_and_only_where_it_holds():
    two = replace(headline.load("pope").HEADLINE, title="T", methods={"a": (0,), "b": (1,)}, own=("a",))
    assert headline.reproduced(two, "holds") == {"a": "T"}
    assert headline.reproduced(two, "cannot tell") == {} == headline.reproduced(replace(two, own=()), "holds")


def test_the_page_says_whose_claim_it_is():
    page = " ".join(headline.PAGE.read_text(encoding="utf-8").split())
    assert "This is the claim of `april`. `arrol` has a different claim ([Methods](methods.md))." in page
    assert "`rolloutgdro` and `promptgdro` have different claims" in page


def test_page_and_pictures_are_of_the_records_that_are_kept():
    found = headline.kept()
    assert headline.PAGE.read_text(encoding="utf-8") == headline.page(found), "python experiments/headline.py page"
    for file, text in headline.pictures(found).items():
        assert (headline.IMAGES / file).read_text(encoding="utf-8") == text, "python experiments/headline.py page"
