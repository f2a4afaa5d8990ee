"""A driver that is killed again and again: no run is submitted twice, and every record is that of one machine."""

import json
import os
import random
import signal
import sys
import time

import pytest

from isocost.steps.events import SILENT
from isocost.steps.outside.drive import drive_jobs
from test_drive import OPTIONS, SCRIPT, command, job, lines, study

KILLS, RUNS = 50, 6
COUNTED = """
import json, os, runpy, sys
with open({log!r}, "a") as f:
    f.write(json.dumps({{"key": os.environ["ISOCOST_KEY"], "pid": os.getpid()}}) + "\\n")
sys.argv[0] = {script!r}
runpy.run_path({script!r}, run_name="__main__")
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_at_fifty_instants_submits_no_run_twice(tmp_path):
    """Every process notes its start. A driver is forked and killed (kill -9) within 0.8 seconds, fifty times; the
    processes outlive it, and the next one takes them over."""
    jobs = [job(f"pilot-n4-s{k}", seed=k) for k in range(RUNS)]
    whole = study(tmp_path / "whole", command())
    drive_jobs(whole, jobs, "pilot", SILENT, 2)
    log, trainer = tmp_path / "started.jsonl", tmp_path / "trainer.py"
    trainer.write_text(COUNTED.format(log=str(log), script=str(SCRIPT)))
    home = study(tmp_path / "study", f"cmd: {sys.executable} {trainer} {OPTIONS} --pause 1.5")
    rng, kills = random.Random(1), 0
    while kills < KILLS:
        driver = os.fork()
        if not driver:
            drive_jobs(home, jobs, "pilot", SILENT, 3)
            os._exit(0)
        time.sleep(rng.uniform(0, 0.8))
        os.kill(driver, signal.SIGKILL)
        _, status = os.waitpid(driver, 0)
        if os.WIFEXITED(status):
            break
        kills += 1
    ends = drive_jobs(home, jobs, "pilot", SILENT, 3)
    keys = [json.loads(x)["key"] for x in log.read_text().splitlines()]
    assert kills == KILLS and [e["reason"] for e in ends] == ["spent"] * RUNS
    assert all(lines(home.runs / j.name) == lines(whole.runs / j.name) for j in jobs)
    assert sorted(keys) == [f"study/{j.name}/0" for j in jobs]
