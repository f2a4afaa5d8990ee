"""Records that the code of commit cf90da5 wrote, one of each kind, load, audit and resume as before.

The archive holds a sealed and audited study (`tiny`), a comparison (`cmp`), one against parents (`wave`), a study of
imported logs (`imp`), a run (`run1`), runs that were killed (`killed`) with their model (`mini`), and the recipes of
all methods as they were described then.
"""

import asyncio
import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost import methods
from isocost.cli.commands import main
from isocost.disk.jsonfile import page
from isocost.errors import UserError
from isocost.planner import forecast as forecasts
from isocost.planner.audit import Audit
from isocost.planner.forecast import Forecast
from isocost.planner.training.pilot import PilotPlan
from isocost.planner.training.prescription import BESIDE, Plan
from isocost.recipe import describe
from isocost.runs.arm import Arm
from isocost.runs.files import canonical, read_json
from isocost.runs.job import Job
from isocost.runs.names import today
from isocost.runs.run import run
from isocost.runs.schema import VERSION

ARCHIVE = Path(__file__).parent / "fixtures" / "records_cf90da5.tar.xz"
STREAMS = ("metrics.jsonl", "journal.jsonl", "samples.jsonl")


@pytest.fixture
def old(tmp_path, monkeypatch):
    """The records, in the folder that commands run in."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path / "before")
    return tmp_path / "before"


def rounded(data):
    """The same with numbers to twelve digits: sums may differ in their last."""
    if isinstance(data, dict):
        return {k: rounded(v) for k, v in data.items()}
    if isinstance(data, list):
        return [rounded(v) for v in data]
    return float(f"{data:.12g}") if isinstance(data, float) else data


def printed(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (done.output, done.stderr)
    return done.output


def flat(data):
    """A record with its arms as the fields that they were in format 1."""
    if isinstance(data, list):
        return [flat(v) for v in data]
    if not isinstance(data, dict):
        return data
    own = {k: 1 if k == "schema" else flat(v) for k, v in data.items() if k != "arm" or "n" not in v or "C" in v}
    own |= {"comparator": data["comparator"]["n"]} if isinstance(data.get("comparator"), dict) else {}
    return own | (data["arm"] if "arm" in data and "arm" not in own else {})


def test_a_sealed_study_audits_as_before(old):
    before = {f.name: f.read_bytes() for f in (old / "tiny").glob("*.json")}
    verdict = read_json(old / "tiny" / "audit.json")
    (old / "tiny" / "audit.json").unlink()
    code = {"hit": 0, "miss": 3}.get(verdict["verdict"], 4)
    printed("audit", "tiny", code=code)
    after = read_json(old / "tiny" / "audit.json")
    assert after["reason"].startswith(verdict["reason"]) and after["comparator"] == {"n": verdict["comparator"]}
    assert Audit.of({**after, "reason": verdict["reason"]}) == Audit.of(verdict)
    for name in ("plan.json", "law.json", "forecast.json", "pilot.json", "rate.json"):
        assert (old / "tiny" / name).read_bytes() == before[name]
    assert flat(json.loads(printed("plan", "tiny", "--json"))) == json.loads(before["plan.json"])
    printed("train", "--plan", "tiny")      # all runs have ended: nothing is trained again
    printed("report", "tiny")


def test_a_law_fitted_again_is_the_law_of_then(old):
    law = read_json(old / "tiny" / "law.json")
    for name in ("law.json", "plan.json", "forecast.json", "audit.json"):
        (old / "tiny" / name).unlink()
    printed("fit", "tiny")
    again = read_json(old / "tiny" / "law.json")
    for arm, then in zip(again["arms"], law["arms"], strict=True):
        assert (arm["n"], arm["B"], len(arm["runs"])) == (then["n"], then["B"], len(then["runs"]))
    assert again["sd"] == pytest.approx(law["sd"], rel=1e-6) if "sd" in law else True
    printed("plan", "tiny")
    printed("report", "tiny")


@pytest.mark.parametrize(("name", "kind", "beside"), [
    ("plan", Plan, BESIDE), ("forecast", Forecast, ()), ("audit", Audit, ()),
    ("pilot", PilotPlan, ("units", "prices", "evaluation")),       # of which later records say more
])
def test_records_without_the_keys_of_today_read_and_are_written_as_they_were(old, name, kind, beside):
    then = {k: v for k, v in read_json(old / "tiny" / f"{name}.json").items() if k not in beside}
    read = kind.of(read_json(old / "tiny" / f"{name}.json"))
    now = json.loads(json.dumps(read.data()))
    assert kind.of(now) == read and flat({k: v for k, v in now.items() if k not in beside}) == {**then, "schema": 1}
    assert not {"reserve", "rates", "risk", "undecided", "lengths", "leader", "leader_runs"} & set(now)


def test_a_pilot_planned_with_its_edges_goes_on_as_it_was_planned(old, ran):
    """Two of its runs are still to be made. It has no reserve, so that nothing is added to it."""
    for name in ("law.json", "plan.json", "forecast.json", "audit.json", "shift.json"):
        (old / "tiny" / name).unlink()
    for name in ("pilot-n8-s1", "edge-n8-x2-s0", *(f"train-n{n}-s{i}" for n in (2, 8) for i in range(3))):
        shutil.rmtree(old / "tiny" / "runs" / name)
    planned, there = (old / "tiny" / "pilot.json").read_bytes(), {p.name for p in (old / "tiny" / "runs").iterdir()}
    ran("pilot", "tiny", "--workers", "1")
    assert (old / "tiny" / "pilot.json").read_bytes() == planned
    now = {p.name: read_json(p / "end.json")["reason"] for p in (old / "tiny" / "runs").iterdir()}
    assert set(now) == there | {"pilot-n8-s1", "edge-n8-x2-s0"} and set(now.values()) == {"spent"}
    printed("fit", "tiny")
    arms = read_json(old / "tiny" / "law.json")["arms"]
    assert [(a["n"], sorted(a["runs"])) for a in arms] == [(n, [f"pilot-n{n}-s0", f"pilot-n{n}-s1"]) for n in (2, 4, 8)]
    printed("plan", "tiny")


def test_comparisons_print_and_keep_what_they_found(old):
    size = ("--data", "sums:base=easy,count=240", "--seeds", 2)
    kept = (old / "cmp" / "comparison.json").read_bytes()
    printed("compare", "grpo", "drgrpo", *size, "--budget", "4k-rollouts", "-n", 2, "-B", 2, "--out", "cmp", code=4)
    assert rounded(json.loads(kept)) == rounded(read_json(old / "cmp" / "comparison.json"))
    printed("compare", "cmp/runs/train-grpo-s0", "cmp/runs/train-drgrpo-s0", code=4)
    listed = printed("ls")
    assert all(name in listed for name in ("tiny", "cmp", "wave", "imp", "run1"))


def test_an_imported_study_plans_as_before(old):
    plan = (old / "imp" / "plan.json").read_bytes()
    assert flat(json.loads(printed("plan", "imp", "--json"))) == json.loads(plan)
    printed("report", "imp")
    printed("export", "imp", "--to", "trl")


def test_a_run_reads_as_before(old):
    printed("report", "run1")
    assert "scaler" in (old / "run1" / "report.html").read_text()


def test_a_recorded_function_has_the_name_of_its_module_now():
    old = {"fn": "isocost.parts.loss:plus", "x": [1, {"fn": "isocost.parts.pace:cycled"}], "y": {"fn": "mine:f"}}
    assert today(old) == {"fn": "isocost.methods.isoeasy:plus", "x": [1, {"fn": "isocost.methods.siri:pace"}],
                          "y": {"fn": "mine:f"}}


@pytest.mark.parametrize("name", ["ppo", "april", "dots"])
def test_a_run_killed_then_goes_on(old, name):
    """Its streams grow from what they were; equal bytes are tested elsewhere, for processors differ."""
    folder = old / "killed" / name
    job = Job.of(read_json(folder / "run.json")["job"])
    kept = {s: (folder / s).read_bytes() for s in STREAMS}
    state = max((folder / "checkpoints").glob("step-*"))
    sizes = json.loads((state / "state.json").read_text())["offsets"]
    end = asyncio.run(run(job, folder))
    assert end["reason"] == "spent"
    for stream, then in kept.items():
        now = (folder / stream).read_bytes()
        assert now[: sizes[stream]] == then[: sizes[stream]] and len(now) > sizes[stream]


def test_recipes_are_those_of_then(old):
    then = json.loads((old / "recipes.json").read_text())
    changed = [k for k, was in then.items() if canonical(describe(methods.recipe(k))) != canonical(today(was))]
    assert then.keys() <= set(methods.shipped())
    assert changed == [k for k in then if methods.load(k).CARD.rule != 1]


def test_a_plan_made_again_says_whether_the_best_n_is_likely_to_grow_and_an_old_one_does_not(old):
    assert "growth" not in read_json(old / "tiny" / "plan.json")
    assert "docs/when_n_grows.md" not in printed("plan", "tiny")
    for name in ("plan.json", "forecast.json", "audit.json"):
        (old / "tiny" / name).unlink()
    said = " ".join(printed("plan", "tiny").split())
    growth = read_json(old / "tiny" / "plan.json")["growth"]
    assert growth["text"] in said and 0 <= growth["hard"] <= 1
    pool = read_json(old / "tiny" / "profile.json")["pool"]
    assert growth["per_problem"] == pytest.approx(read_json(old / "tiny" / "plan.json")["arm"]["C"] / pool)


NEWER = {
    "tiny/study.json": ("fit", "tiny"), "tiny/runs/train-n2-s0/run.json": ("audit", "tiny"),
    "tiny/forecast.json": ("train", "--plan", "tiny"), "run1/run.json": ("eval", "run1"),
    "cmp/compare.json": ("compare", "grpo", "drgrpo", "--data", "sums:base=easy,count=240", "--seeds", 2, "--budget",
                         "4k-rollouts", "-n", 2, "-B", 2, "--out", "cmp"),
}


@pytest.mark.parametrize("file", NEWER)
def test_a_record_of_a_newer_format_is_an_error_of_one_line_and_is_not_read_in_part(old, file):
    path = old / file
    path.write_text(json.dumps({**json.loads(path.read_text()), "schema": VERSION + 1}))
    before = {p: p.read_bytes() for p in old.rglob("*") if p.is_file() and p.name != "lock"}
    for words in (NEWER[file], ("report", Path(file).parts[0])):
        done = CliRunner().invoke(main, [str(w) for w in words])
        assert done.exit_code == 2 and done.stderr.count("\n") == 1, (words, done.output)
        assert f"{file} has schema {VERSION + 1}; this isocost reads up to {VERSION}: use a newer one" in done.stderr
    assert {p: p.read_bytes() for p in old.rglob("*") if p.is_file() and p.name != "lock"} == before


def test_a_seal_of_version_2_verifies_and_is_written_byte_for_byte(tmp_path):
    """Of the code of commit 7782f415. A seal of version 3 has arms, and a change in one is found."""
    with tarfile.open(ARCHIVE.with_name("records_7782f41.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / "rule" / "sealed" / "forecast.json"
    sealed = forecasts.read(path)
    assert sealed.seal_version == 2 and page(sealed.data()) == path.read_text()
    assert sealed.arm == {"n": sealed.n, "B": sealed.B} and sealed.comparator == {"n": 8}
    then = json.loads(path.read_text())
    with pytest.raises(UserError, match="changed after it was sealed"):
        Forecast.of({**then, "B": then["B"] + 1})
    again = replace(sealed, seal_version=3, comparator=Arm(n=8, B=sealed.B))
    again = replace(again, seal=forecasts._hash(again))
    now = json.loads(json.dumps(again.data()))
    assert Forecast.of(now) == again and now["arm"] == dict(sealed.arm) and "n" not in now and now["schema"] == 2
    with pytest.raises(UserError, match="changed after it was sealed"):
        Forecast.of({**now, "comparator": {"n": 8, "B": sealed.B + 1}})
