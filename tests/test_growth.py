"""What does not grow with the runs of a study: files that an audit opens, memory and size of a report."""

import json
import os
import shutil
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fixtures.study_records import write_lines, write_run
from isocost import report
from isocost.report.records import MOST, load
from isocost.report.sections import turns as rollouts
from isocost.steps.study import StudyRecord
from isocost.steps.training.audit import audit

OPENED: list[str] = []
WATCHED: list[str] = []


def _watch(event, arguments):
    if event == "open" and WATCHED and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.fsdecode(arguments[0])
        if path.startswith(WATCHED[0]):
            OPENED.append(os.path.relpath(path, WATCHED[0]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, recorded) -> Path:
    return recorded(tmp_path_factory.mktemp("grown") / "study")


def more_runs(study: Path, purpose: str, count: int) -> list[str]:
    """Copies of a run of this purpose under other names."""
    first = next(p for p in sorted((study / "runs").glob(f"{purpose}-*")))
    names = [f"{first.name.rsplit('-s', 1)[0]}-s{100 + i}" for i in range(count)]
    for i, name in enumerate(names):
        shutil.copytree(first, study / "runs" / name)
        record = json.loads((study / "runs" / name / "run.json").read_text())
        (study / "runs" / name / "run.json").write_text(json.dumps({**record, "name": name, "seed": 1000 + i}))
    return names


def test_an_audit_opens_no_run_that_its_forecast_does_not_name(whole, tmp_path):
    study = tmp_path / "study"
    shutil.copytree(whole, study)
    before = audit(StudyRecord.read(study))
    extra = more_runs(study, "train", 5)
    sys.addaudithook(_watch)
    WATCHED.append(str(study / "runs"))
    after = audit(StudyRecord.read(study))
    WATCHED.clear()
    assert OPENED and not {path.split("/")[0] for path in OPENED} & set(extra)
    pilots = [path for path in OPENED if path.startswith("pilot-")]     # hashed, not read: are they as they were?
    assert {path.split("/")[1] for path in pilots} <= {"run.json", "metrics.jsonl"}
    assert after.verdict == before.verdict and after.reason == before.reason


def test_a_run_that_is_missing_is_named_and_none_is_opened_for_it(whole, tmp_path):
    study = tmp_path / "study"
    shutil.copytree(whole, study)
    gone = study / "runs" / json.loads((study / "forecast.json").read_text())["runs"][0]
    shutil.rmtree(gone)
    found = audit(StudyRecord.read(study))
    assert found.verdict == "cannot tell" and gone.name in found.missing


def test_memory_of_a_report_does_not_grow_with_the_lines_and_texts_of_runs(tmp_path):
    """300 steps and 40 kept rollouts of 5,000 characters: 0.5 MB as objects, of which a page needs some numbers."""
    names = [f"pilot-n4-s{i}" for i in range(rollouts.RUNS + 3)]
    for i, name in enumerate(names):
        write_run(tmp_path / "runs", name, "pilot", 4, 1024, i)
        folder = tmp_path / "runs" / name
        steps = [{"step": k, "rollouts": 32 * k, "reward": 0.5, "entropy": 1.0 / (k + 1), "kl": 0.001 * k, "decode": k}
                 for k in range(1, 301)]
        evaluations = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines() if "eval/" in x]
        write_lines(folder / "metrics.jsonl", [*evaluations[:1], *steps, *evaluations[1:]])
        attempts = [{"attempt": a, "text": f"{name} {a} " + 5000 * "x", "reward": 1.0, "stop": "end", "fate": "trained"}
                    for a in range(20)]
        write_lines(folder / "samples.jsonl", [{"step": k, "part": "training", "id": "p", "variant": "", "prompt": "q",
                                                "attempts": attempts} for k in range(2)])

    def kept(count: int) -> int:
        for name in names[count:]:
            (tmp_path / "runs" / name / "run.json").rename(tmp_path / "runs" / name / "away.json")
        tracemalloc.start()
        study = load(tmp_path)
        section = rollouts.rollouts(study)
        memory = tracemalloc.get_traced_memory()[1]          # at its most
        tracemalloc.stop()
        assert len(study.runs) == count and f"of {40 * count:,} rollouts" in section.body
        for name in names[count:]:
            (tmp_path / "runs" / name / "away.json").rename(tmp_path / "runs" / name / "run.json")
        return memory

    kept(len(names))                                                # what is imported and cached is there now
    assert (kept(len(names)) - kept(rollouts.RUNS + 1)) / 2 < 50_000    # bytes a run; 460,000 if all is kept


def test_a_page_of_long_logs_draws_a_bounded_number_of_points(tmp_path):
    def size(points: int) -> int:
        folder = tmp_path / str(points)
        write_run(folder, "run-a", "run", 4, 1024, 1)
        rewards = 0.5 + 0.1 * np.random.default_rng(0).standard_normal(points)
        write_lines(folder / "run-a" / "metrics.jsonl", [
            {"step": k, "rollouts": 32 * k, "epoch": 0.1, "eval/select": float(y), "eval/audit": float(y)}
            for k, y in enumerate(rewards)])
        found = load(folder).runs[0].evaluations
        assert MOST / 2 <= len(found) <= MOST + 1 and found[-1]["rollouts"] == 32 * (points - 1)
        assert found[0]["eval/audit"] == rewards[0]
        return report.write(folder, folder / "report.html").stat().st_size

    assert size(4000) - size(1000) < 30_000
