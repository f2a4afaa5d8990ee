"""Kills runs, for real: a run is forked, killed with SIGKILL at a named point or after a delay, and resumed.

    python tests/kill9.py --out experiments/results/kill9.json      # 50 random instants and every named point
    python tests/kill9.py --dialogues --instants 25 --out experiments/results/agents_kill9.json
    python tests/kill9.py --stale --instants 24 --out experiments/results/overlap_kill9.json

A killed and resumed run must leave the same metrics, journal, samples and weights as one never killed. Each kill
leaves a witness of where it landed. The named points are of `JOB`; the random instants go round `CONFIGURATIONS`.
Every seventh run is killed again while it resumes. Runs whose rollouts may be steps old (`STALE`) sample and learn at
the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isocost.runs import record
from isocost.runs.arm import Arm
from isocost.runs.driver import Driver, Workload
from isocost.runs.files import Stream, read_json, read_lines
from isocost.runs.job import Job
from isocost.runs.record import RunRecord
from isocost.runs.run import run
from isocost.worlds.setting import Setting

COMPARED = ("metrics.jsonl", "journal.jsonl", "samples.jsonl")
AGAIN = 7       # every so many runs one is killed in its second life too
JOB = Job(arm=Arm(n=4, B=4, lr=1e-4), name="killed", setting=Setting.of(data="sums:base=easy,count=400", held_out=0.4),
          method="isohard", seed=3, budget={"rollouts": 640}, points=(64, 160, 320), save_every=4, export=True)
FASTER = JOB.arm.but(lr=1e-3)
OWN_REWARD = "own_reward.py:reward"     # these two are written into the folder in which the runs are made
PROBLEMS = "problems.parquet"


def _job(method: str, *, setting: Mapping[str, Any] | None = None, **changes: Any) -> Job:
    """`JOB` with another method and what else differs."""
    return replace(JOB, method=method, setting=JOB.setting.but(**(setting or {})), **changes)


SAMPLED = {"data": "sums:work=1,count=80", "max_tokens": 14, "samples": 2, "held_out": 0.2}
CONFIGURATIONS: dict[str, Job] = {
    "isohard": JOB,
    "april: groups left unfinished": _job("april", save_every=2),
    "dapo: refilled batches": _job("dapo", save_every=3),
    "dots: replayed groups, chosen problems": _job("dots", save_every=2),
    "own reward file, in a worker process": _job("grpo", setting={"verifier": OWN_REWARD}, budget={"rollouts": 256}),
    "fbc: a shelf of solved problems": _job("fbc", save_every=3),
    "tti: a growing horizon": _job("tti", save_every=5),
    "scaler: a stateful curriculum": _job("scaler", save_every=1, budget={"rollouts": 320}),
    "vade: problems chosen by their history": _job("vade", save_every=7),
    "promptgdro: weights of problems that move": _job("promptgdro", save_every=6),
    "int_: attempts that continue others": _job("int_", save_every=2, budget={"rollouts": 320}),
    "rc: two calls a rollout": _job("rc", save_every=2, budget={"rollouts": 320}),
    "gdpo: a reward of two parts": _job("gdpo", save_every=4),
    "mrt: rewards of prefixes": _job("mrt", save_every=2, budget={"rollouts": 320}),
    "ppo: a critic": _job("ppo", save_every=4, budget={"rollouts": 160}, points=(64,)),
    "grpo in torch": _job("grpo", setting={"kernels": "torch"}, budget={"rollouts": 320}),
    "grpo in bf16": _job("grpo", setting={"dtype": "bf16"}, budget={"rollouts": 320}),
    "cispo in bf16 and torch": _job("cispo", setting={"dtype": "bf16", "kernels": "torch"}, budget={"rollouts": 256}),
    "sampled evaluations, checkpoints there only": _job("drgrpo", setting=SAMPLED, save_every=0,
                                                        budget={"rollouts": 320}),
    "problems from Parquet, sampling cut at top-p": _job("rloo", save_every=3, setting={
        "data": PROBLEMS if find_spec("pyarrow") else JOB.setting.problems.data, "top_p": 0.9, "temperature": 0.8}),
}
NOISY = {"model": "tiny-agents", "env": "rooms:slip=0.2", "data": "rooms:slip=0.2", "max_tokens": 2, "max_turns": 8,
         "samples": 1, "held_out": 0.05}
HARNESS = f"harness:{Path(__file__).parent / 'noisy_harness.py'}"
DIALOGUES: dict[str, Job] = {      # environments with luck; the second resumes dialogues in a later wave
    "grpo in noisy rooms": _job("grpo", setting=NOISY, budget={"env-steps": 700}, points=(64,), save_every=2,
                                arm=FASTER),
    "april in noisy rooms": _job("april", setting=NOISY, budget={"env-steps": 700}, points=(64,), save_every=2,
                                 arm=FASTER),
    "tti in noisy rooms": _job("tti", setting=NOISY, budget={"env-steps": 700}, points=(64,), save_every=3, arm=FASTER,
                               sets={"pace.first": "2"}),
    "grpo with a noisy harness": _job("grpo", setting={**NOISY, "env": HARNESS, "data": HARNESS},
                                      budget={"env-steps": 700}, points=(64,), save_every=2, arm=FASTER),
}
STALE: dict[str, Job] = {
    "areal: rollouts up to 4 steps old": _job("areal", save_every=3),
    "grpo, rollouts up to 2 steps old": _job("grpo", save_every=2, sets={"max_age": "2"}),
    "dapo: refilled batches, one step old": _job("dapo", save_every=3, sets={"max_age": "1"}),
    "grpo one step old, rollouts of several bursts": _job("grpo", setting=SAMPLED, save_every=1, sets={"max_age": "1"},
                                                          budget={"rollouts": 320}),
}


def write_files(folder: Path) -> None:
    """A reward of the user's own, and problems as Parquet where pyarrow is there."""
    file, _, name = OWN_REWARD.partition(":")
    (folder / file).write_text(
        f"def {name}(completions, answer, **_):\n"
        "    return [0.5 * c.startswith(str(a)[:1]) + 0.5 * (c.strip() == str(a)) for c, a in "
        "zip(completions, answer)]\n"
    )
    if find_spec("pyarrow"):
        import pyarrow
        from pyarrow import parquet

        sums = [(a, b) for a in range(20, 60) for b in (11, 17, 23, 38, 56)]
        columns = {"prompt": [f"{a}+{b}=" for a, b in sums], "answer": [str(a + b) for a, b in sums]}
        parquet.write_table(pyarrow.table(columns), folder / PROBLEMS)


