"""A study is read once: which files a step opens, what a study value keeps, and the tables by its kind."""

import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from isocost.errors import UserError
from isocost.planner.budget import Machine
from isocost.runs import schema, source
from isocost.runs.files import RunFiles
from isocost.steps.kinds import PLANNERS, plan
from isocost.steps.study import StudyRecord
from isocost.steps.training.audit import audit
from isocost.steps.training.fit import fit
from isocost.units import FLOPS, SECONDS, TOKENS

QUICKSTART = Path(__file__).parents[1] / "experiments" / "results" / "quickstart"
OPENED, WATCHED = Counter(), []


def _note(event, args):
    """An audit hook cannot be removed: it counts while a folder is watched. `os.open` has no mode."""
    if WATCHED and event == "open" and args[1] is not None and str(args[0]).startswith(str(WATCHED[0])):
        OPENED[str(args[0])] += 1


sys.addaudithook(_note)


class Own:
    """What a file of another kind holds."""


@pytest.fixture
def study(tmp_path):
    return Path(shutil.copytree(QUICKSTART, tmp_path / "q"))


def opened(folder, step):
    """How often a step opened each file of a folder."""
    OPENED.clear()
    WATCHED.append(folder)
    try:
        step()
    finally:
        WATCHED.clear()
    return {Path(name).relative_to(folder).as_posix(): times for name, times in OPENED.items()}


def test_an_audit_opens_each_file_once(study):
    found = opened(study, lambda: audit(StudyRecord.read(study)))
    assert found["study.json"] == found["forecast.json"] == found["runs/pilot-n4-s0/run.json"] == 1
    assert max(found.values()) == 1 and len(found) > 80


def test_a_fit_opens_each_file_of_a_run_once(study):
    (study / "law.json").unlink()
    found = opened(study, lambda: fit(StudyRecord.read(study)))
    assert max(times for name, times in found.items() if name.startswith("runs/")) == 1
    assert found["runs/pilot-n4-s0/metrics.jsonl"] == 1


def test_a_study_keeps_what_it_read_until_it_is_read_again(study):
    there = StudyRecord.read(study)
    assert there.law is not None and there.run("train-n4-x2-s0").end["reason"] == "spent"
    changed = there.write("law.json", {**there.record("law.json", "fit"), "seed": 7})
    (study / "runs" / "train-n4-x2-s0" / "end.json").unlink()
    assert (there.record("law.json", "fit")["seed"], changed.record("law.json", "fit")["seed"]) == (0, 7)
    assert changed.run("train-n4-x2-s0").over and not there.again().run("train-n4-x2-s0").over
    assert changed.without("law.json").law is None and there.law is not None


def test_study_json_is_amended_where_it_stands(study):
    there = StudyRecord.read(study)
    before = there.asked["phases"]
    with there.phase("a step"):
        there.amend(metric="best@4")
    now = there.again()
    assert now.metric == "best@4" and there.asked["phases"] == before
    assert set(now.asked["phases"]) - set(before) == {"a step"}


def test_a_run_that_is_not_there_has_no_files(tmp_path):
    run = RunFiles(tmp_path / "r")
    assert run.end == {} and not run.over and run.lines("metrics.jsonl") == [] and run.raw("run.json") == b""
    with pytest.raises(UserError, match=r"r/run\.json does not exist"):
        run.about()


def test_every_kind_of_study_has_a_planner():
    kinds = {x.kind for x in vars(source).values() if isinstance(x, source.Source)}
    assert kinds == set(PLANNERS)


def test_a_budget_in_a_unit_that_does_not_fit_names_those_that_do():
    lacking = {TOKENS: "no log has tokens", FLOPS: "no size"}
    with pytest.raises(UserError, match=r"a budget of 2,000,000 tokens cannot be counted: no log has tokens; give "
                                        r"rollouts, seconds or env-steps, such as 50k-rollouts"):
        Machine().spend("2M-tokens", lacking)
    assert Machine().spend("2h", lacking).unit == SECONDS
    with pytest.raises(UserError, match="cannot be counted: no clock"):     # money is time
        Machine().spend("20usd", {SECONDS: "no clock"})


def test_a_plan_refuses_an_option_of_another_kind_of_study(study):
    with pytest.raises(UserError, match=r"--accuracy has no use here: .*q was trained by isocost, and its plan takes "
                                        r"--budget, --devices, "):
        plan(StudyRecord.read(study), {"accuracy": 0.8, "budget": None})


def test_a_file_of_another_kind_of_study_has_a_shape_of_its_own():
    schema.register("plan.json", Own, kind="of-a-test")
    try:
        key = schema.key_of("plan.json", {"kind": "of-a-test"})
        assert schema.of_file(key) is Own and schema.beside(key).more == {"kind": str}
        assert schema.key_of("plan.json", {"kind": "unknown"}) == schema.key_of("plan.json", []) == "plan.json"
    finally:
        del schema._FILES["of-a-test/plan.json"], schema._BESIDE["of-a-test/plan.json"]
