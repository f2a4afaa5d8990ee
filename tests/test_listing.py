"""What there is below a folder, and the same as a table that other tools read."""

import json

import pytest
from click.testing import CliRunner

from isocost.cli import main

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