def placed(job: Job, folder: Path) -> Job:
    """The same job with its files named where they are."""
    s = job.setting
    if s.problems.verifier == OWN_REWARD:
        s = s.but(verifier=f"{folder}/{OWN_REWARD}")
    return replace(job, setting=s.but(data=f"{folder}/{PROBLEMS}") if s.problems.data == PROBLEMS else s)


def dies_at_step(job: Job, folder: Path, step: int, look: Callable[[Workload], object] = bool) -> list[object]:
    """Runs a job in this process until that step is about to be written, and lets it die there.

    What was done since its last checkpoint is lost. Returns what `look` saw of the run at each step.
    """
    write, seen = Driver._write, []

    def dies(self: Driver, line: object) -> None:
        seen.append(look(self.workload))
        if len(seen) == step:
            raise KeyboardInterrupt
        write(self, line)

    Driver._write = dies
    try:
        asyncio.run(run(job, folder))
    except KeyboardInterrupt:
        return seen
    finally:
        Driver._write = write
    raise AssertionError(f"the run ended before step {step}")


def die(path: Path, where: str) -> None:
    (path / "witness").write_text(where)
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str, nth: int, path: Path) -> None:
    """Make this process kill itself the nth time it comes to a named point."""
    left = [nth]

    def due() -> bool:
        left[0] -= 1
        return left[0] == 0

    write, save, evaluate = Stream.write, record.save_tensors, Driver._evaluate
    rename, paid = os.rename, RunRecord.paid

    def torn_write(self: Stream, *lines: object) -> None:
        if self.path.name == "metrics.jsonl" and due():
            os.write(self._file, json.dumps(lines[0]).encode()[:20])
            die(path, f"half a line into {self.path.name}")
        write(self, *lines)

    def torn_save(tensors: dict, file: Path) -> None:
        save(tensors, file)
        if due():
            os.truncate(file, 100)
            die(path, f"half of {file.parent.name}/{file.name}")

    def rename_(a: Path, b: Path) -> None:
        if point == "before-rename" and due():
            die(path, f"before renaming {Path(b).name}")
        rename(a, b)
        if point == "after-rename" and due():
            die(path, f"after renaming {Path(b).name}")

    async def evaluate_(self: Driver) -> None:
        if point == "before-evaluation" and due():
            die(path, f"before the evaluation at step {self.workload.step}")
        await evaluate(self)
        if point == "after-evaluation" and due():
            die(path, f"after the evaluation at step {self.workload.step}, before its checkpoint")

    def paid_(self: RunRecord, account: str, cost: object) -> None:
        paid(self, account, cost)
        if account == "train" and due():
            die(path, "in the middle of a step, something charged and nothing trained")

    if point == "append":
        Stream.write = torn_write
    elif point == "checkpoint":
        record.save_tensors = torn_save
    elif point.endswith("rename"):
        os.rename = rename_
    elif point.endswith("evaluation"):
        Driver._evaluate = evaluate_
    elif point == "step":
        RunRecord.paid = paid_


