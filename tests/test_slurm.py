"""Runs of a user's trainer as jobs of a real Slurm: requeued, killed, and with a node that dies."""

import random
import time
from dataclasses import replace

import pytest

import slurm
from isocost.runs.files import read_json
from isocost.steps.events import SILENT
from isocost.steps.outside.drive import drive_jobs
from test_drive import Each, command, job, lines, study

RUNS, FAULTS, EVERY = 12, 9, 4.0    # seconds between two faults


@pytest.mark.slow
@pytest.mark.skipif(slurm.ROOT is None, reason="no Slurm (BENCH_SLURM_ROOT)")
def test_twelve_runs_through_requeues_kills_and_a_node_that_dies(tmp_path):
    """Every run ends as on one machine, byte for byte; what was logged and lost is charged, and nobody submits by hand.

    Slurm forgets a job five seconds after its end here (MinJobAge), and does not start a killed one again.
    """
    jobs = [job(f"pilot-n4-s{k}", seed=k, M=96) for k in range(RUNS)]
    jobs = [replace(j, points=tuple(16 * u for u in range(8, 97, 8))) for j in jobs]
    whole = study(tmp_path / "whole", command())
    drive_jobs(whole, jobs, "pilot", SILENT, 2)
    with slurm.cluster(tmp_path / "slurm") as cluster:
        home = study(tmp_path / "study", command("--pause", "0.15"))
        home.write("study.json", home.asked | {"launch": "slurm"})
        rng, faults, last = random.Random(1), [], [time.time()]

        def harm():
            running = cluster.running() if time.time() - last[0] > EVERY and len(faults) < FAULTS else []
            if not running:
                return
            last[0] = time.time()
            number, node = rng.choice(running)
            if len(faults) == 3:
                cluster.lose(node, number)
                faults.append(("a node died", number))
            elif len(faults) == 5:
                cluster.kill(cluster.processes(f"SLURM_JOB_ID={number}\0".encode()))
                faults.append(("killed", number))
            elif not cluster.said("scontrol", "requeue", number):
                faults.append(("requeued", number))

        began = time.time()
        ends = drive_jobs(home, jobs, "pilot", Each(harm), 4)
        print(f"{time.time() - began:.0f} s; {faults}")
        assert not cluster.said("squeue", "-h", "-t", "RUNNING")
    assert [e["reason"] for e in ends] == ["spent"] * RUNS
    same = [lines(home.runs / j.name) == lines(whole.runs / j.name) for j in jobs]
    assert same == [True] * RUNS
    assert sum(kind == "requeued" for kind, _ in faults) >= 7 and len(faults) == FAULTS
    attempts = [len(list((home.runs / j.name).glob("attempts/*"))) for j in jobs]
    tickets = [read_json(t)["job"] for t in home.runs.glob("*/attempts/*/ticket.json")]
    assert len(set(tickets)) == len(tickets) == sum(attempts) == RUNS + FAULTS
    lost = sum(e["bill"].get("lost", {}).get("updates", 0) for e in ends)
    print(f"{sum(attempts)} attempts, {lost} updates lost of {RUNS * 96}")
    assert 0 < lost <= FAULTS * 8
