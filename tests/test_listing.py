"""What there is below a folder, and the same as a table that other tools read."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost.cli import main
from isocost.record import RunRecord, file_hash

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


def test_metrics_of_all_runs_become_one_table(runs, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = tmp_path / "metrics.parquet"
    said = CliRunner().invoke(main, ["ls", str(runs), "--parquet", str(out)])
    assert said.exit_code == 0 and "4 rows" in said.output
    table = parquet.read_table(out).to_pydict()
    assert table["seed"] == [0, 0, 1, 1] and table["n"] == [4] * 4
    assert table["eval/audit"] == [0.5, None, 0.5, None] and table["reward"] == [None, 0.0, None, 0.125]


def test_a_folder_without_runs_is_named(tmp_path):
    pytest.importorskip("pyarrow")
    said = CliRunner().invoke(main, ["ls", str(tmp_path), "--parquet", str(tmp_path / "x.parquet")])
    assert said.exit_code == 2 and "holds no run" in said.output


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


def test_a_run_under_way_is_running_whatever_it_ended_as_before(runs):
    home = runs / "runs" / "s1"

    def ended():
        return json.loads(CliRunner().invoke(main, ["ls", str(runs), "--json"]).output)[1]["ended"]

    with RunRecord.opened(home):
        assert ended() == "running"
        (home / "end.json").write_text('{"reason": "interrupted"}')
        assert ended() == "running"
    assert ended() == "interrupted"
    with RunRecord.opened(home):        # looking does not lock whoever trains out
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


def test_runs_of_unknown_recipe_are_not_the_same_recipe(runs):
    for name in "xy":
        imported(runs / name, {})
    said = CliRunner().invoke(main, ["diff", str(runs / "x"), str(runs / "y")])
    assert said.exit_code == 2 and f"{runs / 'x'} has no recipe on record" in said.stderr


def test_recipes_that_differ_in_their_text_alone_are_told_apart_by_it(tmp_path):
    """Where settings are alike a difference shows the function's module and its source; elsewhere neither."""
    for name, k in (("one", 2), ("two", 4)):
        (tmp_path / f"{name}.py").write_text(
            "from isocost.methods import Card, grpo\n\nCARD = Card('Mine', 'none', 2026, 'grpo', 'It differs.')\n\n\n"
            f"def weight(batch):\n    return batch.mask / {k}\n\n\n"
            "def recipe(**changes):\n    return grpo.recipe(name='mine', weight=weight).but(**changes)\n"
        )
    one, two = (str(tmp_path / f"{name}.py") for name in ("one", "two"))
    lines = CliRunner().invoke(main, ["diff", one, two]).output.split("weight", 1)[1]
    sources = [file_hash(Path(p))[:16] for p in (one, two)]
    assert all(f"of source {source}" in lines for source in sources)
    assert "of source" not in CliRunner().invoke(main, ["diff", "grpo", "grpo@loss.high=0.28"]).output
