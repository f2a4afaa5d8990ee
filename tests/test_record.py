"""What a run has paid for is on disk, and a torn file never takes the run with it."""

import hashlib
import json
from contextlib import closing
from pathlib import Path

import pytest
import torch

import isocost
from isocost.disk.jsonfile import write_json
from isocost.errors import UserError
from isocost.meter import LOST, Meter, Payer
from isocost.runs import files
from isocost.runs.files import Stream, read_json, read_lines, tail
from isocost.runs.record import MOMENT, RunRecord
from isocost.types import Cost, Fate


def checkpoint(record, step, value):
    record.write("metrics.jsonl", {"step": step})
    meter = Meter()
    meter.charge(Cost(), to=Payer(begins=True), started=step)
    record.save(step, {"w": torch.full((4,), float(value))}, {"meter": meter.state()})


def begun(path, *steps):
    with RunRecord.opened(path) as record:
        record.pay_since(0)
        for s in steps:
            record.paid("train", Cost(rollouts=1))
            checkpoint(record, s, s)
        record.paid("train", Cost(rollouts=5, decode=7))
        record.write("metrics.jsonl", {"step": 99})


def test_resume_cuts_streams_back_and_charges_what_was_lost(tmp_path):
    begun(tmp_path, 1, 2)
    meter = Meter()
    with RunRecord.opened(tmp_path) as record:
        tensors, state = record.restore(meter)
    assert state["step"] == 2 and tensors["w"].tolist() == [2.0] * 4
    assert [x["step"] for x in read_lines(tmp_path / "metrics.jsonl")] == [1, 2]
    assert meter.of(LOST) == Cost(rollouts=5, decode=7) and meter.of().rollouts == 2


def test_what_was_lost_is_counted_once_however_often_one_dies(tmp_path):
    begun(tmp_path, 1)
    for _ in range(3):  # three resumes that compute nothing
        meter = Meter()
        with RunRecord.opened(tmp_path) as record:
            record.restore(meter)
            record.pay_since(1)
    assert meter.of(LOST).rollouts == 5
    with RunRecord.opened(tmp_path) as record:
        record.pay_since(1)
        record.paid("train", Cost(rollouts=3))
    with RunRecord.opened(tmp_path) as record:
        meter = Meter()
        record.restore(meter)
    assert meter.of(LOST).rollouts == 8
    assert len(read_lines(tmp_path / "lost.jsonl")) == 2


def test_charges_are_on_disk_at_once_and_moments_of_time_with_the_next(tmp_path):
    moment, seen = Cost(seconds=2e-5), []
    with RunRecord.opened(tmp_path) as record:
        record.pay_since(0)
        for cost in (moment, Cost(env_steps=1), Cost(seconds=0.5), moment, Cost(reread=2), moment):
            record.paid("train", cost)
            seen.append(len(read_lines(tmp_path / "paid-000-000000.jsonl")))
    assert seen == [0, 2, 3, 3, 5, 5]
    with RunRecord.opened(tmp_path) as record:
        record.restore(meter := Meter())
    assert meter.of(LOST) == Cost(env_steps=1, seconds=pytest.approx(0.50006), reread=2)


def test_moments_that_wait_are_less_than_a_moment_in_total(tmp_path):
    """Thousands of environments that are opened in turn charge nothing but time."""
    with RunRecord.opened(tmp_path) as record:
        record.pay_since(0)
        waiting = []
        for k in range(1, 101):
            record.paid("train", Cost(seconds=0.4 * MOMENT))
            waiting.append(k - len(read_lines(tmp_path / "paid-000-000000.jsonl")))
    assert waiting == [1, 2, 0] * 33 + [1]


def test_a_torn_line_of_lost_work_is_written_again(tmp_path):
    """A full disk or a power cut left half of it: the paid files are still there."""
    begun(tmp_path, 1)
    (tmp_path / "lost.jsonl").write_text('{"life": 0, "step": 1, "co')
    for _ in range(2):
        with RunRecord.opened(tmp_path) as record:
            record.restore(meter := Meter())
        assert meter.of(LOST).rollouts == 5


