"""What there is below a folder."""

import json

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.planner.training.study_runs import arms_of, make_runs
from isocost.runs.record import RunRecord

ARM = {"n": 4, "B": 2, "lr": 1e-4, "multiplier": 1.0}


@pytest.fixture
def runs(tmp_path):
    for seed in (0, 1):
        path = tmp_path / "runs" / f"s{seed}"
        path.mkdir(parents=True)
        run = {"schema": 1, "name": f"s{seed}", "method": "grpo", "purpose": "pilot", "arm": ARM, "seed": seed}
        (path / "run.json").write_text(json.dumps(run))
        base = {"step": 0, "rollouts": 0, "eval/select": 0.25, "eval/audit": 0.5}
        lines = [base, {"step": 0, "reward": 0.125 * seed}]
        (path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return tmp_path


def test_runs_are_listed_with_where_they_began_and_ended(runs):
    said = CliRunner().invoke(main, ["ls", str(runs), "--json"])
    rows = json.loads(said.output)
    assert [r["kind"] for r in rows] == ["run", "run"] and rows[0]["first"] == 0.5 and rows[0]["ended"] == "unfinished"


def test_a_broken_study_is_named_and_hides_no_other(runs):
    for name, text in (("a", "{"), ("b", '{"schema": 1}'), ("c", json.dumps({"setting": {"model": "m", "data": "d"}}))):
        (runs / name).mkdir()
        (runs / name / "study.json").write_text(text)
    (runs / "runs" / "s0" / "end.json").write_text('{"reason": ')
    rows = json.loads(CliRunner().invoke(main, ["ls", str(runs), "--json"]).output)
    assert [(r["kind"], "broken" in r) for r in rows] == [
        ("study", True), ("study", True), ("study", False), ("run", True), ("run", False)]
    said = CliRunner().invoke(main, ["ls", str(runs)])
    assert said.exit_code == 0 and "a/study.json is not whole JSON" in " ".join(said.output.split())
    assert "b/study.json: setting is missing" in " ".join(said.output.split()) and "m on d" in said.output


def test_a_pilot_is_listed_by_how_much_of_it_has_run(tmp_path):
    (tmp_path / "study.json").write_text(json.dumps({"setting": {"model": "m", "data": "d"}}))
    (tmp_path / "profile.json").write_text("{}")
    pilot = make_runs(0, "pilot", arms_of((4, 8), 2), 64, 1)

    def steps():
        (row,) = [r for r in json.loads(CliRunner().invoke(main, ["ls", str(tmp_path), "--json"]).output)
                  if r["kind"] == "study"]
        said = CliRunner().invoke(main, ["ls", str(tmp_path)]).output
        assert f"m on d: {', '.join(row['steps'])}; " in said
        return row["steps"]

    assert steps() == ["profile"]
    (tmp_path / "pilot.json").write_text(json.dumps({"runs": [r.data() for r in pilot]}))
    assert steps() == ["profile", "pilot (planned)"]
    for run, reason in zip(pilot, ("spent", "interrupted"), strict=True):
        (tmp_path / "runs" / run.name).mkdir(parents=True)
        (tmp_path / "runs" / run.name / "end.json").write_text(json.dumps({"reason": reason}))
    assert steps() == ["profile", "pilot (1 of 2 runs)"]
    (tmp_path / "runs" / pilot[1].name / "end.json").write_text('{"reason": "spent"}')
    (tmp_path / "law.json").write_text("{}")
    assert steps() == ["profile", "pilot", "law"]
    (tmp_path / "pilot.json").write_text('{"runs": []}')        # planned without one
    assert steps() == ["profile", "law"]


def test_a_run_under_way_is_running_whatever_it_ended_as_before(runs):
    home = runs / "runs" / "s1"

    def ended():
        return json.loads(CliRunner().invoke(main, ["ls", str(runs), "--json"]).output)[1]["ended"]

    with RunRecord.opened(home):
        assert ended() == "running"
        (home / "end.json").write_text('{"reason": "interrupted"}')
        assert ended() == "running"
    assert ended() == "interrupted"
    with RunRecord.opened(home):        # a reader does not lock the trainer out
        pass


def imported(folder, log):
    """A run of another trainer, as its record says; `log` is what was read of it."""
    folder.mkdir()
    run = {"schema": 1, "name": folder.name, "method": "csv", "purpose": "run", "arm": ARM, "seed": 0, "recipe": {}}
    (folder / "run.json").write_text(json.dumps({**run, "imported": log}))
    line = {"step": 4, "rollouts": 32, "eval/select": 0.5, "eval/audit": 0.5}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")


def test_columns_are_headed_by_what_the_runs_record(runs, monkeypatch):
    monkeypatch.chdir(runs)

    def listed():
        said = CliRunner().invoke(main, ["ls"])
        return [line.split() for line in said.output.splitlines()]

    assert listed()[0][-3:] == ["rollouts", "held-out", "ended"] and listed()[1][-5:-1] == ["0", "0.500", "->", "0.500"]
    imported(runs / "z", {"unit": "environment steps", "metric": {"name": "return", "kind": "training"}})
    assert listed()[0][-3:] == ["C", "reward", "ended"]
    assert [line[-1] for line in listed()[1:3]] == ["unfinished"] * 2 and "(held-out)" in listed()[1]
    assert " ".join(listed()[-1]).endswith("32 environment steps 0.500 -> 0.500 (training) unfinished")