POINTS = (
    ("append", 12),
    ("checkpoint", 1),
    ("checkpoint", 5),
    ("before-rename", 4),
    ("after-rename", 4),
    ("before-evaluation", 3),
    ("after-evaluation", 3),
    ("step", 1),
    ("step", 40),
)


def forked(act: Callable[[], object], delay: float | None = None) -> int:
    """Do this in a process of its own, killed after the delay; returns how the process ended (-9: killed)."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # whatever happens, the child never goes on as its parent
    if delay is not None:
        time.sleep(delay)       # the instant is drawn at random: there is no condition to wait for
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def life(job: Job, path: Path, prepare: Callable[[], None] = lambda: None, delay: float | None = None) -> int:
    """One life of a run, in a process of its own; returns how it ended (-9: killed)."""

    def live() -> None:
        prepare()
        asyncio.run(run(job, path))

    return forked(live, delay)


def left_by(path: Path) -> dict[str, bytes]:
    """Everything that must be equal byte for byte."""
    streams = {name: (path / name).read_bytes() for name in COMPARED}
    return streams | {f"final/{p.name}": p.read_bytes() for p in sorted((path / "final").iterdir())}


def standing(path: Path) -> str:
    """Where a kill at a random instant landed, as far as the disk tells."""
    steps = sum("reward" in x for x in read_lines(path / "metrics.jsonl"))
    last = ([p.name for p in sorted((path / "checkpoints").glob("*"))] if (path / "checkpoints").exists() else [])
    return f"{steps} steps on disk, checkpoints {', '.join(last) or 'none'}"


def check(job: Job, path: Path, where: str) -> dict[str, Any]:
    """Finish the run. What it lost, and whether every step is there once and every rollout has one fate."""
    assert life(job, path) == 0, f"{path} could not go on after {where}"
    end = read_json(path / "end.json")
    fates, paid = sum(end["fates"].values()), sum(b["rollouts"] for b in end["bill"].values())
    assert fates == paid, f"{path}: {fates} rollouts have a fate and {paid} are on the bill, after {where}"
    steps = [x["step"] for x in read_lines(path / "metrics.jsonl") if "reward" in x]
    assert steps == list(range(end["steps"])), f"{path}: steps {steps} after {where}"
    return {"where": where, "lost_rollouts": end["bill"].get("lost", {}).get("rollouts", 0)}


def compare(path: Path, whole: Mapping[str, bytes]) -> dict[str, Any]:
    """A finished run beside the one that was never killed."""
    found = left_by(path)
    different = [name for name in {**whole, **found} if found.get(name) != whole.get(name)]
    return {"equal": not different, "different": different}


def killed(job: Job, path: Path, delay: float) -> str:
    """Kill a run after a delay, sooner if it ends before; returns where the kill landed."""
    while life(job, path, delay=delay) != -signal.SIGKILL:
        for left in sorted(path.rglob("*"), reverse=True):      # it had ended: once more from the start
            left.rmdir() if left.is_dir() else left.unlink()
        delay /= 2
    return f"after {delay:.3f} s: {standing(path)}"


def at_named_points(folder: Path, whole: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """`JOB`, killed at each named point and resumed."""
    results = []
    for point, nth in POINTS:
        path = folder / f"{point}-{nth}"
        status = life(JOB, path, lambda path=path, point=point, nth=nth: arm(point, nth, path))
        assert status == -signal.SIGKILL, f"{point} {nth} was not reached"
        where = (path / "witness").read_text()
        results.append({"point": point, "kills": 1, **check(JOB, path, where), **compare(path, whole)})
    return results


def at_random_instants(
    jobs: Mapping[str, Job], folder: Path, rng: np.random.Generator, instants: int, seconds: Mapping[str, float],
    whole: Callable[[str], Mapping[str, bytes]],
) -> list[dict[str, Any]]:
    """So many runs of these jobs in turn, each killed at a random instant of its `seconds` and resumed."""
    results = []
    for i in range(instants):
        name = list(jobs)[i % len(jobs)]
        path = folder / f"instant-{i}-{len(jobs)}"
        first, second = rng.uniform(0.0, seconds[name], size=2)
        where, kills = killed(jobs[name], path, float(first)), 1
        if i % AGAIN == AGAIN - 1 and life(jobs[name], path, delay=float(second)) == -signal.SIGKILL:
            where, kills = f"{where}; again after {second:.3f} s: {standing(path)}", 2
        found = check(jobs[name], path, where)
        results.append({"configuration": name, "kills": kills, **found, **compare(path, whole(name))})
    return results


def main(instants: int, seed: int, folder: Path) -> dict[str, Any]:
    """Every named point of `JOB`, so many random instants, and a tenth as many of `STALE`."""
    torch.set_num_threads(1)
    assert forked(lambda: write_files(folder)) == 0
    jobs = {name: placed(job, folder) for name, job in list(CONFIGURATIONS.items())[: max(instants, 1)]}
    stale = dict(list(STALE.items())[: instants // 10])
    wholes, seconds = {}, {}
    for name, job in {**jobs, **stale}.items():
        path, began = folder / f"whole-{len(seconds)}", time.perf_counter()
        assert life(job, path) == 0, f"{name} does not run"
        wholes[name], seconds[name] = left_by(path), time.perf_counter() - began
    rng = np.random.default_rng(seed)
    first = next(iter(jobs))
    named = at_named_points(folder, wholes[first])
    random = at_random_instants(jobs, folder, rng, instants, seconds, wholes.__getitem__)
    late = at_random_instants(stale, folder / "late", rng, instants // 10, seconds, wholes.__getitem__)
    results = [*named, *random]
    return {
        "killed": sum(r["kills"] for r in results),
        "resumed": len(results),
        "equal": sum(r["equal"] for r in results),
        "configurations": len({r["configuration"] for r in random}),
        "at_random_instants": sum(r["kills"] for r in random),
        "stale_killed": sum(r["kills"] for r in late),
        "stale_equal": sum(r["equal"] for r in late),
        "seed": seed,
        "seconds_whole": {name: round(x, 2) for name, x in seconds.items()},
        "results": results,
        "stale": late,
    }


def only(some: Mapping[str, Job], instants: int, seed: int, folder: Path) -> dict[str, Any]:
    """So many random instants of these runs, in turn."""
    torch.set_num_threads(1)
    jobs = dict(list(some.items())[: max(instants, 1)])
    wholes, seconds = {}, {}
    for name, job in jobs.items():
        path, began = folder / f"whole-{len(seconds)}", time.perf_counter()
        assert life(job, path) == 0, f"{name} does not run"
        wholes[name], seconds[name] = left_by(path), time.perf_counter() - began
    results = at_random_instants(jobs, folder, np.random.default_rng(seed), instants, seconds, wholes.__getitem__)
    return {
        "killed": sum(r["kills"] for r in results), "resumed": len(results), "equal": sum(r["equal"] for r in results),
        "configurations": len(jobs), "seed": seed,
        "seconds_whole": {name: round(x, 2) for name, x in seconds.items()}, "results": results,
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--instants", type=int, default=50)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path)
    options.add_argument("--dialogues", action="store_true", help="runs with environments only")
    options.add_argument("--stale", action="store_true", help="runs whose rollouts may be steps old only")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        some = DIALOGUES if asked.dialogues else STALE if asked.stale else None
        said = (partial(only, some) if some else main)(asked.instants, asked.seed, Path(folder))
    text = json.dumps(said, indent=1)
    if asked.out:
        asked.out.write_text(text + "\n")
    print(text)
    sys.exit(said["equal"] != said["resumed"] or said.get("stale_equal", 0) != len(said.get("stale", ())))
