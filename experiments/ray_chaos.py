"""Do runs on a cluster survive its nodes? Nodes of a Ray cluster are killed while it executes the runs of a study.

    python experiments/ray_chaos.py --out experiments/results/ray_chaos.json       # Ray: pip install -e '.[cluster]'

Design, fixed before the first round:

- Thirty runs: GRPO on the built-in sums with n = 2, 4, 8, 16, 32 and six seeds, 3,072 rollouts each, a checkpoint every
  eight updates. Once on this machine, in processes of its own; then once per round on a cluster of four nodes with one
  processor each (`ray.cluster_utils.Cluster`: every node has its own scheduler and worker processes).
- Rounds of kind `kill`: every 4 to 8 seconds (uniform) a node drawn at random is killed with SIGKILL, its scheduler and
  with it its workers, and an empty node is added. At least 50 kills over all rounds.
- One round of kind `partition`: instead of a kill, a node's scheduler is stopped (SIGSTOP) until the cluster takes the
  node for dead, which here takes about four seconds. Its workers go on and write to the runs' folders, while the same
  runs are started again elsewhere. The node is killed when the next one is stopped.
- The claim of a round holds if every run ends, if its metrics, journal, samples and final weights equal those of this
  machine byte for byte, and if every rollout on the bill has one fate. Reported besides: attempts, and the share of the
  bill that was computed again (account `lost`).

The record stopped after two of its rounds, when a new node did not start within 30 s on a machine with a load of 30
(Ray allows no more). Such a node is started again since, and the same command continues the record.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")       # Ray's default, 15, gives way to all else on a busy machine

from isocost.runs.attempts import FILE
from isocost.runs.files import read_lines
from isocost.runs.job import Job
from isocost.runs.launch.site import HERE, Site
from isocost.worlds.setting import Setting

NODES = 4
SIZES = (2, 4, 8, 16, 32)
BATCH = 8
EQUAL = ("metrics.jsonl", "journal.jsonl", "samples.jsonl", "final/model.safetensors")
APART = (4.0, 8.0)      # seconds between two kills
HEALTH = {      # how soon the cluster takes a silent node for dead, in milliseconds and missed answers
    "health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
KILL, PARTITION = "kill", "partition"


def jobs(runs: int, rollouts: int) -> list[Job]:
    """The study's runs: every n in turn, then the next seed."""
    return [
        Job(name=f"n{n}-s{seed}", setting=Setting(data="sums:level=1", device="cpu"), method="grpo", seed=seed,
            budget={"rollouts": rollouts}, n=n, B=BATCH, lr=8.5e-5 * (n * BATCH / 256) ** 0.37,
            points=(rollouts // 4, rollouts // 2), save_every=8, export=True)
        for i in range(runs) for n, seed in [(SIZES[i % len(SIZES)], i // len(SIZES))]
    ]


def digests(run: Path) -> dict[str, str]:
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in EQUAL}


def started(start: Callable[[], Any], times: int = 10) -> Any:
    """A node or cluster, started again if it takes too long on a busy machine."""
    for left in reversed(range(times)):
        try:
            return start()
        except Exception as e:
            if not left or "timed out during startup" not in str(e):
                raise
            print("a node did not start in time: it is started again", flush=True)
    raise AssertionError


class Nodes:
    """A simulated cluster, whose nodes are killed or stopped from time to time (`due`)."""

    def __init__(self, kind: str, most: int, seed: int):
        from ray.cluster_utils import Cluster

        self.kind, self.most, self.rng = kind, most, random.Random(seed)
        head = {"num_cpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
        whole = {"initialize_head": True, "head_node_args": {**head, "_system_config": HEALTH}}
        self.cluster = started(lambda: Cluster(**whole))
        self.nodes = [self._added() for _ in range(NODES)]
        self.stopped: list[Any] = []
        self.began = time.monotonic()
        self.at: list[float] = []       # seconds of each kill
        self.next = self.began + self._pause()

    def _added(self) -> Any:
        return started(lambda: self.cluster.add_node(num_cpus=1, object_store_memory=80_000_000))

    def _pause(self) -> float:
        return self.rng.uniform(*APART)

    def due(self) -> None:
        """Kill or stop a node, if it is time."""
        if time.monotonic() < self.next or len(self.at) == self.most:
            return
        victim = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        self.at.append(round(time.monotonic() - self.began, 1))
        if self.kind == KILL:
            self.cluster.remove_node(victim, allow_graceful=False)
        else:
            self._kill_stopped()
            [raylet] = victim.all_processes["raylet"]
            os.kill(raylet.process.pid, signal.SIGSTOP)
            self.stopped.append(victim)
        self.nodes.append(self._added())
        self.next = time.monotonic() + self._pause() * (1 if self.kind == KILL else 2)

    def _kill_stopped(self) -> None:
        while self.stopped:
            node = self.stopped.pop()
            [raylet] = node.all_processes["raylet"]
            os.kill(raylet.process.pid, signal.SIGCONT)
            self.cluster.remove_node(node, allow_graceful=False)

    def close(self) -> None:
        self._kill_stopped()
        self.cluster.shutdown()


def a_round(
    runs: Sequence[Job], folder: Path, whole: Mapping[str, Mapping[str, str]], kind: str, kills: int, seed: int
) -> dict[str, Any]:
    """The runs on a cluster, with at most so many kills; compared with those of one machine, by their digests."""
    nodes = Nodes(kind, kills, seed)
    try:
        ends = Site("ray", nodes.cluster.address).run_all(runs, folder, workers=None, watch=nodes.due)
        seconds = time.monotonic() - nodes.began
    finally:
        nodes.close()
    found = {j.name: digests(folder / j.name) for j in runs}
    tries = {j.name: read_lines(folder / j.name / FILE) for j in runs}
    again = Counter(line["after"].partition(":")[0] for lines in tries.values() for line in lines[1:])
    accounts: Counter[str] = Counter()
    for end in ends:
        accounts.update({account: cost["rollouts"] for account, cost in end["bill"].items()})
    fates: Counter[str] = Counter()
    for end in ends:
        fates.update(end["fates"])
    billed, lost = sum(accounts.values()), accounts["lost"]
    return {
        "kind": kind,
        "seed": seed,
        "kills": len(nodes.at),
        "killed_at": nodes.at,
        "seconds": round(seconds, 1),
        "runs": len(runs),
        "ended": sum(end["reason"] == "spent" for end in ends),
        "equal": sum(found[j.name] == whole[j.name] for j in runs),
        "different": {j.name: [k for k in EQUAL if found[j.name][k] != whole[j.name][k]] for j in runs
                      if found[j.name] != whole[j.name]},
        "attempts": sum(map(len, tries.values())),
        "again": dict(sorted(again.items())),
        "most_attempts": max(map(len, tries.values())),
        "bill": dict(accounts),
        "fates": dict(fates),
        "billed": billed,
        "fated": sum(fates.values()),
        "lost": lost,
        "lost_share": lost / billed,
        "each": [{"run": j.name, "attempts": len(tries[j.name]), "lost": e["bill"].get("lost", {}).get("rollouts", 0),
                  "billed": sum(x["rollouts"] for x in e["bill"].values()), "fated": sum(e["fates"].values()),
                  "seconds": e["seconds"]} for j, e in zip(runs, ends, strict=True)],
    }


def main(asked: argparse.Namespace, folder: Path, keep: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """One machine's runs, then the rounds that the record lacks; `keep` receives the record after each."""
    import ray

    runs, began = jobs(asked.runs, asked.rollouts), time.monotonic()
    ends = HERE.run_all(runs, folder / "one", workers=asked.workers)
    whole = {j.name: digests(folder / "one" / j.name) for j in runs}
    earlier = json.loads(asked.out.read_text()) if asked.out.exists() else {"rounds": []}
    record: dict[str, Any] = {
        "ray": ray.__version__,
        "python": platform.python_version(),
        "nodes": NODES,
        "apart": APART,
        "command": " ".join(["python", "experiments/ray_chaos.py", *sys.argv[1:]]),
        "runs": asked.runs,
        "rollouts": asked.rollouts,
        "one_machine": {
            "workers": asked.workers, "seconds": round(time.monotonic() - began, 1),
            "each": [{"run": j.name, "n": j.n, "seconds": e["seconds"]} for j, e in zip(runs, ends, strict=True)],
        },
        **earlier,
    }
    kinds = [*[KILL] * asked.rounds, *[PARTITION] * asked.partitions]
    for i, kind in list(enumerate(kinds))[len(earlier["rounds"]):]:
        found = a_round(runs, folder / f"round-{i}", whole, kind, asked.kills, asked.seed + i)
        record["rounds"].append(found)
        killed = [r for r in record["rounds"] if r["kind"] == KILL]
        record["kills"] = sum(r["kills"] for r in killed)
        record["equal"], record["of"] = (sum(r[k] for r in record["rounds"]) for k in ("equal", "runs"))
        keep(record)
        print(f"round {i} ({kind}): {found['kills']} kills in {found['seconds']} s, "
              f"{found['equal']} of {found['runs']} equal, {found['attempts']} attempts, "
              f"billed {found['billed']:,}, fated {found['fated']:,}, "
              f"lost {found['lost_share']:.2%}", flush=True)
    return record


def holds(record: Mapping[str, Any]) -> bool:
    """Whether the claim holds in every round."""
    return all(r["ended"] == r["equal"] == r["runs"] and r["billed"] == r["fated"]
               and all(x["billed"] == x["fated"] for x in r["each"]) for r in record["rounds"])


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=30)
    options.add_argument("--rollouts", type=int, default=3072, help="of each run")
    options.add_argument("--rounds", type=int, default=4, help="of kind kill")
    options.add_argument("--partitions", type=int, default=1, help="rounds of kind partition")
    options.add_argument("--kills", type=int, default=1000, help="at most, per round")
    options.add_argument("--workers", type=int, default=2, help="runs side by side on one machine")
    options.add_argument("--seed", type=int, default=0, help="of the instants and the nodes")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--home", type=Path, help="keep the runs here: those that ended are not run again")
    given = options.parse_args()

    def keep(record: Mapping[str, Any]) -> None:
        given.out.write_text(json.dumps(record, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as home:
        said = main(given, given.home or Path(home), keep)
    sys.exit(not holds(said))
