"""Runs on a cluster: what dies is started again, what fails is reported as on one machine, and results are the same.

The nodes here are forked processes; `experiments/ray_chaos.py` does the same on a simulated Ray cluster.
"""

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

import kill9
from isocost.cli.commands import main
from isocost.disk.jsonfile import write_json
from isocost.errors import Interrupted, RewardFailed, UserError
from isocost.runs import attempts
from isocost.runs.arm import Arm
from isocost.runs.files import REWARD_FAILED, ended, read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.launch import cluster, node, on_ray
from isocost.runs.launch.cluster import FRUITLESS, SAVE_SECONDS, Died
from isocost.runs.launch.site import HERE, Site
from isocost.runs.run import run
from isocost.worlds.setting import Setting

JOB = Job(arm=Arm(n=4, B=4, lr=1e-4), name="a", setting=Setting.of(data="sums:base=easy,count=120", held_out=0.3),
          method="grpo", seed=5, budget={"rollouts": 192}, points=(64,), save_every=2, export=True)


def named(*names, **changes):
    return [replace(JOB, name=name, seed=i, **changes) for i, name in enumerate(names)]


class Forks:
    """A cluster of processes on this machine, each of which runs one task; `size` run at a time."""

    def __init__(self, size):
        self.size, self.queue, self.going, self.most = size, [], {}, 0

    def submit(self, task, threads):
        self.queue.append(task)
        self._fill()
        return task

    def _fill(self):
        while self.queue and len(self.going) < self.size:
            task = self.queue.pop(0)
            out, into = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    os.close(out)
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    os.write(into, node.attempt(task).encode())
                finally:
                    os._exit(0)
            os.close(into)
            self.going[task] = (pid, out)
        self.most = max(self.most, len(self.going))

    def wait(self, tickets, seconds):
        over = {t: Died("cancelled") for t in tickets if t not in self.going and t not in self.queue}
        for task, (pid, out) in list(self.going.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                said = os.read(out, 1 << 16).decode()
                os.close(out)
                del self.going[task]
                over[task] = said or Died("its node died")
        self._fill()
        if not over:
            time.sleep(0.01)        # nothing to wait for but a child: the caller's loop looks again
        return over

    def cancel(self, ticket):
        if ticket in self.queue:
            self.queue.remove(ticket)
        elif ticket in self.going:
            os.kill(self.going[ticket][0], signal.SIGINT)

    def kill(self, folder, name):
        """Kill the process of a run without grace, if it has one; returns whether it had."""
        for task, (pid, _) in self.going.items():
            if json.loads(task)["run"] == str(folder / name):
                os.kill(pid, signal.SIGKILL)
                return True
        return False


class Scripted:
    """A cluster whose tasks come out as a function of the task says, at once."""

    def __init__(self, outcome):
        self.outcome, self.tasks, self.cancelled, self.most, self.waiting = outcome, [], [], 0, []

    def submit(self, task, threads):
        self.tasks.append(json.loads(task))
        self.waiting.append(len(self.tasks) - 1)
        return len(self.tasks) - 1

    def wait(self, tickets, seconds):
        self.most = max(self.most, len(tickets))
        ticket = self.waiting.pop(0)
        if ticket in self.cancelled:
            return {ticket: Died("cancelled")}
        said = self.outcome(self.tasks[ticket])
        return {ticket: said if isinstance(said, Died) else json.dumps({"said": [], "node": "n1", **said})}

    def cancel(self, ticket):
        self.cancelled.append(ticket)


def spent(task):
    write_json(Path(task["run"]) / "end.json", {"schema": 1, "reason": "spent"})
    return {"kind": node.ENDED, "reason": "spent", "detail": ""}


@pytest.fixture(scope="module")
def jobs():
    return named("a", "b", "c")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, jobs):
    """What the runs leave on one machine."""
    out = tmp_path_factory.mktemp("whole")
    for job in jobs:
        asyncio.run(run(job, out / job.name))
    return {j.name: kill9.left_by(out / j.name) for j in jobs}


def left(folder, jobs):
    return {j.name: kill9.left_by(folder / j.name) for j in jobs}


def steps(run):
    """Steps of a run on disk so far."""
    return sum("reward" in x for x in read_lines(run / "metrics.jsonl"))


