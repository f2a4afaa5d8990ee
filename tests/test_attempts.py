"""Of several attempts of a run only the latest writes to its folder, with locks and without."""

import asyncio
import errno
import os
from dataclasses import replace

import pytest
import torch

import kill9
from isocost.disk import lock
from isocost.errors import UserError
from isocost.meter import Meter
from isocost.runs import attempts
from isocost.runs.arm import Arm
from isocost.runs.attempts import Superseded, begin, latest
from isocost.runs.files import read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.record import RunRecord
from isocost.runs.run import run
from isocost.worlds.setting import Setting

JOB = Job(arm=Arm(n=4, B=4, lr=1e-4), name="small", setting=Setting.of(data="sums:base=easy,count=120", held_out=0.3),
          method="grpo", seed=5, budget={"rollouts": 192}, points=(64,), save_every=2, export=True)


@pytest.fixture
def lockless(monkeypatch):
    """A file system without locks, such as Lustre mounted without `flock`."""

    def take(handle, path):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(lock, "_take", take)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    asyncio.run(run(JOB, out))
    return kill9.left_by(out)


def state(step):
    meter = Meter()
    return step, {"w": torch.full((4,), float(step))}, {"meter": meter.state()}


def test_attempts_are_numbered_from_one_and_say_why_the_one_before_ended(tmp_path):
    run = tmp_path / "made"
    assert latest(run) == 0
    assert [begin(run), begin(run, "its node died"), begin(run, "x" * 999)] == [1, 2, 3]
    assert latest(run) == 3
    lines = read_lines(run / attempts.FILE)
    assert [x["after"] for x in lines[:2]] == ["", "its node died"] and len(lines[2]["after"]) == attempts.WHY


def test_an_attempt_is_counted_behind_a_line_that_was_cut_short(tmp_path):
    begin(tmp_path)
    with open(tmp_path / attempts.FILE, "a") as file:
        file.write('{"attempt": 2, "aft')
    assert [begin(tmp_path), latest(tmp_path), begin(tmp_path)] == [2, 2, 3]


def test_an_earlier_attempt_is_stopped_at_its_next_write_and_before_its_checkpoint_is_renamed(tmp_path, lockless):
    with RunRecord.opened(tmp_path, begin(tmp_path)) as first:
        first.write("metrics.jsonl", {"step": 0})
        first.save(*state(1))
        begin(tmp_path, "its node did not answer")
        for write in (lambda: first.write("metrics.jsonl", {"step": 1}), lambda: first.save(*state(2)), first.check):
            with pytest.raises(Superseded, match=r"attempt 1 of this run was replaced by attempt 2"):
                write()
    assert [p.name for p in sorted((tmp_path / "checkpoints").glob("step-*"))] == ["step-000001"]
    assert [x["step"] for x in read_lines(tmp_path / "metrics.jsonl")] == [0]


def test_what_an_earlier_attempt_appends_in_spite_of_it_is_in_no_record(tmp_path, lockless):
    """Between its check and its write a process can be superseded: the streams are other files by then."""
    with RunRecord.opened(tmp_path, begin(tmp_path)) as first:
        first.pay_since(0)
        first.write("metrics.jsonl", {"step": 0})
        first.save(*state(1))
        with RunRecord.opened(tmp_path, begin(tmp_path, "silent")) as second:
            second.restore(Meter())
            first.streams["metrics.jsonl"].write({"step": 77})
            second.write("metrics.jsonl", {"step": 1})
    assert [x["step"] for x in read_lines(tmp_path / "metrics.jsonl")] == [0, 1]


def test_a_checkpoint_that_a_superseded_attempt_puts_ahead_of_the_streams_is_not_used(tmp_path, lockless):
    with RunRecord.opened(tmp_path, begin(tmp_path)) as first:
        first.save(*state(1))
        first.write("metrics.jsonl", {"step": 0}, {"step": 1})
        begin(tmp_path, "silent")
        first.fence = None      # it has checked, and goes on later
        first.save(*state(9))
    (tmp_path / "metrics.jsonl").write_text("")     # as the second attempt cut it when it started
    with RunRecord.opened(tmp_path, 2) as second:
        _, found = second.restore(Meter())
        assert found["step"] == 1


def test_an_attempt_that_starts_after_a_later_one_writes_nothing(tmp_path):
    late = begin(tmp_path)
    begin(tmp_path)
    with pytest.raises(Superseded), RunRecord.opened(tmp_path, late):
        pass
    assert [p.name for p in tmp_path.iterdir()] == [attempts.FILE]
    with pytest.raises(Superseded), RunRecord.opened(tmp_path / "elsewhere", 1):
        pass


def test_a_run_without_a_launcher_supersedes_those_of_a_launcher(tmp_path):
    with RunRecord.opened(tmp_path) as alone:
        assert alone.fence is None and not (tmp_path / attempts.FILE).exists()
    begin(tmp_path)
    with RunRecord.opened(tmp_path) as alone:
        assert alone.fence.attempt == latest(tmp_path) == 2


def test_a_link_in_place_of_a_stream_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folder = tmp_path / "run"
    begin(folder)
    (folder / "metrics.jsonl").symlink_to(precious)
    with pytest.raises(UserError, match="symbolic link"), RunRecord.opened(folder, 1):
        pass
    assert precious.read_text() == "kept"


def test_two_processes_write_one_run_without_locks_and_its_bytes_are_those_of_one(tmp_path, lockless, whole):
    """A process that was taken for dead goes on beside its successor, which starts in the middle of its steps."""
    number = begin(tmp_path)
    started, go_on = os.pipe(), os.pipe()

    def slow():
        def wait(line):
            if line.get("step") == 5 and "reward" in line:
                os.write(started[1], b"x")
                os.read(go_on[0], 1)

        with pytest.raises(Superseded):
            asyncio.run(run(JOB, tmp_path, attempt=number, on_step=wait))

    child = os.fork()
    if child == 0:
        try:
            slow()
            os._exit(0)
        finally:
            os._exit(1)
    os.read(started[0], 1)
    second = begin(tmp_path, "silent")
    os.write(go_on[1], b"x")        # both write now
    end = asyncio.run(run(JOB, tmp_path, attempt=second))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert end["reason"] == "spent" and kill9.left_by(tmp_path) == whole
    assert sum(end["fates"].values()) == sum(x["rollouts"] for x in end["bill"].values())
    assert end["bill"]["lost"]["rollouts"] > 0


def test_checkpoints_by_the_clock_change_no_result(tmp_path, whole):
    asyncio.run(run(replace(JOB, save_every=0, save_seconds=1e-9), tmp_path))
    assert kill9.left_by(tmp_path) == whole
    steps = [p.name for p in sorted((tmp_path / "checkpoints").iterdir())]
    last = read_json(tmp_path / "end.json")["steps"]
    assert steps == [f"step-{last - 1:06d}", f"step-{last:06d}"]
