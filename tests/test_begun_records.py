"""What the code of commit 7782f415 had begun is continued to the end by this version, and audited.

The archive holds a study that was interrupted in its pilot (`study`, of tiny with a LoRA adapter), a comparison that
was interrupted in its second training run (`cmp`), a study of imported logs (`imp`, from `logs`), and a study of
another trainer, `own_trainer.py`, that was interrupted in its pilot (`own`).
"""

import tarfile
from pathlib import Path

import pytest

from isocost.runs.files import read_json

ARCHIVE = Path(__file__).parent / "fixtures" / "begun_7782f41.tar.xz"
TINY = ("--lora", 1, "--data", "sums:base=easy,count=240", "--workers", 1)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """The records, in the folder that commands run in. The trainer's command runs there too."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "begun"
    study = folder / "own" / "study.json"
    study.write_text(study.read_text().replace('"cwd": "/begun"', f'"cwd": "{folder}"'))
    monkeypatch.chdir(folder)
    return folder


def ended(study):
    """run name -> (n, B, the rollouts that training was billed)."""
    out = {}
    for run in sorted((study / "runs").iterdir()):
        end, arm = read_json(run / "end.json"), read_json(run / "run.json")["arm"]
        assert end["reason"] == "spent", (run, end["reason"])
        out[run.name] = arm["n"], arm["B"], end["bill"]["train"]["rollouts"]
    return out


def content(study):
    return {p: p.read_bytes() for p in sorted(study.glob("runs/*/metrics.jsonl"))}


def test_a_study_goes_on_with_its_pilot_and_is_audited(begun, ran):
    before = content(begun / "study")
    ran("quickstart", "--size", "tiny", *TINY, "--out", "study")
    assert all(p.read_bytes() == was for p, was in before.items())      # they had ended
    runs = ended(begun / "study")
    assert {k: v for k, v in runs.items() if k.startswith("pilot")} == {
        f"pilot-n{n}-s{s}": (n, 1, 32) for n in (2, 4, 8) for s in range(2)}
    plan, forecast, audit = (read_json(begun / "study" / f"{x}.json") for x in ("plan", "forecast", "audit"))
    assert plan["arm"]["B"] == 1 and audit["verdict"] in ("hit", "miss", "cannot tell", "uninformative")
    assert audit["seal"] == forecast["seal"] and not audit["missing"] and set(forecast["runs"]) < set(runs)


def test_a_comparison_goes_on_with_its_runs_and_is_decided(begun, ran):
    seal = read_json(begun / "cmp" / "compare.json")["seal"]
    half = read_json(begun / "cmp" / "runs" / "train-drgrpo-s0" / "end.json")["steps"]
    ran("compare", "grpo", "drgrpo", "--model", "tiny", *TINY, "-n", 4, "-B", 2, "--budget", "3k-rollouts",
        "--seeds", 2, "--out", "cmp", code=(0, 3, 4))
    runs = {k: v for k, v in ended(begun / "cmp").items() if k.startswith("train")}
    assert runs == {f"train-{m}-s{s}": (4, 2, 544) for m in ("grpo", "drgrpo") for s in range(2)}
    assert read_json(begun / "cmp" / "runs" / "train-drgrpo-s0" / "end.json")["steps"] == 68 > half == 56
    found = read_json(begun / "cmp" / "comparison.json")
    assert read_json(begun / "cmp" / "compare.json")["seal"] == seal
    assert [(a["name"], len(a["values"])) for a in found["arms"]] == [("grpo", 2), ("drgrpo", 2)]


def test_imported_logs_are_fitted_and_planned_as_then(begun, ran):
    for words in (("fit", "imp"), ("plan", "imp", "--budget", "200k-rollouts"), ("report", "imp")):
        ran(*words)
    assert "num_generations: 4" in ran("export", "imp", "--to", "trl")
    law, plan = (read_json(begun / "imp" / f"{x}.json") for x in ("law", "plan"))
    assert [(a["n"], a["B"], len(a["runs"])) for a in law["arms"]] == [(n, 16, 2) for n in (4, 8, 16)]
    assert plan["arm"]["n"] == 4 and plan["arm"]["B"] == 16


def test_a_study_of_another_trainer_goes_on_and_is_audited_with_the_numbers_of_then(begun, ran):
    for words in (("pilot", "own", "--workers", 1), ("fit", "own"), ("plan", "own"),
                  ("train", "--plan", "own", "--workers", 1), ("audit", "own"), ("report", "own")):
        ran(*words)
    runs = ended(begun / "own")
    assert {v for k, v in runs.items() if k.startswith("pilot")} == {(n, 4, 1024) for n in (2, 4, 8, 16)}
    assert {v for k, v in runs.items() if k.startswith("train")} == {(n, 4, C) for n, C in ((2, 6848), (8, 6848))}
    audit = read_json(begun / "own" / "audit.json")
    assert audit["verdict"] == "hit" and audit["comparator"] == {"n": 8, "B": 4}
    assert audit["outcome"]["mean"] == pytest.approx(0.7135, abs=1e-4)
    assert audit["forecast"]["value"] == pytest.approx(0.7684, abs=1e-4)