def test_runs_whose_nodes_die_are_started_again_and_leave_what_one_machine_leaves(tmp_path, jobs, whole):
    nodes, killed = Forks(2), []

    def watch():
        for name in ("a", "b"):
            if name not in killed and steps(tmp_path / name) >= 1 and nodes.kill(tmp_path, name):
                killed.append(name)

    ends = cluster.run_all(jobs, tmp_path, nodes, workers=None, watch=watch)
    assert killed and left(tmp_path, jobs) == whole and nodes.most == 2
    for job, end in zip(jobs, ends, strict=True):
        assert end == read_json(tmp_path / job.name / "end.json") and end["reason"] == "spent"
        assert sum(end["fates"].values()) == sum(x["rollouts"] for x in end["bill"].values())
        lines = read_lines(tmp_path / job.name / attempts.FILE)
        assert [x["after"] for x in lines] == ["", "its node died"][: 1 + (job.name in killed)]
    assert cluster.run_all(jobs, tmp_path, Scripted(None), workers=None) == ends, "what has ended is not run again"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_stops_what_runs_and_the_next_call_continues(tmp_path, jobs, whole, signum):
    sent = []

    def watch():
        if not sent and steps(tmp_path / "a") >= 1:
            sent.append(signum)
            os.kill(os.getpid(), signum)

    with pytest.raises(Interrupted) as stopped:
        cluster.run_all(jobs, tmp_path, Forks(1), workers=None, watch=watch)
    assert stopped.value.signum == signum
    assert read_json(tmp_path / "a" / "end.json")["reason"] == "interrupted"
    assert not (tmp_path / "c" / "run.json").exists()
    cluster.run_all(jobs, tmp_path, Forks(2), workers=None)
    assert left(tmp_path, jobs) == whole
    assert "lost" not in read_json(tmp_path / "a" / "end.json")["bill"]


def test_a_process_that_its_node_asks_to_stop_is_started_again(tmp_path, jobs, whole):
    """A preemption with notice: SIGTERM reaches the run, which saves; nobody asked for the stop here."""
    nodes, sent = Forks(1), []

    def watch():
        if not sent and steps(tmp_path / "a") >= 1:
            [(pid, _)] = nodes.going.values()
            os.kill(pid, signal.SIGTERM)
            sent.append(pid)

    cluster.run_all(jobs[:1], tmp_path, nodes, workers=None, watch=watch)
    assert left(tmp_path, jobs[:1]) == {"a": whole["a"]}
    second = read_lines(tmp_path / "a" / attempts.FILE)[1]
    assert second == {"attempt": 2, "after": "its process was asked to stop (SIGTERM)"}


def test_no_more_tasks_are_in_flight_than_workers(tmp_path):
    jobs = named(*"abcde")
    for workers, most in ((2, 2), (None, 5)):
        nodes = Scripted(spent)
        cluster.run_all(jobs, tmp_path / str(workers), nodes, workers=workers)
        assert nodes.most == most and [t["attempt"] for t in nodes.tasks] == [1] * 5


def test_the_longest_runs_start_first(tmp_path):
    """By budget, then by updates; else in the order of the plan. Ends are returned in the order of the jobs."""
    jobs = [replace(JOB, name=f"{n}-{c}-{s}", arm=JOB.arm.but(n=n), budget={"rollouts": c}, seed=s)
            for s in (0, 1) for n in (2, 8) for c in (64, 256)]
    nodes = Scripted(lambda task: {**spent(task), "n": write_json(
        Path(task["run"]) / "end.json", {"schema": 1, "reason": "spent", "detail": task["job"]["name"]})})
    ends = cluster.run_all(jobs, tmp_path, nodes, workers=1)
    names = [t["job"]["name"] for t in nodes.tasks]
    assert names == ["2-256-0", "2-256-1", "8-256-0", "8-256-1", "2-64-0", "2-64-1", "8-64-0", "8-64-1"]
    assert [e["detail"] for e in ends] == [j.name for j in jobs]


def test_jobs_without_checkpoints_of_their_own_get_some_by_the_clock(tmp_path):
    nodes = Scripted(spent)
    cluster.run_all(named("a", save_every=0) + named("b", save_every=3), tmp_path, nodes, workers=1)
    assert [t["job"]["save_seconds"] for t in nodes.tasks] == [SAVE_SECONDS, 0.0]


