"""A contender in a process of its own, spoken to in lines of JSON. The child's side needs no more than the standard
library, for it also runs in the other package's virtual environment.

    parent:  with Worker("trl fp32", python, "bench.trl_side", ...) as w: w.ask("open", ...); w.ask("steps", count=5)
    child:   line = Line(); while message := line.receive(): line.send(...)
"""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MKL = "MKL_CBWR"
CHOSEN = os.environ.get(MKL)    # by the user: isocost, imported later, chooses for itself and not for other contenders


class Failed(Exception):
    """A contender that could not do what it was asked; says why."""


class Line:
    """The child's end. Standard output is kept for answers; what libraries print goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def receive(self) -> dict[str, Any] | None:
        """The next message; None when the parent is done."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None

    def send(self, **answer: Any) -> None:
        print(json.dumps({**answer, "peak_mb": peak_mb(), "cpu": time.process_time()}), file=self._out, flush=True)


def cpu_of_children() -> float:
    """CPU seconds of the processes that this one has started and that have ended, with all of theirs.

    Python's server that forks workers is stopped: it would not count before its end. The next pool starts another.
    """
    forkserver._forkserver._stop()      # type: ignore[attr-defined]    # no public function stops it
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def peak_mb() -> float:
    """The most memory this process has held, in MiB; its own, not what its parent held when it was forked."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform != "darwin" else 2**20)


class Worker:
    """The parent's end. `last` holds the peak memory and CPU seconds that came with the last answer."""

    def __init__(self, name: str, python: str, module: str, threads: int, **variables: str):
        env = {
            **os.environ, **variables, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "passive", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
            "PYTHONWARNINGS": "ignore",
        }
        if CHOSEN is None:
            env.pop(MKL, None)
        self.name, self.peak_mb, self.cpu = name, 0.0, 0.0
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(
            [python, "-m", module], cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def ask(self, what: str, timeout: float = 1800.0, **arguments: Any) -> dict[str, Any]:
        """Send a message and wait. Raises Failed when the child died, raised, or took more than `timeout` seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write((json.dumps({"what": what, **arguments}) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name} ended: {self._last_words()}") from None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        if not ready:
            self.close()
            raise Failed(f"{self.name} took more than {timeout:.0f} s to {what}")
        line = self._process.stdout.readline()
        if not line:
            raise Failed(f"{self.name} ended: {self._last_words()}")
        answer = json.loads(line)
        self.peak_mb, self.cpu = answer.pop("peak_mb"), answer.pop("cpu")
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            with suppress(OSError):     # what was not yet written to a child that died cannot be flushed
                if pipe is not None:
                    pipe.close()

    def _last_words(self) -> str:
        code = self._process.wait(10)
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"exit status {code}, {lines[-1] if lines else 'nothing said'}"


def serve(**does: Any) -> None:
    """Answer messages with the function of each name, until the parent is done; an exception is an answer too."""
    line = Line()
    while message := line.receive():
        try:
            line.send(**does[message.pop("what")](**message))
        except Exception as error:
            line.send(error=f"{type(error).__name__}: {error}"[:500])
