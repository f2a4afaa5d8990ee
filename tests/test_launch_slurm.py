"""Jobs of Slurm, with a scheduler of three short programs: it forgets a job once its process has ended."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isocost.errors import UserError
from isocost.runs.files import read_json
from isocost.runs.launch import slurm
from isocost.runs.launch.launcher import Launch, State, job_name, keep_ticket, write_script
from isocost.runs.launch.slurm import Slurm
from isocost.steps.events import SILENT
from isocost.steps.outside.drive import drive_jobs
from test_drive import Each, command, halting, job, lines, study

PROGRAM = """#!{python}
import json, os, signal, subprocess, sys
from pathlib import Path
home = Path({home!r}); words = sys.argv[1:]
options = dict(w[2:].split("=", 1) for w in words if w.startswith("--") and "=" in w)
jobs = {{p.stem: json.loads(p.read_text()) for p in home.glob("*.json")}}
def lives(pid):
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
if {name!r} == "sbatch":
    number = str(len(jobs) + 101)
    out = open(options["output"], "a")
    child = subprocess.Popen(["sh", words[-1]], stdout=out, stderr=out, cwd=options["chdir"], start_new_session=True)
    (home / f"{{number}}.json").write_text(json.dumps({{"name": options["job-name"], "pid": child.pid}}))
    print(number + ";cluster")
elif {name!r} == "squeue":
    for number, known in jobs.items():
        if lives(known["pid"]) and options.get("name", known["name"]) == known["name"]:
            print(options["format"].replace("%i", number).replace("%T", "RUNNING"))
else:
    os.killpg(jobs[words[-1]]["pid"], signal.SIGKILL if "--signal=KILL" in words else signal.SIGTERM)
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """The folder of the scheduler's jobs."""
    home, bin = tmp_path / "jobs", tmp_path / "bin"
    home.mkdir()
    bin.mkdir()
    for name in ("sbatch", "squeue", "scancel"):
        (bin / name).write_text(PROGRAM.format(python=sys.executable, home=str(home), name=name))
        (bin / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{os.environ['PATH']}")
    return home


def names(cluster):
    return sorted(json.loads(p.read_text())["name"] for p in cluster.glob("*.json"))


def test_a_job_is_submitted_once_and_found_by_its_key(cluster, tmp_path):
    folder = tmp_path / "0"
    folder.mkdir()
    launch = Launch("study/run/0", (sys.executable, "-c", "import os, time; print(os.environ['A']); time.sleep(60)"),
                    {"A": "a b'c"}, folder, tmp_path)
    Slurm().submit(launch)
    Slurm().submit(launch)
    (folder / "ticket.json").unlink()       # the driver was killed before it noted the number
    until = time.time() + 30
    while not (folder / "started").exists() and time.time() < until:
        time.sleep(0.05)
    (folder / "started").unlink()           # nor had the job begun
    Slurm().submit(launch)
    assert names(cluster) == [job_name(launch)] and job_name(launch).startswith("study/run/0-")
    assert read_json(folder / "ticket.json")["job"] == "101"
    assert Slurm().look([folder]) == {folder: State.RUNNING}
    Slurm().stop(folder, now=True)
    while Slurm().look([folder])[folder] is not State.GONE and time.time() < until:
        time.sleep(0.05)
    assert Slurm().look([folder]) == {folder: State.GONE}
    while not (folder / "output.txt").read_text() and time.time() < until:
        time.sleep(0.05)
    assert (folder / "output.txt").read_text() in ("a b'c\n", "")


def test_a_run_whose_job_died_is_submitted_again(cluster, tmp_path):
    """The scheduler has forgotten the job, and only the run's folder says that the run is not over."""
    home = study(tmp_path / "study", halting())
    home.write("study.json", home.asked | {"launch": "slurm"})
    run, killed = home.runs / "pilot-n4-s0", []

    def kill():
        log = run / "trainer" / "metrics.jsonl"
        if not killed and log.exists() and len(log.read_bytes().splitlines()) == 13:
            killed.append(Slurm().stop(run / "attempts" / "0", now=True))
            (run / "trainer" / "go").touch()

    (end,) = drive_jobs(home, [job()], "pilot", Each(kill), 1)
    assert killed and [n.rpartition("-")[0] for n in names(cluster)] == ["study/pilot-n4-s0/0", "study/pilot-n4-s0/1"]
    assert sum("reward" in x for x in lines(run)) == 24 and end["bill"]["lost"]["updates"] == 3


def test_a_machine_without_slurm_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    home = study(tmp_path / "study", command())
    home.write("study.json", home.asked | {"launch": "slurm"})
    with pytest.raises(UserError, match="there is no squeue on this machine; start isocost where jobs are submitted"):
        drive_jobs(home, [job()], "pilot", SILENT, 1)


def test_a_job_that_is_queued_again_is_cancelled(tmp_path, monkeypatch):
    """Its second start would write to the log of the first. One that has not started, or is suspended, waits."""
    cancelled = []
    monkeypatch.setattr(slurm, "_run", lambda *words: (
        "7 PENDING\n8 PENDING\n9 SUSPENDED\n" if words[0] == "squeue" else cancelled.append(words) or ""))
    folders = {}
    for job_, started in (("7", True), ("8", False), ("9", True), ("10", True)):
        folders[job_] = tmp_path / job_
        folders[job_].mkdir()
        keep_ticket(folders[job_], job=job_)
        if started:
            (folders[job_] / "started").touch()
    assert Slurm().look(list(folders.values())) == {
        folders["7"]: State.GONE, folders["8"]: State.WAITING, folders["9"]: State.WAITING, folders["10"]: State.GONE}
    assert cancelled == [("scancel", "7")]


def test_a_script_that_is_started_a_second_time_ends_at_once(tmp_path):
    launch = Launch("s/r/0", ("sh", "-c", "echo made"), {}, tmp_path, tmp_path)
    made = [subprocess.run(["sh", write_script(launch)], capture_output=True, text=True, check=True) for _ in range(2)]
    assert [m.stdout for m in made] == ["made\n", ""]


def test_a_controller_that_does_not_answer_is_asked_again(monkeypatch):
    """Except for sbatch, which may have submitted the job."""
    answers = iter([(1, "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"), (0, "")] * 2)

    def run(words, **_):
        code, said = next(answers)
        return subprocess.CompletedProcess(words, code, stdout="1 RUNNING\n", stderr=said)

    monkeypatch.setattr(slurm, "PAUSES", (0.0,))
    monkeypatch.setattr(slurm.subprocess, "run", run)
    assert slurm._run("squeue") == "1 RUNNING\n"
    with pytest.raises(UserError, match=r"sbatch failed: .*Unable to contact"):
        slurm._run("sbatch")