def test_a_run_that_no_attempt_advances_is_given_up_and_the_others_end(tmp_path):
    nodes = Scripted(lambda task: Died("OutOfMemoryError") if task["job"]["name"] == "a" else spent(task))
    with pytest.raises(UserError, match=f"run a: {FRUITLESS} attempts in a row .* OutOfMemoryError"):
        cluster.run_all(named("a", "b"), tmp_path, nodes, workers=1)
    assert ended(tmp_path / "b") and attempts.latest(tmp_path / "a") == FRUITLESS


def test_a_run_that_advances_between_deaths_is_not_given_up(tmp_path):
    def outcome(task):
        (Path(task["run"]) / "checkpoints" / f"step-{task['attempt']:06d}").mkdir(parents=True)
        return spent(task) if task["attempt"] == 2 * FRUITLESS else Died("NodeDiedError")

    cluster.run_all(named("a"), tmp_path, Scripted(outcome), workers=1)
    assert attempts.latest(tmp_path / "a") == 2 * FRUITLESS


@pytest.mark.parametrize(("outcome", "error", "says"), [
    ({"kind": node.USER, "text": "no such data"}, UserError, "^run a: no such data"),
    ({"kind": node.BUG, "text": "KeyError: 'x'"}, RuntimeError, "run a failed on the node n1:\nKeyError: 'x'"),
    ({"kind": node.SYSTEM, "text": "No space left", "errno": errno.ENOSPC, "file": "/x"}, OSError, "No space left"),
])
def test_an_error_on_a_node_is_raised_here_once_the_other_runs_have_ended(tmp_path, outcome, error, says):
    nodes = Scripted(lambda task: outcome if task["job"]["name"] == "a" else spent(task))
    with pytest.raises(error, match=says) as raised:
        cluster.run_all(named("a", "b", "c"), tmp_path, nodes, workers=1)
    assert ended(tmp_path / "b") and ended(tmp_path / "c") and attempts.latest(tmp_path / "a") == 1
    assert not isinstance(raised.value, OSError) or raised.value.errno == errno.ENOSPC


@pytest.mark.parametrize("text", [
    "", "no JSON", "[]", "5", "null", "{}", '{"kind": "ended"}', '{"kind": 5, "said": []}', '{"kind": "x", "said": []}',
    '{"kind": "ended", "said": []}', '{"kind": "bug", "said": [], "text": "x"}',
    '{"kind": "ended", "said": "x", "reason": "x"}',
    '{"kind": "system error", "said": [], "text": "x", "errno": "x", "file": null}', "[" * 100_000,
    '{"kind": "ended", "said": [], "reason": "reward failed", "detail": {}}',
])
def test_what_a_node_returns_that_is_no_result_is_one_line(tmp_path, text):
    class Foreign(Scripted):
        def wait(self, tickets, seconds):
            return {self.waiting.pop(0): text}

    says = "^run a: a node of the cluster returned no result of a run: .*same isocost"
    with pytest.raises(UserError, match=says) as told:
        cluster.run_all(named("a"), tmp_path, Foreign(None), workers=1)
    assert "\n" not in str(told.value) and len(str(told.value)) < 400


def test_a_reward_that_fails_stops_the_other_runs(tmp_path):
    nodes = Scripted(lambda task: {"kind": node.ENDED, "reason": REWARD_FAILED, "detail": "it raised"})
    with pytest.raises(RewardFailed, match="run a: it raised"):
        cluster.run_all(named("a", "b", "c"), tmp_path, nodes, workers=2)
    assert [t["job"]["name"] for t in nodes.tasks] == ["a", "b"] and nodes.cancelled == [1]


def test_an_end_that_this_machine_does_not_show_is_no_end(tmp_path, monkeypatch):
    """A result can be faster than the shared file system; if the file never appears, the run is started again."""
    monkeypatch.setattr(cluster, "VISIBLE", 0.0)
    monkeypatch.setattr(cluster, "POLL", 0.0)
    nodes = Scripted(lambda task: spent(task) if task["attempt"] == 2 else {"kind": node.ENDED, "reason": "spent"})
    cluster.run_all(named("a"), tmp_path, nodes, workers=1)
    assert "does not show it here" in read_lines(tmp_path / "a" / attempts.FILE)[1]["after"]


def test_a_task_that_died_after_its_run_had_ended_is_not_started_again(tmp_path):
    nodes = Scripted(lambda task: spent(task) and Died("NodeDiedError"))
    cluster.run_all(named("a"), tmp_path, nodes, workers=1)
    assert len(nodes.tasks) == 1


