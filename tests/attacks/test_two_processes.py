"""Two commands on one folder: the second is refused and told by whom, reading goes on, a killed one holds nothing."""

import fcntl
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.disk import lock as locks
from isocost.disk.lock import locked
from isocost.errors import UserError
from isocost.runs.files import read_json

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
DATA = ("--data", "sums:base=easy,count=120")


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return done.output


def held_by(folder):
    """The id of the process that the lock of a folder names."""
    return json.loads((folder / "lock").read_text())["pid"]


@contextmanager
def holder(folder):
    """Another process that holds a folder, as a command of its own would: its id."""
    code = "import sys, pathlib; from isocost.disk.lock import locked\n" \
           "with locked(pathlib.Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, folder, "profile", "--seed", "1"], env=ENVIRONMENT, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )
    try:
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study that was profiled and planned, with one run in it that has ended and one import of a log beside it."""
    out = tmp_path_factory.mktemp("studies") / "s"
    said("profile", *DATA, "--out", out, "--problems", "4")
    said("plan", out, "--size", "tiny")
    said("train", "grpo", *DATA, "-n", "2", "-B", "2", "--budget", "8-rollouts", "--evaluations", "0",
         "--out", out / "runs" / "r")
    (out.parent / "log.csv").write_text("step,reward\n" + "".join(f"{i},{i / 10}\n" for i in range(9)))
    shutil.copytree(out / "runs" / "r", out.parent / "copy")
    assert not list(out.rglob("lock")), "a lock is there only while it is held"
    return out


# commands -----------------------------------------------------------------------------------------------------------

COMMANDS = {
    "profile": ("profile", *DATA, "--problems", "4", "--out", "STUDY"),
    "plan": ("plan", "STUDY"),
    "plan anew": ("plan", "STUDY", "--size", "quick"),
    "pilot": ("pilot", "STUDY"),
    "fit": ("fit", "STUDY"),
    "train": ("train", "--plan", "STUDY"),
    "audit": ("audit", "STUDY"),
    "quickstart": ("quickstart", *DATA, "--size", "tiny", "--out", "STUDY"),
    "compare methods": ("compare", "grpo", "dapo", *DATA, "--budget", "20k-rollouts", "--out", "STUDY"),
    "compare folders": ("compare", "STUDY/runs/r", "COPY", "--out", "STUDY"),
    "import": ("import", "LOG", "--n", "4", "--B", "4", "--out", "STUDY"),
    "eval": ("eval", "STUDY/runs/r"),
    "train a method": ("train", "grpo", *DATA, "-n", "2", "-B", "2", "--budget", "8-rollouts", "--out", "STUDY/runs/r"),
}


@pytest.fixture(scope="module")
def held(study):
    """The study and its run, both held by other processes."""
    with holder(study) as one, holder(study / "runs" / "r") as other:
        yield study, {one.pid, other.pid}


def contents(folder):
    return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_writes_is_refused_and_names_the_process(held, name):
    study, pids = held
    before = contents(study)
    places = {"STUDY": study, "LOG": study.parent / "log.csv", "COPY": study.parent / "copy"}
    words = [w if w.split("/")[0] not in places else str(places[w.split("/")[0]]) + w.removeprefix(w.split("/")[0])
             for w in COMMANDS[name]]
    last = said(*words, code=2).splitlines()[-1]
    assert last.startswith("isocost: ") and "is being written by another process, " in last
    assert any(f"process, {pid} (-c {study}" in last for pid in pids) and "profile --seed 1): wait for it" in last
    assert contents(study) == before


@pytest.mark.parametrize("words", [
    ("ls", "STUDY"), ("ls", "STUDY", "--json"), ("verdict", "STUDY/runs/r"), ("report", "STUDY", "--out", "OUT"),
    ("report", "STUDY/runs/r", "--out", "OUT"), ("pilot", "STUDY", "--dry-run"),
    ("profile", *DATA, "--problems", "4", "--dry-run", "--out", "STUDY"),
], ids=" ".join)
def test_a_command_that_only_reads_goes_on_beside_it(held, tmp_path, words):
    study, _ = held
    before = contents(study)
    said(*(w.replace("STUDY", str(study)).replace("OUT", str(tmp_path / "out")) for w in words))
    assert contents(study) == before


def test_two_profiles_of_one_study_are_one_profile(tmp_path):
    """They used to share its file: the bill held both, and half of what was sampled was missing."""
    out = tmp_path / "study"
    command = ("profile", *DATA, "--problems", "8", "--out", str(out))
    first = subprocess.Popen([Path(sys.executable).with_name("isocost"), *command], env=ENVIRONMENT,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        while not ((out / "lock").exists() and (out / "lock").read_text()):
            assert first.poll() is None, first.stdout.read()
        first.send_signal(signal.SIGSTOP)       # before the model is loaded: the second would overtake it
        text = said(*command, code=2)
        assert text.count("\n") == 1
        assert f"{out} is being written by another process, {first.pid} (isocost profile --data sums" in text
    finally:
        first.send_signal(signal.SIGCONT)
        told, _ = first.communicate()
    assert first.returncode == 0, told
    found = read_json(out / "profile.json")
    assert found["cost"]["rollouts"] == 8 * 16 and found["lost"]["rollouts"] == 0 and found["unscored"] == 0
    assert not (out / "lock").exists()


def test_a_mistake_leaves_no_folder_and_no_lock(tmp_path):
    said("profile", "--data", "nowhere.jsonl", "--out", tmp_path / "studies" / "s", code=2)
    said("import", tmp_path / "nowhere.csv", "--out", tmp_path / "imported", code=2)
    said("plan", tmp_path / "none", code=2)
    assert list(tmp_path.iterdir()) == []


# the lock -----------------------------------------------------------------------------------------------------------


def test_a_killed_process_holds_nothing(tmp_path):
    with holder(tmp_path) as child:
        child.kill()
        child.wait()
        assert (tmp_path / "lock").exists()
        with locked(tmp_path):
            assert held_by(tmp_path) == os.getpid()
    assert not (tmp_path / "lock").exists()


def test_a_child_that_outlives_the_command_does_not_hold_its_folder(tmp_path):
    code = "import os, sys, pathlib, subprocess; from isocost.disk.lock import locked\n" \
           "with locked(pathlib.Path(sys.argv[1])):\n" \
           "    child = subprocess.Popen(['sleep', '60'], close_fds=False, stdout=subprocess.DEVNULL)\n" \
           "    print(child.pid, flush=True); os._exit(0)"
    done = subprocess.run([sys.executable, "-c", code, tmp_path], env=ENVIRONMENT, stdout=subprocess.PIPE, check=True)
    try:
        with locked(tmp_path):
            assert held_by(tmp_path) == os.getpid()
    finally:
        os.kill(int(done.stdout), 9)


def test_another_thread_is_another_writer(tmp_path):
    from isocost.steps.folder import writing

    found = []

    def write():
        try:
            with writing(tmp_path):
                found.append("wrote")
        except UserError as e:
            found.append(str(e))

    with writing(tmp_path), writing(tmp_path / "." / ".." / tmp_path.name):      # steps of one command nest
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()
    assert len(found) == 1 and f"is being written by another process, {os.getpid()}" in found[0]
    with writing(tmp_path):
        pass


def test_a_lock_that_is_a_symbolic_link_is_refused_and_what_it_points_to_stays(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match=r"s/lock cannot be used as a lock \(.*\): remove it"), locked(tmp_path / "s"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"
    (tmp_path / "t" / "lock").mkdir(parents=True)
    with pytest.raises(UserError, match="cannot be used as a lock"), locked(tmp_path / "t"):
        pass


@pytest.mark.parametrize("text", [
    b"", b"\xff\xfe", b"[]", b"{}", b'{"pid": "1"}',
    b'{"pid": 1, "command": "\\u001b[2J\\nisocost: all is well", "host": 5}',
    b'{"pid": 7, "command": "' + b"x" * 3000 + b'", "host": "\\u001b]0;x\\u0007"}', b"[" * 4000,
], ids=lambda t: repr(t[:24]))
def test_whatever_a_lock_says_the_refusal_is_one_plain_line(monkeypatch, tmp_path, text):
    monkeypatch.setattr(locks, "PATIENCE", 0.0)
    with open(tmp_path / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(text)
        lock.flush()
        with pytest.raises(UserError) as told, locked(tmp_path):
            pass
    line = str(told.value)
    assert "is being written by another process" in line and line.isprintable() and len(line) < 600
    assert platform.node() not in line


def test_who_looks_whether_a_folder_is_held_refuses_nobody(monkeypatch, tmp_path):
    """`isocost ls` holds the lock for a moment, and a run that began in that moment was refused."""
    monkeypatch.setattr(locks, "PATIENCE", 60.0)
    lock = os.open(tmp_path / "lock", os.O_RDONLY | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_SH)
    threading.Timer(0.1, os.close, (lock,)).start()
    with locked(tmp_path):
        assert held_by(tmp_path) == os.getpid()


def test_a_lock_that_was_removed_while_it_was_waited_for_is_not_taken(tmp_path):
    """Two processes would hold one folder: one by the file that is gone, one by the file that is there."""
    path = tmp_path / "lock"
    gone = os.open(path, os.O_RDWR | os.O_CREAT)
    path.unlink()
    assert not locks._take(gone, path)
    path.write_text("")
    assert not locks._take(gone, path)
    os.close(gone)


def test_without_locks_of_the_file_system_a_warning_is_logged_and_the_folder_opens(monkeypatch, tmp_path, caplog):
    def none(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(locks.fcntl, "flock", none)
    with locked(tmp_path):
        pass
    assert "cannot be locked (Function not implemented)" in caplog.text
