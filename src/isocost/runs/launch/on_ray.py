"""A Ray cluster that runs tasks: one Ray task per attempt of a run, which Ray itself never starts again.

Ray is an extra, imported when it is used. Its scheduler gives every run the processors and GPUs that it needs.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.errors import UserError
from isocost.runs.job import Job
from isocost.runs.launch import cluster, node
from isocost.runs.launch.cluster import Died

log = logging.getLogger("isocost")

AUTO, LOCAL = "auto", "local"
ANSWERS = 10.0      # seconds in which a head must accept a connection
ADDRESS = re.compile(r"[^\s:/]+:[0-9]+|\[[0-9a-fA-F:]+\]:[0-9]+")


def run_all(
    jobs: Sequence[Job], folder: Path, *, workers: int | None, watch: Callable[[], None] = lambda: None,
    address: str = AUTO, gpus: float = 0.0,
) -> list[dict[str, Any]]:
    """Run every job in `folder/name` on a Ray cluster, as `isocost.runs.launch.cluster.run_all` does.

    `address` is `auto` (this machine's, or RAY_ADDRESS), `local` (one of this machine, for these runs alone) or
    HOST:PORT; `gpus` are each run's, or its share of one. Raises UserError without Ray, and if no cluster answers
    there.
    """
    with _connected(address) as ray:
        return cluster.run_all(jobs, folder, Ray(ray, gpus), workers=workers, watch=watch)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster; a connection that this process already has is used and kept."""
    if address not in (AUTO, LOCAL) and not ADDRESS.fullmatch(address):
        raise UserError(f"--address {address!r}: expected auto, local or HOST:PORT of a Ray cluster that this machine "
                        "belongs to")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")       # before Ray is imported: it reports to its makers
    try:
        import ray
    except ImportError as e:
        raise UserError("--launch ray needs Ray: pip install 'ray[default]'") from e
    if ray.is_initialized():
        yield ray
        return
    options = {"include_dashboard": False} if address == LOCAL else {}
    try:
        if address not in (AUTO, LOCAL):        # Ray waits many minutes for a head that is not there
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except Exception as e:      # of many kinds, by version and cause
        line = (str(e).strip() or type(e).__name__).splitlines()[0][:300]
        do = "try again on a less busy machine" if address == LOCAL else (
            "start one with `ray start --head` and pass --address auto or HOST:PORT, or use --address local")
        raise UserError(f"no connection to the Ray cluster at {address}: {line}; {do}") from e
    try:
        yield ray
    finally:
        ray.shutdown()


@dataclass
class Ray:
    """A connected Ray cluster as a `Cluster`."""

    ray: Any
    gpus: float = 0.0

    def __post_init__(self) -> None:
        # The defaults of Ray would start a task again unseen; an attempt must be counted before it starts.
        self._remote = self.ray.remote(max_retries=0, retry_exceptions=False)(node.attempt)
        self._warned = False

    def submit(self, task: str, threads: int) -> Any:
        self._warn_of_room(threads)
        return self._remote.options(num_cpus=threads, num_gpus=self.gpus or None).remote(task)

    def _warn_of_room(self, threads: int) -> None:
        """Log it once if no node is large enough for a run: the cluster may still grow."""
        needs = {"CPU": threads, **({"GPU": self.gpus} if self.gpus else {})}
        nodes = [n["Resources"] for n in self.ray.nodes() if n["Alive"]] if not self._warned else []
        if nodes and not any(all(n.get(k, 0) >= v for k, v in needs.items()) for n in nodes):
            self._warned = True
            words = " and ".join(f"{v:g} {k}s" for k, v in needs.items())
            log.warning("no node of the Ray cluster has %s now; runs wait until one has", words)

    def wait(self, tickets: Sequence[Any], seconds: float) -> Mapping[Any, str | Died]:
        refs = list(tickets)
        if not refs:
            return {}
        self.ray.wait(refs, num_returns=1, timeout=seconds)
        ready, _ = self.ray.wait(refs, num_returns=len(refs), timeout=0)
        return {ref: self._result(ref) for ref in ready}

    def _result(self, ref: Any) -> str | Died:
        errors = self.ray.exceptions
        try:
            return str(self.ray.get(ref))
        except errors.TaskCancelledError:
            return Died("its task was cancelled")
        except errors.RayTaskError as e:        # the task catches its own errors: it could not be started
            line = str(e).strip().splitlines()[-1][:300]
            raise UserError(f"a node of the Ray cluster cannot run isocost: {line}; install the same isocost, Python "
                            "and Ray on every node") from e
        except errors.RayError as e:
            return Died(f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}")

    def cancel(self, ticket: Any) -> None:
        self.ray.cancel(ticket, force=False)
