"""Kills runs, for real: a run is forked, killed with SIGKILL at a named point or after a delay, and resumed.

    python tests/kill9.py --out experiments/results/kill9.json      # 25 random instants and every named point

A killed and resumed run must leave the same metrics, journal, samples and weights as one never killed. Each kill
leaves a witness of where it landed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from isocost.runs import record as records
from isocost.runs.record import RunRecord, Stream, read_json, read_lines
from isocost.runs.run import Job, _Run, run
from isocost.worlds.setting import Setting

COMPARED = ("metrics.jsonl", "journal.jsonl", "samples.jsonl")
JOB = Job(
    name="killed",
    setting=Setting(data="sums:base=easy,count=400", held_out=0.4),
    method="isohard",
    seed=3,
    budget={"rollouts": 640},
    n=4,
    B=4,
    lr=1e-4,
    points=(64, 160, 320),
    save_every=4,
    export=True,
)


def dies_at_step(job: Job, folder: Path, step: int, look: Callable[[_Run], object] = bool) -> list[object]:
    """Runs a job in this process until that step is about to be written, and lets it die there.

    What was done since its last checkpoint is lost. Returns what `look` saw of the run at each step.
    """
    write, seen = _Run._write, []

    def dies(self: _Run, done: object) -> None:
        seen.append(look(self))
        if len(seen) == step:
            raise KeyboardInterrupt
        write(self, done)

    _Run._write = dies
    try:
        asyncio.run(run(job, folder))
    except KeyboardInterrupt:
        return seen
    finally:
        _Run._write = write
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

    write, save, evaluate = Stream.write, records.save_tensors, _Run._evaluate
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

    async def evaluate_(self: _Run) -> None:
        if point == "before-evaluation" and due():
            die(path, f"before the evaluation at step {self.ledger.step}")
        await evaluate(self)
        if point == "after-evaluation" and due():
            die(path, f"after the evaluation at step {self.ledger.step}, before its checkpoint")

    def paid_(self: RunRecord, account: str, cost: object) -> None:
        paid(self, account, cost)
        if account == "train" and due():
            die(path, "in the middle of a step, something charged and nothing trained")

    if point == "append":
        Stream.write = torn_write
    elif point == "checkpoint":
        records.save_tensors = torn_save
    elif point.endswith("rename"):
        os.rename = rename_
    elif point.endswith("evaluation"):
        _Run._evaluate = evaluate_
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


def life(path: Path, prepare: Callable[[], None] = lambda: None, delay: float | None = None) -> int:
    """One life of the run, in a process of its own; returns how it ended (-9: killed)."""
    pid = os.fork()
    if pid == 0:
        try:
            prepare()
            asyncio.run(run(JOB, path))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # whatever happens, the child never goes on as its parent
    if delay is not None:
        time.sleep(delay)
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def left_by(path: Path) -> dict[str, bytes]:
    """Everything that must be equal byte for byte."""
    streams = {name: (path / name).read_bytes() for name in COMPARED}
    return streams | {f"final/{p.name}": p.read_bytes() for p in sorted((path / "final").iterdir())}


def standing(path: Path) -> str:
    """Where a kill at a random instant landed, as far as the disk tells."""
    steps = sum("reward" in x for x in read_lines(path / "metrics.jsonl"))
    last = (
        [p.name for p in sorted((path / "checkpoints").glob("*"))] if (path / "checkpoints").exists() else []
    )
    return f"{steps} steps on disk, checkpoints {', '.join(last) or 'none'}"


def check(path: Path, whole: dict[str, bytes], where: str) -> dict[str, object]:
    """Finish the run and hold it against the one never killed."""
    assert life(path) == 0, f"{path} could not go on after {where}"
    found, end = left_by(path), read_json(path / "end.json")
    different = [name for name in whole if found.get(name) != whole[name]]
    lost = end["bill"].get("lost", {}).get("rollouts", 0)
    assert sum(end["fates"].values()) == sum(b["rollouts"] for b in end["bill"].values()), (
        "fates do not sum to the meter"
    )
    return {"where": where, "equal": not different, "different": different, "lost_rollouts": lost}


def main(instants: int, seed: int, home: Path) -> dict[str, object]:
    torch.set_num_threads(1)
    began = time.perf_counter()
    assert life(home / "whole") == 0
    took, whole = time.perf_counter() - began, left_by(home / "whole")
    results = []
    for point, nth in POINTS:
        path = home / f"{point}-{nth}"
        assert life(path, lambda path=path, point=point, nth=nth: arm(point, nth, path)) == -signal.SIGKILL
        where = (path / "witness").read_text()
        results.append({"point": point, **check(path, whole, where)})
    delays = np.random.default_rng(seed).uniform(0.0, took, size=instants)
    for i, delay in enumerate(delays):
        path = home / f"instant-{i}"
        status = life(path, delay=float(delay))
        where = standing(path) if status == -signal.SIGKILL else "it had ended already"
        results.append({"point": f"after {delay:.3f} s", **check(path, whole, where)})
    return {
        "killed": len(results),
        "equal": sum(bool(r["equal"]) for r in results),
        "seconds_whole": round(took, 2),
        "results": results,
    }


if __name__ == "__main__":
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--instants", type=int, default=25)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        said = main(asked.instants, asked.seed, Path(folder))
    text = json.dumps(said, indent=1)
    if asked.out:
        asked.out.write_text(text + "\n")
    print(text)
