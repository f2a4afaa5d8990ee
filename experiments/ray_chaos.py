"""Do runs on a cluster survive its nodes? Nodes of a Ray cluster are killed while it executes the runs of a study.

    python experiments/ray_chaos.py --out experiments/results/ray_chaos.json       # Ray: pip install -e '.[cluster]'

Design, fixed before the first round:

- Thirty runs: GRPO on the built-in sums with n = 2, 4, 8, 16, 32 and six seeds, 3,072 rollouts each, a checkpoint every
  eight updates. Once on this machine, in processes of its own; then once per round on a cluster of four nodes with one
  processor each (`ray.cluster_utils.Cluster`: every node has its own scheduler and worker processes). `--at-once` runs
  are in flight, as many as the machine has processors: some nodes have no run.
- Rounds: every 4 to 8 seconds (uniform) a node drawn at random is killed with SIGKILL, its scheduler and with it its
  workers, and an empty node is added. As many rounds as 50 kills take. Every kill records the runs that the node had.
- The claim of a round holds if every run ends, if its metrics, journal, samples and final weights equal those of this
  machine byte for byte, and if every rollout on the bill has one fate. Reported besides: attempts, and the share of the
  bill that was computed again (account `lost`).

Commit 3dc66dd6 has the rounds in which a node stops answering (`ray_silent.json`). A node that does not start within
the 30 s that Ray allows, on a busy machine, is started again. The same command continues a record that stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")       # Ray's default, 15, gives way to all else on a busy machine

from isocost.runs.arm import Arm
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


def jobs(runs: int, rollouts: int) -> list[Job]:
    """The study's runs: every n in turn, then the next seed."""
    return [
        Job(arm=Arm(n=n, B=BATCH, lr=8.5e-5 * (n * BATCH / 256) ** 0.37), name=f"n{n}-s{seed}",
            setting=Setting.of(data="sums:level=1", device="cpu"), method="grpo", seed=seed,
            budget={"rollouts": rollouts}, points=(rollouts // 4, rollouts // 2), save_every=8, export=True)
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


def processes_of(raylet: int) -> list[int]:
    """The processes that a node's scheduler has started, and those that they have, workers among them."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = [raylet]
    for pid in found:
        found += parents.get(pid, [])
    return found[1:]


def writer(run: Path) -> int | None:
    """The process that holds the lock of a run's folder, by its own word."""
    try:
        return int(json.loads((run / "lock").read_text())["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass
class Nodes:
    """A simulated cluster, whose nodes are killed from time to time (`due`)."""

    most: int
    seed: int
    folder: Path        # of the round's runs
    at: list[float] = field(default_factory=list)       # seconds of each kill
    busy: int = 0                                       # runs that the killed nodes had

    def __post_init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.rng = random.Random(self.seed)
        head = {"num_cpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
        whole = {"initialize_head": True, "head_node_args": {**head, "_system_config": HEALTH}}
        self.cluster = started(lambda: Cluster(**whole))
        self.nodes = [self._added() for _ in range(NODES)]
        self.began = time.monotonic()
        self.next = self._pause()

    @property
    def now(self) -> float:
        """Seconds since the cluster was complete."""
        return round(time.monotonic() - self.began, 1)

    def _added(self) -> Any:
        return started(lambda: self.cluster.add_node(num_cpus=1, object_store_memory=80_000_000))

    def _pause(self) -> float:
        return self.now + self.rng.uniform(*APART)

    def _runs_of(self, node: Any) -> int:
        """How many runs a node has."""
        pids = processes_of(node.all_processes["raylet"][0].process.pid)
        return sum(writer(lock.parent) in pids for lock in self.folder.glob("*/lock"))

    def due(self) -> None:
        """Kill a node, if it is time."""
        if self.now < self.next or len(self.at) == self.most:
            return
        victim = self.nodes.pop(self.rng.randrange(len(self.nodes)))
        self.busy += self._runs_of(victim)
        self.at.append(self.now)
        self.cluster.remove_node(victim, allow_graceful=False)
        self.nodes.append(self._added())
        self.next = self._pause()

    def close(self) -> None:
        self.cluster.shutdown()


def a_round(
    runs: Sequence[Job], folder: Path, whole: Mapping[str, Mapping[str, str]], asked: argparse.Namespace, seed: int
) -> dict[str, Any]:
    """The runs on a cluster, with at most so many kills; compared with those of one machine, by their digests."""
    nodes = Nodes(asked.kills, seed, folder)
    try:
        ends = Site("ray", nodes.cluster.address).run_all(runs, folder, workers=asked.at_once, watch=nodes.due)
        seconds = time.monotonic() - nodes.began
    finally:
        nodes.close()
    found = {j.name: digests(folder / j.name) for j in runs}
    tries = {j.name: read_lines(folder / j.name / FILE) for j in runs}
    again = Counter(line["after"].partition(":")[0] for made in tries.values() for line in made[1:])
    accounts: Counter[str] = Counter()
    for end in ends:
        accounts.update({account: cost["rollouts"] for account, cost in end["bill"].items()})
    fates: Counter[str] = Counter()
    for end in ends:
        fates.update(end["fates"])
    billed, lost = sum(accounts.values()), accounts["lost"]
    return {
        "seed": seed,
        "kills": len(nodes.at),
        "killed_at": nodes.at,
        "busy": nodes.busy,
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
        "at_once": asked.at_once,
        "command": " ".join(["python", "experiments/ray_chaos.py", *sys.argv[1:]]),
        "runs": asked.runs,
        "rollouts": asked.rollouts,
        "one_machine": {
            "workers": asked.workers, "seconds": round(time.monotonic() - began, 1),
            "each": [{"run": j.name, "n": j.arm["n"], "seconds": e["seconds"]}
                     for j, e in zip(runs, ends, strict=True)],
        },
        **earlier,
    }
    while (killed := sum(r["kills"] for r in record["rounds"])) < asked.least:
        i = len(record["rounds"])
        found = a_round(runs, folder / f"round-{i}", whole, asked, asked.seed + i)
        record["rounds"].append(found)
        record["kills"] = killed + found["kills"]
        record["equal"], record["of"] = (sum(r[k] for r in record["rounds"]) for k in ("equal", "runs"))
        keep(record)
        print(f"round {i}: {found['kills']} kills in {found['seconds']} s, "
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
    options.add_argument("--least", type=int, default=50, help="kills: as many rounds as they take")
    options.add_argument("--at-once", type=int, default=2, help="runs in flight on the cluster")
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
