"""`make bench-gpu` at toy size on a processor: every row is measured, and a stage that was stopped goes on."""

import json

import pytest
import torch

from bench import gpu
from bench.__main__ import main
from isocost.local import roofline
from isocost.local.roofline import Peaks


@pytest.fixture
def toy(monkeypatch, tmp_path):
    known = Peaks({"fp32": 1e11, "bf16": 2e11}, 3e10, 1)
    monkeypatch.setattr(roofline, "measure", lambda *args: known)
    return gpu.Bench(torch.device("cpu"), True, tmp_path)


ROWS = {
    "check": ["ceilings", "gap toy float32", "gap toy bfloat16"],
    "speed": ["decode toy 1", "decode toy 8", "learn toy"],
    "graphs": ["tick toy 4"],
    "runs": ["side by side 1", "side by side 2", "killed"],
}


def test_every_row_of_the_first_stages_is_measured_at_toy_size(toy, tmp_path):
    stages = ["check", "speed", "graphs"]
    record = gpu.measure(toy, stages, tmp_path / "r.json")
    rows = record["rows"]
    assert list(rows) == [r for s in stages for r in ROWS[s]] and not any("error" in r for r in rows.values())
    gaps = [rows[f"gap toy {k}"] for k in ("float32", "bfloat16")]
    assert all(g["sound"] and g["same_twice"] == 1 for g in gaps)
    assert rows["decode toy 8"]["tokens_per_s"] > 0 and 0 < rows["learn toy"]["mfu"] < 1
    assert json.loads((tmp_path / "r.json").read_text()) == record


def test_a_stage_that_was_stopped_measures_the_rest_and_an_error_is_tried_again(toy, tmp_path, monkeypatch):
    path, calls = tmp_path / "r.json", []

    def stage(b):
        for name in ("one", "two", "three"):
            yield name, lambda name=name: calls.append(name) or ({"x": 1.0} if name != "two" else 1 / 0)

    monkeypatch.setitem(gpu.STAGES, "check", stage)
    assert gpu.measure(toy, ["check"], path, limit=-1)["rows"] == {} and not calls
    rows = gpu.measure(toy, ["check"], path)["rows"]
    assert rows["two"]["error"].startswith("ZeroDivisionError") and rows["one"]["x"] == 1.0
    gpu.measure(toy, ["check"], path)
    assert calls == ["one", "two", "three", "two"]
    gpu.measure(toy, ["check"], path, again=True)
    assert calls[4:] == ["one", "two", "three"]


def test_the_page_shows_what_is_on_record_and_no_toy(toy, tmp_path):
    toy_record = gpu.measure(toy, ["graphs"], tmp_path / "r.json")
    assert "No GPU is on record yet" in gpu.page([toy_record])
    shown = gpu.page([{**toy_record, "tiny": False, "device": "A GPU"}])
    assert "## A GPU" in shown and "| tick toy 4 | ms_plain" in shown and "ms_graph" not in shown


def test_without_a_gpu_the_command_says_what_to_do(capsys):
    with pytest.raises(SystemExit):
        main(["gpu"])
    assert "--device cpu --tiny runs every row at toy size" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_command_at_toy_size(tmp_path):
    assert main(["gpu", "--device", "cpu", "--tiny", "--out", str(tmp_path), "--work", str(tmp_path / "w")]) == 0
    rows = json.loads((tmp_path / "gpu-cpu-tiny.json").read_text())["rows"]
    assert list(rows) == [r for some in ROWS.values() for r in some]
    assert rows["killed"]["kills"] == 2 and all(rows["killed"]["equal"].values())
