"""`verifiers:TASKSET` and `inspect:FILE.py@TASK`: the harnesses of other libraries, in a process with their Python.

    verifiers:reverse-text#agent.harness.id=null,agent.runtime.type=subprocess
    inspect:tasks.py@sums#python=/path/to/venv/bin/python,seconds=300

`python` is the interpreter that has the library; by default the one that runs isocost. Other options of verifiers are
those of its environment's configuration, with dots; other options of inspect are arguments of the task. The process
(`harness_process.py`) is started once for each specification, and forks for each rollout.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

from isocost.envs.environment_set import EnvironmentSet
from isocost.envs.harness import kinds as harness_kinds
from isocost.envs.harness import process as harness_process
from isocost.envs.harness.driven import Driven, Seat, problem_of
from isocost.errors import UserError
from isocost.world import EnvironmentFault

log = logging.getLogger("isocost")
SAID = 1500         # characters of errors that are shown
# By a path alone, Python would import the modules beside the file in place of packages with their names.
_RUN = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
NEEDS = {"verifiers": "verifiers>=0.4", "inspect": "inspect-ai"}


class Library:
    """A process that runs rollouts. It ends with this one."""

    def __init__(self, python: str, name: str, config: str):
        self.errors = tempfile.TemporaryFile()      # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                [python, "-c", _RUN, harness_process.__file__, name, config], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=self.errors,
            )
        except OSError as error:
            self.errors.close()
            raise UserError(f"{python} does not start: {error}") from error
        self._reader: threading.Thread | None = None
        first = json.loads(self._line() or json.dumps({"error": self._said() or "it ended"}))
        if "error" in first:
            self.close()
            needs = f" (pip install '{NEEDS[name]}' there, or name another with python=...)"
            missing = "ModuleNotFoundError" in first["error"]
            raise UserError(f"{name} in {python}: {first['error']}{needs if missing else ''}")
        self.tasks: list[dict[str, Any]] = first["tasks"]
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[dict[str, Any]]]] = {}
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True, name=f"isocost-{name}")
        self._reader.start()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.wait()
        if self._reader is not None:
            self._reader.join()
        self.process.stdout.close()
        self.errors.close()

    async def run(self, seat: Seat) -> float:
        """The reward of one rollout. Raises EnvironmentFault."""
        number, loop = next(self._numbers), asyncio.get_running_loop()
        future: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._waiting[number] = loop, future
        try:
            self._send({"run": number, "task": seat.task["task"], "base_url": seat.base_url, "key": seat.key,
                        "model": seat.model})
            found = await future
        finally:
            if self._waiting.pop(number, None) is not None and not future.done():
                with contextlib.suppress(EnvironmentFault):
                    self._send({"end": number})
        if "error" in found:
            log.warning("a harness failed: %s", found["error"])
            raise EnvironmentFault(f"the harness raised {found['error'].partition(':')[0]}")
        return float(found["reward"])

    def _send(self, data: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            with self._lock:
                self.process.stdin.write(json.dumps(data).encode() + b"\n")
                self.process.stdin.flush()
        except OSError as error:
            raise EnvironmentFault("the process of the harness has ended") from error

    def _line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def _read(self) -> None:
        while line := self._line():
            found = json.loads(line)
            self._settle(found["id"], found)
        for number in list(self._waiting):
            self._settle(number, {"error": "ProcessEnded: " + self._said()})

    def _settle(self, number: int, found: dict[str, Any]) -> None:
        loop, future = self._waiting.get(number, (None, None))
        if loop is not None and future is not None:
            with contextlib.suppress(RuntimeError):         # that loop has ended
                loop.call_soon_threadsafe(lambda: None if future.done() else future.set_result(found))

    def _said(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self.errors.seek(0)
            return self.errors.read().decode(errors="replace")[-SAID:].strip()
        return ""


@cache
def _library(python: str, name: str, config: str, process: int) -> Library:
    """Not one that was started before a fork: two would read its answers."""
    return Library(python, name, config)


def _opened(
    spec: str, config: dict[str, Any], given: dict[str, Any], python: str, source: str, digest: str | None = None
) -> EnvironmentSet:
    limits = harness_kinds.limits(spec, given)
    library = _library(python, spec.partition(":")[0], json.dumps(config, sort_keys=True), os.getpid())
    tasks = [{"task": t["id"], "prompt": t["prompt"] or str(t["id"]), "id": f"{source}-{t['id']}"}
             for t in library.tasks]
    make = partial(Driven, run=library.run, seconds=limits.pop("seconds"), spawns=True)
    return EnvironmentSet(spec, make, lambda: (problem_of(t, i, source) for i, t in enumerate(tasks)),
                          source=digest, **limits)


def _own(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options that are isocost's."""
    return {k: given.pop(k) for k in ("seconds", "turns", "tokens") if k in given}


def open_verifiers(spec: str) -> EnvironmentSet:
    """An environment of verifiers. Raises UserError."""
    taskset, given = harness_kinds.parted(spec)
    if not taskset:
        raise UserError(f"{spec!r} names no taskset: write verifiers:my_taskset")
    python, own = str(given.pop("python", sys.executable)), _own(given)
    config: dict[str, Any] = {"taskset": {"id": taskset}}
    for name, value in given.items():
        *path, last = name.split(".")
        inner = config
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return _opened(spec, config, own, python, taskset)


def open_inspect(spec: str) -> EnvironmentSet:
    """A task of inspect-ai. Raises UserError."""
    where, given = harness_kinds.parted(spec)
    file, at, task = where.rpartition("@")
    if not at or not task.isidentifier() or not Path(file).is_file():
        raise UserError(f"{spec!r} names no task of a file that is there: write inspect:my_tasks.py@task")
    python, own = str(given.pop("python", sys.executable)), _own(given)
    return _opened(spec, {"file": str(Path(file).resolve()), "task": task, "args": given}, own, python, task,
                   hashlib.sha256(Path(file).read_bytes()).hexdigest())
