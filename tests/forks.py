"""A server of commands: one process that has imported all, which forks for each. `python forks.py FOLDER` starts it.

Importing torch and the package takes two seconds of processor time, and the pages have a hundred commands. A command is
a fork, with the caller's arguments, folder, environment, input and output (`fork_client.py` sends them), and its exit
code is the command's. Its worker processes are forks of the command. A signal would reach the client alone: who sends
one finds the command's process id in the file that PID_FILE names. Each process that uses the server holds a lock on
`users` in FOLDER, and a server that nobody uses ends. The processor seconds of each command are a line of `seconds`.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import runpy
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any


def import_all() -> None:
    """Everything that a command imports; then the package's own slow constants."""
    for library in ("altair", "numpy", "scipy.optimize", "scipy.stats", "torch", "vl_convert"):
        importlib.import_module(library)
    isocost = importlib.import_module("isocost")
    for module in pkgutil.walk_packages(isocost.__path__, "isocost."):
        importlib.import_module(module.name)
    theme = isocost.report.theme
    bundle = made_apart(theme.bundle)
    theme.bundle = lambda: bundle


def made_apart(bundle: Callable[[], str]) -> str:
    """The script that every report carries, made once: by a process of its own, for what makes it has threads, which a
    fork does not take over."""
    read, write = os.pipe()
    if not os.fork():
        os.close(read)
        with open(write, "w", encoding="utf-8") as out:
            out.write(bundle())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as made:
        found = made.read()
    assert found
    os.wait()
    return found


def serve(folder: Path) -> tuple[dict[str, Any], list[int]]:
    """Take commands until nobody is there. It returns in a fork, with what is asked and its input and outputs."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / "socket"))
    listening.listen(64)
    listening.settimeout(2)
    users = os.open(folder / "users", os.O_RDWR)
    print("ready", flush=True)
    running = 0
    while True:
        try:
            asking, _ = listening.accept()
        except TimeoutError:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            (folder / "socket").unlink(missing_ok=True)
            fcntl.flock(users, fcntl.LOCK_UN)       # processes of commands that still run have it too
            os._exit(0)
        asking.setblocking(True)
        data, fds, _, _ = socket.recv_fds(asking, 1 << 20, 3)
        while not data.endswith(b"\n") and (more := asking.recv(1 << 20)):
            data += more
        if not os.fork():        # so that a command may run while a session is open
            asked = json.loads(data)
            if not (command := os.fork()):
                break
            status = os.waitpid(command, 0)[1]
            with open(folder / "seconds", "a", encoding="utf-8") as note:
                note.write(f"{asked['test']}\t{os.times().children_user + os.times().children_system:.3f}\n")
            asking.sendall(b"%d" % os.waitstatus_to_exitcode(status))
            os._exit(0)
        for fd in (*fds, asking.detach()):
            os.close(fd)
        while running and os.waitpid(-1, os.WNOHANG)[0]:
            running -= 1
        running += 1
    for there in (listening, asking):
        there.close()
    os.close(users)
    return asked, fds


def become(asked: dict[str, Any], fds: list[int]) -> None:
    """Have the caller's input, outputs, folder and environment; worker processes are forks too."""
    for at, fd in enumerate(fds):
        os.dup2(fd, at)
        os.close(fd)
    contexts = multiprocessing.get_context
    multiprocessing.get_context = lambda method: contexts("fork" if method == "spawn" else method)  # type: ignore
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if note := os.environ.pop("PID_FILE", None):
        Path(note + ".new").write_text(str(os.getpid()), encoding="utf-8")
        os.rename(note + ".new", note)


def run(name: str, words: list[str]) -> None:
    """What `isocost WORDS` or `python WORDS` does."""
    if name == "isocost":
        from isocost.cli.commands import main

        sys.argv = ["isocost", *words]
        del sys.path[0]
        sys.exit(main())
    sys.path[0] = ""
    if words[0] == "-m":
        sys.argv = words[1:]
        sys.modules.pop(words[1], None)     # it is imported, of which runpy would warn
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def finish(name: str, words: list[str]) -> None:
    """Run it, and end as Python does, but for taking the modules down, which takes a second."""
    try:
        run(name, words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        code = 1
        traceback.print_exc()
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)         # the server outlives the process that started it
    import_all()
    gc.freeze()
    asked, fds = serve(Path(sys.argv[1]))
    become(asked, fds)
    finish(asked["name"], asked["words"])
