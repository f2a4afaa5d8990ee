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

PATIENCE = 3600     # seconds until a command that hangs is killed: a bound for a stuck machine, not a measurement

# Importing torch and the package takes two seconds of processor time, and the pages have a hundred commands. One
# process imports them once; a command is a fork of it, with the caller's arguments, folder, environment, input and
# output, and its exit code is the command's. Its worker processes are forks of the command. A signal would reach the
# client alone: who sends one finds the command's process id in the file that PID_FILE names.
# Processes share a server: each that uses it holds a lock, and a server that nobody uses ends.
SERVER = """
import os
if os.fork():
    os._exit(0)         # it outlives the process that started it
import atexit, fcntl, gc, json, multiprocessing, os, pkgutil, runpy, socket, sys, threading, traceback
import altair, numpy, scipy.optimize, scipy.stats, torch, vl_convert
import isocost
for module in pkgutil.walk_packages(isocost.__path__, "isocost."):
    __import__(module.name)
read, write = os.pipe()         # the script that every report carries, made once: a process of its own makes it, for
if not os.fork():               # what makes it has threads, which a fork does not take over
    os.close(read)
    with open(write, "w", encoding="utf-8") as out:
        out.write(isocost.report.theme.bundle())
    os._exit(0)
os.close(write)
with open(read, encoding="utf-8") as made:
    bundle = made.read()
assert bundle
os.wait()
isocost.report.theme.bundle = lambda: bundle
measured = isocost.local.roofline.measure       # its tests measure for as long as a user does
isocost.local.roofline.measure = lambda threads, device="cpu", seconds=0: measured(threads, device, 0.1)
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen(64)
listening.settimeout(2)
gc.freeze()
print("ready", flush=True)
users = os.open(sys.argv[2], os.O_RDWR)
running = 0
while True:
    try:
        asked, _ = listening.accept()
    except TimeoutError:
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        if os.path.exists(sys.argv[1]):
            os.unlink(sys.argv[1])
        fcntl.flock(users, fcntl.LOCK_UN)       # processes of commands that still run have it too
        os._exit(0)
    asked.setblocking(True)
    data, fds, _, _ = socket.recv_fds(asked, 1 << 20, 3)
    while not data.endswith(b"\\n") and (more := asked.recv(1 << 20)):
        data += more
    if not os.fork():        # so that a command may run while a session is open
        if not (command := os.fork()):
            break
        asked.sendall(b"%d" % os.waitstatus_to_exitcode(os.waitpid(command, 0)[1]))
        os._exit(0)
    for fd in (*fds, asked.detach()):
        os.close(fd)
    while running and os.waitpid(-1, os.WNOHANG)[0]:
        running -= 1
    running += 1
listening.close()
asked.close()
os.close(users)
for at, fd in enumerate(fds):
    os.dup2(fd, at)
    os.close(fd)
name, words, folder, environment = json.loads(data)
contexts = multiprocessing.get_context
multiprocessing.get_context = lambda method: contexts("fork" if method == "spawn" else method)   # also its workers
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
if note := os.environ.pop("PID_FILE", None):
    with open(note + ".new", "w", encoding="utf-8") as out:
        out.write(str(os.getpid()))
    os.rename(note + ".new", note)


def run():
    if name == "isocost":
        sys.argv = ["isocost", *words]
        del sys.path[0]
        sys.exit(isocost.cli.commands.main())
    sys.path[0] = ""
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


try:
    run()
    code = 0
except SystemExit as end:
    code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    if isinstance(end.code, str):
        print(end.code, file=sys.stderr)
except BaseException:
    code = 1
    traceback.print_exc()
threading._shutdown()       # what Python does at its end, but for taking the modules down, which takes a second
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""
CLIENT = """
import json, os, socket, sys
here = socket.socket(socket.AF_UNIX)
here.connect(sys.argv[1])
asked = json.dumps([sys.argv[2], sys.argv[3:], os.getcwd(), dict(os.environ)]) + "\\n"
socket.send_fds(here, [asked.encode()], [0, 1, 2])
code = int(here.recv(16))
sys.exit(code if code >= 0 else 128 - code)
"""
INSTALLED = "import sys; from isocost.cli.commands import main; sys.argv[0] = 'isocost'; sys.exit(main())"
# A page's Python blocks are one session, as in an interpreter that stays open beside the shell.
SESSION = """
import json, sys
names = {"__name__": "__main__"}
for block in sys.stdin:
    exec(compile(json.loads(block), "block", "exec"), names)
    print(flush=True)
    print("\\0", flush=True)
"""


@contextmanager
def programs(*, forked: bool, shared: Path | None = None) -> Iterator[Path]:
    """A folder with `isocost` and `python` for a PATH: forks of one process that imported all, or processes anew.

    Processes that name the same folder as `shared` have their forks from the same one.
    """
    with tempfile.TemporaryDirectory(prefix="isocost-") as folder, ExitStack() as serving:
        words = {"isocost": [sys.executable, "-c", INSTALLED], "python": [sys.executable]}
        if forked:
            socket = serving.enter_context(_server(shared or Path(folder)))
            words = {name: [sys.executable, "-ISc", CLIENT, str(socket), name] for name in words}
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
    with _locked(users, fcntl.LOCK_SH), ExitStack() as starting:       # it waits for a server that is ending
        starting.enter_context(_locked(folder / "gate", fcntl.LOCK_EX))
        if not socket.exists():
            with subprocess.Popen(
                [sys.executable, "-c", SERVER, str(socket), str(users)], env=_environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            ) as started:
                assert started.stdout is not None and started.stdout.readline() == "ready\n"
        starting.close()
        yield socket


@contextmanager
def _locked(file: Path, how: int) -> Iterator[None]:
    held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, how)
        yield
    finally:
        os.close(held)


def _environment() -> dict[str, str]:
    """This process's, with the package that is tested first on the path and no terminal to suit."""
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "FORCE_COLOR", "PYTEST_CURRENT_TEST")}
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
                ["python", "-c", SESSION], cwd=self.here, env=self.environment, stdin=subprocess.PIPE,
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
