"""`isocost` and `python` for tests, as forks of one process that has imported all, and a shell that runs them."""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import isocost

HERE = Path(__file__).parent
PATIENCE = 3600     # seconds until a command that hangs is killed: a bound for a stuck machine, not a measurement
INSTALLED = "import sys; from isocost.cli.commands import main; sys.argv[0] = 'isocost'; sys.exit(main())"


@contextmanager
def programs(*, forked: bool, shared: Path | None = None) -> Iterator[Path]:
    """A folder with `isocost` and `python` for a PATH: forks of one process that imported all, or processes anew.

    Processes that name the same folder as `shared` have their forks from the same one.
    """
    with tempfile.TemporaryDirectory(prefix="isocost-") as folder, ExitStack() as serving:
        words = {"isocost": [sys.executable, "-c", INSTALLED], "python": [sys.executable]}
        if forked:
            socket = serving.enter_context(_server(shared or Path(folder)))
            words = {name: [sys.executable, "-IS", str(HERE / "fork_client.py"), str(socket), name] for name in words}
        bin = Path(folder, "bin")
        bin.mkdir()
        for name, asked in words.items():
            script = bin / name
            script.write_text(f'#!/bin/sh\nexec {shlex.join(asked)} "$@"\n', encoding="utf-8")
            script.chmod(0o755)
        yield bin


@contextmanager
def _server(folder: Path) -> Iterator[Path]:
    """The socket of the folder's server, which the first that asks starts. It is there while somebody uses it."""
    folder.mkdir(parents=True, exist_ok=True)
    socket, users = folder / "socket", folder / "users"
    with locked(users, fcntl.LOCK_SH), ExitStack() as starting:       # it waits for a server that is ending
        starting.enter_context(locked(folder / "gate"))
        if not socket.exists():
            with subprocess.Popen(
                [sys.executable, str(HERE / "forks.py"), str(folder)], env=_environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            ) as started:
                assert started.stdout is not None and started.stdout.readline() == "ready\n"
        starting.close()
        yield socket


@contextmanager
def locked(file: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock on a file, which is made if there is none."""
    held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, how)
        yield
    finally:
        os.close(held)


def _environment() -> dict[str, str]:
    """This process's, with the package that is tested first on the path and no terminal to suit."""
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(Path(isocost.__file__).parents[1])}


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit code and what it printed."""

    code: int
    out: str
    err: str


class Shell:
    """Runs a page's blocks in the folder `here`, with the programs in the folder `bin` first on the PATH."""

    def __init__(self, here: Path, bin: Path) -> None:
        self.here = here
        self.environment = {**_environment(), "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"}
        self._session: subprocess.Popen[str] | None = None

    def run(self, command: str | Sequence[object]) -> Done:
        """Run a command line, or its words, with bash."""
        command = command if isinstance(command, str) else shlex.join(map(str, command))
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.here, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def python(self, code: str) -> Done:
        """Run a block in the page's session; after an exception the next block begins a new one."""
        if self._session is None:
            self._session = subprocess.Popen(
                ["python", str(HERE / "block_session.py")], cwd=self.here, env=self.environment, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
        session = self._session
        assert session.stdin is not None and session.stdout is not None
        session.stdin.write(json.dumps(code) + "\n")
        session.stdin.flush()
        said, stuck = "", threading.Timer(PATIENCE, session.kill)
        stuck.start()
        for line in session.stdout:
            if line == "\0\n":
                stuck.cancel()
                return Done(0, said.removesuffix("\n"), "")
            said += line
        stuck.cancel()
        self.close()
        return Done(1, "", said)

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.communicate()
            self._session = None
