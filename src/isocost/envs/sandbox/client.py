"""Untrusted Python, without root and without a container: a process that forks for each call, see `sandbox_process`.

    with Sandbox() as sandbox, sandbox.folder() as folder:
        result = await sandbox.run("print(1 + 1)", folder)        # Result(how="ok", text="2\\n", seconds=0.004)

What holds is recorded (`Sandbox.layers`). A kernel without Landlock or seccomp is an error; `layers="none"` runs model
output with your own rights and has to be spelled out.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from isocost.envs.sandbox import filter as sandbox_filter
from isocost.envs.sandbox import process as sandbox_process
from isocost.envs.sandbox import server as sandbox_server
from isocost.envs.sandbox.process import LAYERS
from isocost.envs.sandbox.server import remove
from isocost.errors import UserError

How = Literal["ok", "cut", "error", "memory", "cpu", "time", "disk", "output", "killed"]
LONGEST = 1 << 18        # characters of a program
FIX = "use Linux 5.13 or newer with both enabled; or, if you trust what the model writes, spell out sandbox=none"


class SandboxFailed(RuntimeError):
    """The sandbox could not run a program: a failure of this machine, not of the program."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Of one call. `disk` and `files` count what its folder holds, also from earlier calls."""

    memory: int = 512 << 20      # bytes of address space
    cpu: int = 5                 # seconds of CPU time, a whole number
    wall: float = 10.0           # seconds
    file: int = 16 << 20         # bytes of one file
    disk: int = 64 << 20         # bytes of all files, removed ones that are still open included
    files: int = 256             # files and folders. Both are looked at every 0.02 s, so a call may pass them for that
                                 # long; not where `layers` has the namespace "mnt": there they are the kernel's
    output: int = 8192           # bytes of output that are kept; 64 times as much ends the call

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value <= 0:
                raise UserError(f"sandbox: {name} must be above 0, got {value}")


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a program printed, and how it ended.

    "ok"; "cut" (ok, but part of the output was left out); "error" (it raised, or exited with another status than 0);
    "killed" (by a signal); or the limit that ended it: "memory", "cpu", "time", "disk", "output".
    """

    how: How
    text: str
    seconds: float


class Sandbox:
    """Runs programs, `at_once` of them at a time; others wait. Usable from any thread and event loop.

    Args:
        limits: of each call.
        layers: "all", or "none" to run with the rights of this process (time and output stay limited).
        at_once: default: four for each core.
        without: layers to leave out, for tests of the others.
        abi: use Landlock as of this version; 0 for the kernel's own.

    Raises:
        UserError: on opening, where this kernel lacks a layer.
    """

    def __init__(
        self, limits: CallLimits | None = None, *, layers: Literal["all", "none"] = "all", at_once: int = 0,
        without: Sequence[str] = (), abi: int = 0,
    ):
        if layers not in ("all", "none"):
            raise UserError(f"sandbox: expected all or none, got {layers!r}")
        self.limits = limits or CallLimits()
        self.without = (*LAYERS, "namespaces") if layers == "none" else tuple(without)
        self.at_once = at_once or 4 * (os.cpu_count() or 1)
        self._abi = abi
        self._lock = threading.Lock()                # of everything below
        self._sending = threading.Lock()             # while it waits for room, replies are still read
        self._waiting: dict[int, Future[CallResult]] = {}
        self._count = 0
        self._homes: dict[Path, subprocess.Popen[bytes]] = {}       # folders with files: the process that has them
        self._left: set[Path] = set()               # folders that could not be removed yet
        self._process: subprocess.Popen[bytes] | None = None
        self._home = tempfile.TemporaryDirectory(prefix="isocost-sandbox-", dir=_base(), ignore_cleanup_errors=True)
        self.layers: dict[str, Any] = {}
        try:
            self._start()
        except BaseException:
            self._home.cleanup()
            raise

    def record(self) -> dict[str, Any]:
        """For run.json: what holds, and the limits."""
        return {"layers": self.layers, "limits": asdict(self.limits), "without": list(self.without)}

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder that programs may write; removed afterwards with all that they wrote."""
        path = Path(tempfile.mkdtemp(dir=self._home.name))
        try:
            yield path
        finally:
            with self._lock:
                self._homes.pop(path, None)
                self._left.add(path)
            for each in [*self._left]:
                if remove(str(each)):
                    self._left.discard(each)

    async def run(self, code: str, folder: Path, *, seed: int = 0) -> CallResult:
        """Run a program in a folder. `seed` is that of Python's `random`. Cancelling the task ends the program.

        Raises SandboxFailed if the sandbox itself fails, or if it has failed since an earlier call in this folder,
        whose files are gone.
        """
        number, future = self._send(code, folder, seed)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._cancel(number)
            raise

    def run_now(self, code: str, folder: Path, *, seed: int = 0) -> CallResult:
        """The same without an event loop."""
        return self._send(code, folder, seed)[1].result()

    def close(self) -> None:
        """End every program, and remove the folders."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.kill()           # its forks end with it, and with its end of the socket the thread that reads
            process.wait()
            self._thread.join()
        if os.path.isdir(self._home.name):
            remove(self._home.name)
        self._home.cleanup()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        """Start the process that forks, as a new program: nothing of this process's memory is in it."""
        try:
            rules = sandbox_filter.program(os.uname().machine) if "seccomp" not in self.without else []
        except sandbox_filter.MissingTable as error:
            raise UserError(f"sandbox: not available here: {error}; {FIX}") from None
        ours, theirs = socket.socketpair()
        config = {
            "limits": asdict(self.limits), "without": self.without, "at_once": self.at_once, "abi": self._abi,
            "filter": sandbox_filter.packed(rules).hex(), "control": theirs.fileno(), "forks": sandbox_process.__file__,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-s", "-P", "-B", sandbox_server.__file__, json.dumps(config)],
            env={"PYTHONHASHSEED": "0"}, cwd=self._home.name, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )
        theirs.close()
        replies = ours.makefile("rb")
        said = json.loads(replies.readline() or b'{"missing": "the process that forks ended at once"}')
        if "missing" in said:
            replies.close()
            ours.close()
            self._process.wait()
            raise UserError(f"sandbox: not available here: {said['missing']}; {FIX}")
        self.layers, self._socket, self._waiting = said["layers"], ours, {}
        self._thread = threading.Thread(
            target=self._receive, args=(ours, replies, self._waiting), daemon=True, name="isocost-sandbox",
        )
        self._thread.start()

    def _send(self, code: str, folder: Path, seed: int) -> tuple[int, Future[CallResult]]:
        future: Future[CallResult] = Future()
        if len(code) > LONGEST:
            future.set_result(CallResult("error", f"the program has {len(code)} characters; at most {LONGEST}", 0.0))
            return -1, future
        request = {"code": code, "folder": str(folder), "seed": seed}
        for again in (False, True):
            with self._lock:
                if self._process is None:
                    raise SandboxFailed("the sandbox is closed")
                if again or self._process.poll() is not None:
                    self._process.kill()
                    self._process.wait()
                    self._start()
                if self._homes.get(folder, self._process) is not self._process:
                    raise SandboxFailed("the process that forks has ended, and the files of earlier calls with it")
                connection, waiting = self._socket, self._waiting
                if "mnt" in self.layers["namespaces"]:
                    future.add_done_callback(partial(self._wrote, folder, self._process))
                self._count += 1
                number = self._count
                waiting[number] = future
            try:
                with self._sending:
                    connection.sendall(json.dumps({"id": number, **request}).encode() + b"\n")
                return number, future
            except OSError as error:
                with self._lock:
                    waiting.pop(number, None)
                failed = error
        raise SandboxFailed(f"the process that forks has ended: {failed}") from failed

    def _wrote(self, folder: Path, process: subprocess.Popen[bytes], done: Future[CallResult]) -> None:
        """A call has ended, and its files are in a file system that ends with this process."""
        if not done.cancelled() and done.exception() is None and folder.exists():
            self._homes[folder] = process

    def _cancel(self, number: int) -> None:
        with self._lock:
            self._waiting.pop(number, None)
            connection = self._socket
        with self._sending, contextlib.suppress(OSError):
            connection.sendall(json.dumps({"cancel": number}).encode() + b"\n")

    def _receive(self, connection: socket.socket, replies: Any, waiting: dict[int, Future[CallResult]]) -> None:
        """Resolve futures until the other side ends; then all that are waiting fail."""
        with connection, replies, contextlib.suppress(OSError, ValueError):
            for line in replies:
                said = json.loads(line)
                with self._lock:
                    future = waiting.pop(said["id"], None)
                if future is None or not future.set_running_or_notify_cancel():
                    continue
                if said["how"] == "failed":
                    future.set_exception(SandboxFailed(said["text"] or "a layer could not be taken"))
                else:
                    future.set_result(CallResult(said["how"], said["text"], said["seconds"]))
        with self._lock:
            left = list(waiting.values())
            waiting.clear()
        for future in left:
            if future.set_running_or_notify_cancel():
                future.set_exception(SandboxFailed("the process that forks ended"))


def available() -> dict[str, Any]:
    """The layers that hold on this machine, as `Sandbox.layers`; `{"missing": why}` where one does not."""
    try:
        with Sandbox(at_once=1) as sandbox:
            return dict(sandbox.layers)
    except UserError as error:
        return {"missing": str(error)}


def _base() -> str | None:
    """Where folders are made: in memory where there is room, because thousands of folders are then removed at once."""
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")
        if space.f_bavail * space.f_frsize >= 1 << 30 and os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return None
