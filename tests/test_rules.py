"""A method whose numbers change has another rule: what was begun under the one before is read, and not continued.

The archive holds what the code of commit 7782f415 wrote, before the numbers of `roc`, `arpo`, `aepo` and `hgpo`
changed: runs of three of them that were killed after their fifth step (`killed`; --env rooms --lora 1 -n 8 -B 2), a run
that ended (`ended`), a study of `roc` with a sealed forecast and its trained runs (`sealed`), one whose pilot is half
done (`piloted`), a comparison of `roc` and `grpo` whose probes have ended (`compared`), and the recipes of all methods
as they were described then.
"""

import asyncio
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost import methods
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.methods import grpo, roc
from isocost.planner import forecast as forecasts
from isocost.recipe import describe, diff, fingerprint
from isocost.runs import rules
from isocost.runs.files import code, read_json
from isocost.runs.job import Job
from isocost.runs.run import run
from isocost.tasks.verify.verifiers import BUILT_IN

ARCHIVE = Path(__file__).parent / "fixtures" / "records_7782f41.tar.xz"
CHANGED = ("aepo", "arpo", "hgpo", "roc")       # rule 2
SIZES = ("-n", "8", "-B", "2", "--budget")
ROOMS = ("--env", "rooms", "--lora", 1, *SIZES, "160-rollouts", "--evaluations", 0, "--held-out", 4, "--samples", 1)
SUMS = ("--data", "sums:base=easy,count=240", "--model", "tiny", "--lora", 1, *SIZES, "4k-rollouts", "--seeds", 2)