@pytest.mark.parametrize("damage", ["torn", "empty", "half-renamed", "no state", "bad json"])
def test_a_damaged_last_checkpoint_falls_back_and_says_so(tmp_path, damage):
    begun(tmp_path, 1, 2)
    last = tmp_path / "checkpoints" / "step-000002"
    weights, state = last / "learner.safetensors", last / "state.json"
    if damage == "torn":
        weights.write_bytes(weights.read_bytes()[:-3])
    elif damage == "empty":
        weights.write_bytes(b"")
    elif damage == "half-renamed":
        last.rename(last.with_name(".step-000002.tmp"))
    elif damage == "no state":
        state.unlink()
    else:
        state.write_text(state.read_text()[:20])
    with RunRecord.opened(tmp_path) as record:
        meter = Meter()
        tensors, found = record.restore(meter)
        assert found["step"] == 1 and tensors["w"].tolist() == [1.0] * 4
        assert damage == "half-renamed" or "falling back" in record.notes[0]
    assert meter.of(LOST).rollouts >= 6  # the step after it was lost too
    assert [x["step"] for x in read_lines(tmp_path / "metrics.jsonl")] == [1]


def test_only_two_checkpoints_are_kept(tmp_path):
    begun(tmp_path, 1, 2, 3, 4)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["step-000003", "step-000004"]


def test_a_checkpoint_of_a_million_steps_is_newer_than_one_of_fewer(tmp_path):
    begun(tmp_path, 999_998, 999_999, 1_000_000)
    with RunRecord.opened(tmp_path) as record:
        assert [c.name for c in record.checkpoints()] == ["step-999999", "step-1000000"]
        assert record.restore(Meter())[1]["step"] == 1_000_000


def test_a_directory_is_written_by_one_process_at_a_time(tmp_path):
    with (RunRecord.opened(tmp_path), pytest.raises(UserError, match="another process"), RunRecord.opened(tmp_path)):
        pass


def test_the_end_of_a_stream_that_is_no_file_is_a_users_error(tmp_path):
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        tail(tmp_path, 100)
    assert tail(tmp_path / "absent.jsonl", 100) == []


def test_lines_are_in_the_order_in_which_they_were_given(tmp_path):
    path, lines = tmp_path / "a.jsonl", [f'{{"at": {k}}}' for k in range(7)]
    with closing(Stream(path)) as stream:
        for give, line in zip("wawwaww", lines, strict=True):
            (stream.wait if give == "w" else stream.append)(line)
        assert path.read_text().splitlines() == lines[:5], "those that wait are written with the next one"
    assert path.read_text().splitlines() == lines


def test_a_torn_line_is_not_read(tmp_path):
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"step": 2')     # as a kill leaves it
    assert read_lines(tmp_path / "metrics.jsonl") == [{"step": 1}]


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}


def test_a_newer_schema_is_refused_by_name(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"schema": 99}))
    with pytest.raises(UserError, match="schema 99"):
        read_json(path)


def test_broken_json_names_the_file(tmp_path):
    path = tmp_path / "run.json"
    path.write_text("{")
    with pytest.raises(UserError, match=r"run\.json"):
        read_json(path)


def test_what_became_of_rollouts_has_one_list_of_names():
    assert set(files.FATES) == {str(f) for f in Fate}


def test_a_code_hash_covers_the_whole_package():
    """It is what a seal carries: a change in any room is another code."""
    home = Path(isocost.__file__).parent
    digest = hashlib.sha256()
    for f in sorted(p for p in home.rglob("*") if p.suffix in (".py", ".cpp", ".h")):
        digest.update(str(f.relative_to(home)).encode() + f.read_bytes())
    assert files.code()["sources"] == digest.hexdigest()[:16]
