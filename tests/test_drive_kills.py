"""A driver that is killed again and again: no run is submitted twice, and every record is that of one machine."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from isocost.steps.drive import drive_jobs
from isocost.steps.events import SILENT
from test_drive import OPTIONS, SCRIPT, command, job, lines, study

HOME = Path(__file__).parents[1]
KILLS, RUNS = 50, 6
COUNTED = """
import json, os, runpy, sys
with open({log!r}, "a") as f:
    f.write(json.dumps({{"key": os.environ["ISOCOST_KEY"], "pid": os.getpid()}}) + "\\n")
sys.argv[0] = {script!r}
runpy.run_path({script!r}, run_name="__main__")
"""
DRIVER = """
import test_drive_kills as t
from pathlib import Path
t.drive_jobs(t.study(Path({folder!r}), {text!r}), t.jobs(), "pilot", t.SILENT, 3)
"""


def jobs():
    return [job(f"pilot-n4-s{k}", seed=k) for k in range(RUNS)]


@pytest.mark.slow
def test_a_driver_that_is_killed_at_fifty_instants_submits_no_run_twice(tmp_path):
    """Every process notes its start. Each launch of an attempt is one process, and no attempt is made again."""
    whole = study(tmp_path / "whole", command())
    drive_jobs(whole, jobs(), "pilot", SILENT, 2)
    log, trainer = tmp_path / "started.jsonl", tmp_path / "trainer.py"
    trainer.write_text(COUNTED.format(log=str(log), script=str(SCRIPT)))
    folder, rng, kills = tmp_path / "study", random.Random(1), 0
    text = f"cmd: {sys.executable} {trainer} {OPTIONS} --pause 2"
    code = DRIVER.format(folder=str(folder), text=text)
    paths = os.pathsep.join([str(HOME / "src"), str(HOME / "tests")])
    while kills < KILLS:
        driver = subprocess.Popen([sys.executable, "-c", code], cwd=HOME, env={**os.environ, "PYTHONPATH": paths},
                                  stderr=subprocess.DEVNULL)
        before, until = tickets(folder), time.time() + 120
        while driver.poll() is None and tickets(folder) == before and time.time() < until and not noted(folder):
            time.sleep(0.01)        # until it works: it has imported everything, and launches or watches
        time.sleep(rng.uniform(0, 0.8))
        if driver.poll() is not None:
            break
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        kills += 1
    home = study(folder, text)
    ends = drive_jobs(home, jobs(), "pilot", SILENT, 3)
    started = [json.loads(x) for x in log.read_text().splitlines()]
    keys = [x["key"] for x in started]
    assert len(set(keys)) == len(keys), "an attempt was started twice"
    assert kills >= KILLS - 5 and [e["reason"] for e in ends] == ["spent"] * RUNS
    assert all(lines(home.runs / j.name) == lines(whole.runs / j.name) for j in jobs())
    assert sorted(keys) == sorted(f"study/{j.name}/0" for j in jobs())      # the processes outlive their driver


def tickets(folder):
    return len(list(folder.glob("runs/*/attempts/*/ticket.json")))


def noted(folder):
    """Whether a driver has noted a clock in the last second."""
    clocks = [p.stat().st_mtime for p in folder.glob("runs/*/attempts/*/clock.json")]
    return bool(clocks) and max(clocks) > time.time() - 1
