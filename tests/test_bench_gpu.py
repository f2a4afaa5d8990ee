"""`make bench-gpu` at toy size on a processor: every row is measured, and a stage that was stopped goes on."""

import json
import sys
from pathlib import Path

import pytest
import torch

from bench import gpu, gpu_rows, gpu_study, roofline
from bench.__main__ import main
from bench.cases import study
from bench.roofline import Peaks


@pytest.fixture
def toy(monkeypatch, tmp_path):
    known = Peaks({"fp32": 1e11, "bf16": 2e11}, 3e10, 1)
    monkeypatch.setattr(roofline, "measure", lambda *args: known)
    monkeypatch.setenv("BENCH_TRL_PYTHON", str(tmp_path / "python"))       # there is none
    return gpu.Bench(torch.device("cpu"), True, tmp_path)


ROWS = {
    "check": ["ceilings", *(f"gap toy {k}, {how}" for k in ("float32", "bfloat16") for how in ("graphs", "no graphs"))],
    "speed": ["decode toy 8", "decode toy 1", "learn toy"],
    "step": ["step toy"],
    "runs": ["one run", "study of 2 runs", "resume"],
}


def test_every_row_of_the_first_stages_is_measured_at_toy_size(toy, tmp_path):
    stages = ["check", "speed", "step"]
    record = gpu.measure(toy, stages, tmp_path / "r.json")
    rows = record["rows"]
    assert list(rows) == [r for s in stages for r in ROWS[s]] and not any("error" in r for r in rows.values())
    gaps = [rows[r] for r in ROWS["check"][1:]]
    assert all(g["sound"] and g["same_twice"] == 1 for g in gaps)
    assert [g.get("captured", 0) > 0 for g in gaps] == [True, False] * 2
    assert rows["decode toy 8"]["tokens_per_s"] > 0 and 0 < rows["learn toy"]["mfu"] < 1
    assert rows["decode toy 8"]["captured"] and rows["decode toy 8"]["ms_no_graphs"] > 0
    one = rows["step toy"]
    assert one["s_per_step"]["isocost"] > 0 and "`make .venv-trl/run` makes it" in one["skipped"]["TRL"]
    assert json.loads((tmp_path / "r.json").read_text()) == record


def test_all_stages_take_half_an_hour_at_most():
    seconds = [s for _, s in gpu.STAGES.values()]
    assert max(seconds) <= 9 * 60 and sum(seconds) <= 28 * 60


def test_on_a_gpu_the_study_has_thirty_runs_and_the_step_has_vllm(tmp_path):
    jobs = gpu_study.chosen("cuda", "all", tiny=False)
    assert [j.name for j in jobs] == [j.name for j in study.listed()]
    assert {j.setting.machine.device for j in jobs} == {"cuda"}
    assert gpu_study.chosen("cpu", "one", tiny=True)[0].budget == {"rollouts": 64}
    three = gpu_rows.contenders(gpu.Bench(torch.device("cuda"), False, tmp_path))
    assert [c.name for c in three] == ["isocost", "TRL with vLLM", "TRL"]
    assert three[0].how["kernels"] == "graphs" and three[1].how["vllm_mode"] == "colocate"
    assert gpu_rows._has(sys.executable, "json") and not gpu_rows._has(sys.executable, "vllm_that_is_not")


def test_a_stage_that_was_stopped_measures_the_rest_and_an_error_is_tried_again(toy, tmp_path, monkeypatch):
    path, calls = tmp_path / "r.json", []

    def stage(b):
        for name in ("one", "two", "three"):
            yield name, lambda name=name: calls.append(name) or ({"x": 1.0} if name != "two" else 1 / 0)

    monkeypatch.setitem(gpu.STAGES, "check", (stage, 60.0))
    assert gpu.measure(toy, ["check"], path, limit=-1)["rows"] == {} and not calls
    rows = gpu.measure(toy, ["check"], path)["rows"]
    assert rows["two"]["error"].startswith("ZeroDivisionError") and rows["one"]["x"] == 1.0
    gpu.measure(toy, ["check"], path)
    assert calls == ["one", "two", "three", "two"]
    gpu.measure(toy, ["check"], path, again=True)
    assert calls[4:] == ["one", "two", "three"]
    (record := json.loads(path.read_text()))["rows"]["one"]["skipped"] = {"TRL": "it is not installed"}
    path.write_text(json.dumps(record))
    assert "skipped" not in gpu.measure(toy, ["check"], path)["rows"]["one"]


def test_the_page_shows_what_is_on_record_and_no_toy(toy):
    row = {"stage": "speed", "ms_per_tick": 0.5, "GB": None, "s_per_step": {"isocost": 1.5}, "seconds": 2.0}
    machine = {"processor": "A CPU", "cores": 2, "versions": {"torch": "2"}}
    record = {"device": "A GPU", "tiny": True, "machine": machine, "rows": {"decode 135M 16": row}}
    assert gpu.page([record]) == gpu.page([]) and "**Nothing is measured on a GPU yet**" in gpu.page([])
    shown = gpu.page([{**record, "tiny": False}])
    assert "Measured on: A GPU." in shown and "## A GPU" in shown and "Nothing is measured" not in shown
    assert "| decode 135M 16 | ms_per_tick 0.5, s_per_step (isocost 1.5) |" in shown
    assert "Not measured: check, step, runs." in shown


def test_the_page_is_what_the_records_give():
    """`python -m bench gpu page` writes it."""
    folder = Path(__file__).parents[1] / "experiments" / "results" / "bench"
    assert gpu.PAGE.read_text() == gpu.page([json.loads(p.read_text()) for p in sorted(folder.glob("gpu-*.json"))])


def test_without_a_gpu_the_command_says_what_to_do(capsys):
    with pytest.raises(SystemExit):
        main(["gpu"])
    assert "--device cpu --tiny runs every row at toy size" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_command_at_toy_size(tmp_path):
    assert main(["gpu", "--device", "cpu", "--tiny", "--out", str(tmp_path), "--work", str(tmp_path / "w")]) == 0
    rows = json.loads((tmp_path / "gpu-cpu-tiny.json").read_text())["rows"]
    assert list(rows) == [r for some in ROWS.values() for r in some]
    assert rows["resume"]["kills"] == 2 and all(rows["resume"]["equal"].values())
    assert rows["study of 2 runs"]["ended"] == 2 and not any("error" in r for r in rows.values())