def test_what_a_node_logs_is_shown_here_once(tmp_path, caplog):
    nodes = Scripted(lambda task: {**spent(task), "said": ["torch computes the model"]})
    with caplog.at_level(logging.WARNING, "isocost"):
        cluster.run_all(named("a", "b"), tmp_path, nodes, workers=1)
    assert [r.getMessage() for r in caplog.records] == ["torch computes the model"]


# on the node --------------------------------------------------------------------------------------------------


@pytest.fixture
def task(tmp_path, monkeypatch):
    """A task in this working directory, as another process would receive it."""
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "1")
    monkeypatch.chdir(tmp_path)
    return json.loads(node.task_of(JOB, tmp_path / "a", attempts.begin(tmp_path / "a")))


@pytest.mark.parametrize(("change", "says"), [
    ({"home": "/nowhere/at/all"}, "has no /nowhere/at/all: runs on a cluster need a file system that every node"),
    ({"run": "/nowhere/run"}, "has no /nowhere/run/attempts.jsonl"),
    ({"code": {"version": "0", "sources": "other"}}, r"this machine 0 \(other\): install the same one on every"),
])
def test_a_node_without_the_folder_or_with_other_sources_says_so(task, change, says):
    said = json.loads(node.attempt(json.dumps({**task, **change})))
    assert said["kind"] == node.USER
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(said["text"])


def test_a_superseded_attempt_asks_for_another_and_writes_nothing(task, tmp_path):
    attempts.begin(tmp_path / "a")
    assert json.loads(node.attempt(json.dumps(task)))["kind"] == node.AGAIN
    assert [p.name for p in (tmp_path / "a").iterdir()] == [attempts.FILE]


def test_a_task_is_plain_data_and_its_errors_are_too(task, monkeypatch):
    assert Job.of(task["job"]) == JOB and task["job"]["arm"] == {"n": 4, "B": 4, "lr": 1e-4}
    monkeypatch.setattr("isocost.runs.run.run", lambda *a, **k: 1 / 0)
    said = json.loads(node.attempt(json.dumps(task)))
    assert said["kind"] == node.BUG and "ZeroDivisionError" in said["text"]


# where runs are executed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "says"), [
    (("pilot", "x", "--launch", "slurms"), "--launch 'slurms': expected one of local, ray, slurm"),
    (("pilot", "x", "--address", "auto"), "--address is of a cluster: add --launch ray"),
    (("pilot", "x", "--gpus-per-run", "0.5"), "--gpus-per-run is of a cluster"),
    (("train", "grpo", "--launch", "ray"), "--launch are for a study: `isocost train --plan STUDY`"),
    (("compare", "src", "tests", "--launch", "ray"), "--launch is for methods"),
])
def test_options_that_do_not_fit_are_named(words, says):
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2 and says in done.output


def test_slurm_executes_no_runs_of_our_own():
    with pytest.raises(UserError, match="--launch slurm is for runs of a trainer of yours"):
        Site("slurm").run_all([JOB], Path("x"), workers=1)


def test_an_address_is_checked_before_ray_is_loaded():
    with pytest.raises(UserError, match="expected auto, local or HOST:PORT"):
        Site("ray", "ray://head:10001").run_all([JOB], Path("x"), workers=1)
    for address in ("head:6379", "10.0.0.1:6379", "[::1]:6379"):
        assert on_ray.ADDRESS.fullmatch(address)


def test_a_head_that_does_not_answer_is_named_at_once(monkeypatch):
    """Ray itself waits for many minutes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*free.getsockname())
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False))
    with pytest.raises(UserError, match=f"no connection to the Ray cluster at {address}: .*refused; start one with"):
        Site("ray", address).run_all([JOB], Path("x"), workers=1)


def test_a_missing_ray_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"--launch ray needs Ray: pip install 'ray\[default\]'"):
        Site("ray").run_all([JOB], Path("x"), workers=1)


def test_this_machine_is_the_default():
    assert Site() == HERE and not HERE.fills and Site("ray").fills


@pytest.mark.slow       # a cluster of four nodes, each with processes that import torch
def test_runs_on_a_ray_cluster_whose_nodes_are_killed_are_those_of_one_machine(tmp_path):
    pytest.importorskip("ray")
    home = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, home / "experiments" / "ray_chaos.py", "--runs", "10", "--least", "2", "--kills", "2",
         "--out", tmp_path / "record.json"],
        capture_output=True, text=True, cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    record = read_json(tmp_path / "record.json")
    assert record["kills"] == 2 and record["equal"] == record["of"] == 10