@pytest.fixture
def old(tmp_path, monkeypatch):
    """The records, in the folder that commands run in."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / "rule")
    return tmp_path / "rule"


def printed(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (done.output, done.stderr)
    return " ".join((done.output + done.stderr).split())


def content(folder):
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "lock"}


def test_the_card_has_the_rule_and_every_recipe_that_uses_the_file_has_it():
    numbers = {name: methods.load(name).CARD.rule for name in methods.shipped()}
    assert {k: v for k, v in numbers.items() if v != 1} == dict.fromkeys(CHANGED, 2)
    assert {name: rules.of_file(name) for name in numbers} == numbers       # read without an import
    for name in CHANGED:
        assert describe(methods.recipe(name))["rules"] == {name: 2}
        assert methods.load(name).recipe().name == name and "rules" in describe(methods.load(name).recipe())
    other = describe(grpo.recipe(name="mine", reward=roc.reward))       # a file of somebody else
    assert other["rules"] == {"roc": 2} and "rules" not in describe(grpo.recipe(name="mine"))
    assert "rules" not in diff(grpo.recipe(), roc.recipe())             # which names seams and sizes


def test_recipes_of_rule_1_are_described_byte_for_byte_as_before(old):
    then = json.loads((old / "recipes.json").read_text())
    now = {name: describe(methods.recipe(name)) for name in methods.shipped()}
    assert [k for k in then if json.dumps(now[k], sort_keys=True) != json.dumps(then[k], sort_keys=True)] == [*CHANGED]
    assert all(fingerprint(now[k]) != fingerprint(then[k]) for k in CHANGED)
    assert "meter" not in code()


@pytest.mark.parametrize("name", ["roc", "hgpo", "arpo"])
def test_a_run_under_another_rule_is_not_continued_and_can_be_read(old, name):
    before = content(old / "killed" / name)
    said = printed("train", name, *ROOMS, "--save-every", 2, "--keep-rollouts", 0, "--out", f"killed/{name}", code=2)
    assert f"killed/{name} was begun under rule 1 of {name} (2 in this version), so it is not continued" in said
    assert "it can still be read, audited and reported" in said
    assert content(old / "killed" / name) == before
    printed("verdict", f"killed/{name}")
    printed("rollouts", f"killed/{name}")
    printed("report", f"killed/{name}")


def test_an_ended_run_is_not_taken_for_one_of_this_rule(old):
    said = printed("train", "roc", *ROOMS[:-8], "-B", 2, "--budget", "96-rollouts", "--evaluations", 0, "--held-out", 4,
                   "--samples", 1, "--out", "ended", code=2)
    assert "rule 1 of roc" in said
    assert "spent" in printed("ls", "ended")


def test_a_run_of_the_same_rule_goes_on(old):
    """The rule alone decides: with the number of today in its record, the same run goes on."""
    file = old / "killed" / "hgpo" / "run.json"
    there = read_json(file)
    there["recipe"]["rules"] = {"hgpo": 2}
    file.write_text(json.dumps(there))
    assert asyncio.run(run(Job.of(there["job"]), file.parent))["reason"] == "spent"


def test_a_newer_rule_is_not_continued_either(old):
    file = old / "killed" / "hgpo" / "run.json"
    there = read_json(file)
    file.write_text(json.dumps({**there, "recipe": {**there["recipe"], "rules": {"hgpo": 3}}}))
    with pytest.raises(UserError, match=r"rule 3 of hgpo \(2 in this version\)"):
        asyncio.run(run(Job.of(there["job"]), file.parent))


def test_another_meter_is_not_continued(old, monkeypatch):
    monkeypatch.setattr("isocost.meter.RULE", 2)
    file = old / "killed" / "hgpo" / "run.json"
    there = read_json(file)
    there["recipe"]["rules"] = {"hgpo": 2}
    file.write_text(json.dumps(there))
    with pytest.raises(UserError, match=r"rule 1 of the meter \(2 in this version\)"):
        asyncio.run(run(Job.of(there["job"]), file.parent))
    assert code()["meter"] == 2
    file.write_text(json.dumps({**there, "code": {**there["code"], "meter": 2}}))
    assert asyncio.run(run(Job.of(there["job"]), file.parent))["reason"] == "spent"


def test_a_study_under_another_rule_is_not_continued(old):
    before = content(old / "piloted")
    said = printed("pilot", "piloted", "--workers", 1, code=2)
    assert "piloted was begun under rule 1 of roc (2 in this version)" in said and content(old / "piloted") == before
    (old / "sealed" / "forecast.json").unlink()
    shutil.rmtree(old / "sealed" / "runs" / "train-n4-s2")
    assert "sealed was begun under rule 1 of roc" in printed("train", "--plan", "sealed", "--workers", 1, code=2)
    assert not (old / "sealed" / "forecast.json").exists()      # nothing is sealed for runs that cannot be made
    assert "rule 1 of roc" in printed("pilot", "sealed", "--longer", "all=2x", code=2)


def test_a_comparison_under_another_rule_is_not_continued(old):
    before = content(old / "compared")
    said = printed("compare", "roc", "grpo", *SUMS, "--out", "compared", "--workers", 1, code=2)
    assert "compared was begun under rule 1 of roc (2 in this version)" in said
    assert content(old / "compared") == before
    printed("report", "compared")


def test_an_audit_says_that_forecast_and_runs_are_of_another_rule(old):
    printed("report", "sealed")
    said = printed("audit", "sealed", code=4)
    assert "audit: uninformative" in said and "outcome 0.7075 against the forecast 0.7145 [0.6940, 0.7481]" in said
    assert "sealed for runs under rule 1 of roc (2 in this version): its runs are judged as they were made" in said
    printed("report", "sealed")
    assert "sealed for runs under rule 1 of roc" in (old / "sealed" / "report.html").read_text()


def test_an_audit_cannot_tell_if_runs_were_trained_under_another_rule_than_the_seals(old):
    file = old / "sealed" / "runs" / "train-n4-s1" / "run.json"
    there = read_json(file)
    file.write_text(json.dumps({**there, "recipe": {**there["recipe"], "rules": {"roc": 2}}}))
    said = printed("audit", "sealed", code=4)
    assert "audit: cannot tell changed since it was sealed: rule 1 of roc (2 in train-n4-s1)" in said


def test_a_forecast_is_sealed_with_the_rules_that_are_not_1(old):
    sealed = forecasts.read(old / "sealed" / "forecast.json")
    assert forecasts.rules_of(sealed) == {} and "rules" not in sealed.hashes
    assert rules.now(describe(methods.recipe("roc"))) == {"roc": 2} and rules.now(describe(grpo.recipe())) == {}


def test_a_run_whose_verifier_has_another_rule_is_not_continued_and_can_be_read(tmp_path, monkeypatch):
    """Its later marks would be of another rule. The verifier's rule is in the record of a run if it is not 1."""
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(20, 30) for b in range(20, 24)]
    Path("d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    train = ("train", "grpo", "--data", "d.jsonl", "--verifier", "numeric", "--lr", 1e-4, "-n", 4, "-B", 2, "--budget",
             "8-rollouts", "--evaluations", 0, "--out", "r")
    printed(*train)
    there = read_json(Path("r/run.json"))
    assert there["problems"]["verifier_rule"] == BUILT_IN["numeric"].rule == 2
    assert "verifier_rule" not in rules.of_verifier("exact") | rules.of_verifier("mine.py:f")
    printed(*train)                 # it has ended, under this rule
    del there["problems"]["verifier_rule"]
    Path("r/run.json").write_text(json.dumps(there))
    said = printed(*train, code=2)
    assert "r was begun under rule 1 of the verifier numeric (2 in this version), so it is not continued" in said
    printed("ls", "r")
    printed("report", "r")
