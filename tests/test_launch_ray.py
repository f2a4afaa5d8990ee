"""Jobs of a Ray cluster: with a stand-in for its client, and with a real cluster where Ray has its job server."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from types import SimpleNamespace
from typing import ClassVar

import pytest

from isocost.errors import UserError
from isocost.runs.files import read_json
from isocost.runs.launch.launcher import Launch, State
from isocost.runs.launch.ray_jobs import RayJobs
from isocost.steps.events import SILENT
from isocost.steps.outside.drive import drive_jobs
from test_drive import Each, command, halting, job, lines, study


class Client:
    """As ray.job_submission.JobSubmissionClient: jobs by id, which take processors and are ended by SIGTERM."""

    jobs: ClassVar[dict] = {}

    def __init__(self, address=None):
        if address == "http://nobody:8265":
            raise ConnectionError(f"Failed to connect to Ray at address: {address}.")

    def submit_job(self, *, entrypoint, submission_id, entrypoint_num_cpus, entrypoint_num_gpus):
        assert "/" not in submission_id and submission_id not in self.jobs
        self.jobs[submission_id] = subprocess.Popen(entrypoint, shell=True, start_new_session=True)

    def list_jobs(self):
        return [SimpleNamespace(submission_id=k, status=SimpleNamespace(value=(
            "RUNNING" if p.poll() is None else "SUCCEEDED" if p.returncode == 0 else "FAILED"
        ))) for k, p in self.jobs.items()]

    def stop_job(self, job):
        if self.jobs[job].poll() is None:
            os.killpg(self.jobs[job].pid, signal.SIGTERM)


@pytest.fixture
def cluster(monkeypatch):
    """The jobs of the stand-in."""
    monkeypatch.setattr(Client, "jobs", {})
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "ray.job_submission", SimpleNamespace(JobSubmissionClient=Client))
    yield Client.jobs
    for p in Client.jobs.values():
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)


def gone(launcher, folder, seconds=30):
    until = time.time() + seconds
    while launcher.look([folder])[folder] is not State.GONE and time.time() < until:
        time.sleep(0.05)
    return launcher.look([folder])[folder] is State.GONE


def test_a_job_is_submitted_once_and_found_by_its_name(cluster, tmp_path):
    folder = tmp_path / "0"
    folder.mkdir()
    code = "import os, time; print(os.environ['A'], os.getcwd(), flush=True); time.sleep(60)"
    launch = Launch("study/run/0", (sys.executable, "-c", code), {"A": "a b'c"}, folder, tmp_path)
    RayJobs().submit(launch)
    RayJobs().submit(launch)
    until = time.time() + 30
    while not (folder / "output.txt").exists() or not (folder / "output.txt").read_text():
        assert time.time() < until
        time.sleep(0.02)
    (folder / "ticket.json").unlink()       # the driver was killed before it noted the job
    (folder / "started").unlink()
    RayJobs().submit(launch)
    (name,) = cluster
    assert name.startswith("study_run_0-") and read_json(folder / "ticket.json")["job"] == name
    assert RayJobs().look([folder]) == {folder: State.RUNNING}
    RayJobs().stop(folder)
    assert gone(RayJobs(), folder) and RayJobs().look([]) == {}
    assert (folder / "output.txt").read_text() == f"a b'c {tmp_path}\n"


def test_a_run_whose_job_failed_is_submitted_again(cluster, tmp_path):
    home = study(tmp_path / "study", halting())
    home.write("study.json", home.asked | {"launch": "ray", "address": "http://head:8265"})
    run, killed = home.runs / "pilot-n4-s0", []

    def kill():
        log = run / "trainer" / "metrics.jsonl"
        if not killed and log.exists() and len(log.read_bytes().splitlines()) == 13:
            killed.append(os.killpg(next(iter(cluster.values())).pid, signal.SIGKILL))
            (run / "trainer" / "go").touch()

    (end,) = drive_jobs(home, [job()], "pilot", Each(kill), 1)
    assert len(cluster) == 2 and end["bill"]["lost"]["updates"] == 3
    assert sum("reward" in x for x in lines(run)) == 24


def test_what_is_missing_is_named(cluster, tmp_path, monkeypatch):
    home = study(tmp_path / "study", command())
    home.write("study.json", home.asked | {"launch": "ray", "address": "http://nobody:8265"})
    with pytest.raises(UserError, match=r"the Ray cluster at http://nobody:8265 does not run jobs: Failed to connect"):
        drive_jobs(home, [job()], "pilot", SILENT, 1)
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(UserError, match=r"--launch ray needs Ray's job submission: pip install 'ray\[default\]'"):
        drive_jobs(home, [job()], "pilot", SILENT, 1)


@pytest.mark.slow
@pytest.mark.skipif(not all(map(importlib.util.find_spec, ("ray", "aiohttp"))), reason="no Ray with its job server")
def test_runs_of_a_real_ray_cluster_end_as_on_one_machine(tmp_path, monkeypatch):
    """Four runs; a job is stopped by hand now and then, and its run submitted again."""
    from ray.job_submission import JobSubmissionClient

    jobs = [job(f"pilot-n4-s{k}", seed=k) for k in range(4)]
    whole = study(tmp_path / "whole", command())
    drive_jobs(whole, jobs, "pilot", SILENT, 2)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")     # since 2.60 a cluster expects a token; this one is of this test
    ray = shutil.which("ray", path=os.path.dirname(sys.executable))
    address = "http://127.0.0.1:7265"
    short = tempfile.mkdtemp(prefix="r", dir="/tmp")        # the path of a socket has at most 107 characters
    start = (ray, "start", "--head", "--port=7379", "--num-cpus=2", "--dashboard-port=7265", "--block",
             f"--temp-dir={short}", "--object-store-memory=80000000")
    head = subprocess.Popen(start, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until = time.time() + 120
        while True:
            try:
                client = JobSubmissionClient(address)
                client.list_jobs()
                break
            except Exception:
                assert time.time() < until and head.poll() is None
                time.sleep(1)
        home = study(tmp_path / "study", command("--pause", "0.3"))
        home.write("study.json", home.asked | {"launch": "ray", "address": address})
        stopped, last = [], [time.time()]

        def harm():
            running = [x.submission_id for x in client.list_jobs() if x.status.value == "RUNNING"]
            if time.time() - last[0] > 6 and running and len(stopped) < 3:
                last[0] = time.time()
                stopped.append(client.stop_job(running[0]))

        ends = drive_jobs(home, jobs, "pilot", Each(harm), 2)
    finally:
        for ending in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(head.pid, ending)
                head.wait(40)
        shutil.rmtree(short, ignore_errors=True)
    assert [e["reason"] for e in ends] == ["spent"] * 4 and len(stopped) >= 2
    assert all(lines(home.runs / j.name) == lines(whole.runs / j.name) for j in jobs)
    attempts = [len(list((home.runs / j.name).glob("attempts/*"))) for j in jobs]
    assert sum(attempts) == 4 + len(stopped)
