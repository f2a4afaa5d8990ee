"""The process that watches untrusted programs: it has a fork made for each request, ends it at its limits, and answers.

It is started as a program of its own (`python -S -s -P -B sandbox_server.py CONFIG`), and starts `sandbox_process`,
which forks. Where the kernel allows it, both leave the network, the shared memory and the mounts of the machine, and
each folder becomes a file system in memory: its size and its number of files are then limits of the kernel, whatever a
program nests, removes or leaves unnamed. Elsewhere folders are measured every `TICK` seconds. The other side is
`isocost.envs.sandbox.client`.

Sources: user_namespaces(7), tmpfs(5).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import platform
import secrets
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

TICK = 0.02                 # seconds between two looks at a fork's folder
ORDER, NEWS = struct.Struct("<ci"), struct.Struct("<cii")       # as in sandbox_process
_LIBC = ctypes.CDLL(None, use_errno=True)
_USER, _IPC, _NET, _MNT = 0x10000000, 0x08000000, 0x40000000, 0x00020000       # of unshare
_NOSUID_NODEV_NOEXEC, _DETACH = 2 | 4 | 8, 2          # of mount, umount2


def namespaces() -> list[str]:
    """Leave the machine's network, shared memory and mounts, if allowed; returns which ("mnt": it can mount)."""
    uid, gid = os.getuid(), os.getgid()
    if platform.system() != "Linux" or _LIBC.unshare(_USER | _IPC | _NET | _MNT) != 0:
        return []
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with contextlib.suppress(OSError), open(f"/proc/self/{file}", "w") as f:
            f.write(text)
    tried = tempfile.mkdtemp(dir=os.getcwd())
    try:
        mount(tried, 1 << 20, 8)
        return ["user", "ipc", "net", "mnt"]
    except OSError:             # some systems give the namespace and no right to mount in it
        return ["user", "ipc", "net"]
    finally:
        _LIBC.umount2(tried.encode(), _DETACH)
        os.rmdir(tried)


def mount(folder: str, size: int, files: int) -> None:
    """An empty file system in memory in place of a folder, for as long as that is there. Raises OSError."""
    options = f"size={size},nr_inodes={files},mode=0700".encode()
    if _LIBC.mount(b"tmpfs", folder.encode(), b"tmpfs", _NOSUID_NODEV_NOEXEC, options) < 0:
        raise OSError(ctypes.get_errno(), f"mount: {os.strerror(ctypes.get_errno())}")


@dataclass
class Running:
    """A fork, and what the server knows of it."""

    id: int
    folder: str
    output: int                      # read end of its output
    ready: int                       # read end: one byte arrives after the last layer is taken
    until: float
    began: float
    pid: int = 0                     # known soon after it is asked for
    looked: float = 0.0              # when its folder was measured last
    text: bytearray = field(default_factory=bytearray)
    size: int = 0                    # bytes that it wrote, kept or not
    ended: str = ""                  # why it was ended from outside


class ForkServer:
    """Has a fork made for each request, watches the forks, and answers."""

    def __init__(self, config: dict[str, Any], mounts: bool, control: socket.socket, orders: socket.socket):
        self.mounts, self.control, self.orders = mounts, control, orders
        self.limits: dict[str, float] = config["limits"]
        self.limited = "limits" not in config["without"]
        self.at_once: int = config["at_once"]
        self.waiting: list[dict[str, Any]] = []
        self.forks: dict[int, Running] = {}          # by id
        self.buffer = self.news = b""
        self.select = selectors.DefaultSelector()
        for end in (self.control, self.orders):
            self.select.register(end, selectors.EVENT_READ)

    def serve(self) -> bool:
        """Until another process ends; whether it was the one that asks."""
        while True:
            while self.waiting and len(self.forks) < self.at_once:
                self.fork(self.waiting.pop(0))
            wait = None
            if self.forks:
                wait = max(0.0, min(min(r.until for r in self.forks.values()) - time.monotonic(), TICK))
            for key, _ in self.select.select(wait):
                if key.fileobj is self.control:
                    if not self.take():
                        return True
                elif key.fileobj is self.orders:
                    if not self.hear():
                        return False
                elif key.fd in self.select.get_map():       # not answered in this round
                    self.read(key.data)
            self.watch()

    def take(self) -> bool:
        got = self.control.recv(1 << 16)
        self.buffer += got
        *lines, self.buffer = self.buffer.split(b"\n")
        for line in lines:
            request = json.loads(line)
            if "cancel" not in request:
                self.waiting.append(request)
                continue
            self.waiting = [r for r in self.waiting if r["id"] != request["cancel"]]
            if request["cancel"] in self.forks:
                self.end(self.forks[request["cancel"]], "cancelled")
        return bool(got)

    def hear(self) -> bool:
        """Read what the process that forks tells."""
        got = self.orders.recv(1 << 16)
        self.news += got
        while len(self.news) >= NEWS.size:
            what, number, value = NEWS.unpack(self.news[: NEWS.size])
            self.news = self.news[NEWS.size :]
            if what == b"f":
                self.forks[number].pid = value
            else:
                self.answer(self.forks.pop(number), value)
        return bool(got)

    def fork(self, request: dict[str, Any]) -> None:
        folder = request["folder"]
        if self.mounts and not os.path.ismount(folder):     # of one byte and one file too many, so that it is noticed
            mount(folder, int(self.limits["disk"]) + 1, int(self.limits["files"]) + 2)
        output, write = os.pipe()
        ready, told = os.pipe()
        os.set_blocking(output, False)
        now = time.monotonic()
        running = Running(request["id"], folder, output, ready, now + self.limits["wall"], now, looked=now)
        self.forks[running.id] = running
        self.select.register(output, selectors.EVENT_READ, running)
        with tempfile.TemporaryFile("w+", dir=os.getcwd()) as asked:
            json.dump(request, asked)
            asked.seek(0)
            socket.send_fds(self.orders, [ORDER.pack(b"f", running.id)], [asked.fileno(), write, told])
        os.close(write)
        os.close(told)

    def read(self, running: Running) -> None:
        with contextlib.suppress(BlockingIOError):
            got = os.read(running.output, 1 << 16)
            if not got:
                self.select.unregister(running.output)
                return
            running.size += len(got)
            running.text += got[: max(0, int(self.limits["output"]) - len(running.text))]
            if running.size > 64 * self.limits["output"]:
                self.end(running, "output")

    def watch(self) -> None:
        now = time.monotonic()
        for running in self.forks.values():
            if running.ended:
                continue
            if now >= running.until:
                self.end(running, "time")
            elif self.limited and now - running.looked > TICK:
                self.measure(running)

    def measure(self, running: Running) -> None:
        most = int(self.limits["files"])
        size: float
        if self.mounts:
            space = os.statvfs(running.folder)
            size, count = (space.f_blocks - space.f_bfree) * space.f_frsize, space.f_files - space.f_ffree - 1
        else:
            size, count = used(running.folder, most)
            size += unnamed(running.pid, running.folder, int(self.limits["file"])) if running.pid else 0
        if size > self.limits["disk"] or count > most:
            self.end(running, "disk")
        running.looked = time.monotonic()

    def end(self, running: Running, why: str) -> None:
        if not running.ended:
            running.ended = why
            self.orders.sendall(ORDER.pack(b"k", running.id))

    def answer(self, running: Running, code: int) -> None:
        while running.output in self.select.get_map():
            before = running.size
            self.read(running)
            if running.size == before:
                break
        if running.output in self.select.get_map():
            self.select.unregister(running.output)
        os.set_blocking(running.ready, False)
        try:
            confined = os.read(running.ready, 1) == b"1"
        except BlockingIOError:
            confined = False
        os.close(running.output)
        os.close(running.ready)
        running.pid = 0
        if not running.ended and self.limited:
            self.measure(running)
        how = running.ended or {0: "ok", 1: "error", 2: "memory"}.get(code, "killed")
        if code == -signal.SIGXCPU or (code == -signal.SIGKILL and not running.ended):
            how = "cpu"
        if not confined and not running.ended:
            how = "failed"
        if running.size > len(running.text) and how == "ok":
            how = "cut"
        answer = {"id": running.id, "how": how, "code": code, "text": running.text.decode("utf-8", "replace"),
                  "seconds": round(time.monotonic() - running.began, 6)}
        self.control.sendall(json.dumps(answer).encode() + b"\n")


# --- folders

def used(folder: str, most: int) -> tuple[float, int]:
    """(bytes, entries) below a folder, up to `most`, following no link; infinite bytes for what cannot be measured."""
    size, count, folders = 0, 0, [folder]
    while folders and count <= most:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    count += 1
                    if count > most:
                        break
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:       # removed meanwhile
            continue
        except OSError:
            return math.inf, count
    return size, count


def unnamed(pid: int, folder: str, file: int) -> float:
    """Bytes of a process's files without a name, open or mapped, each counted as `file` bytes; 0 once it has ended."""
    sizes: dict[int, int] = {}
    try:
        device = os.stat(folder).st_dev
        with open(f"/proc/{pid}/maps", "rb") as maps:
            where = f"{os.major(device):02x}:{os.minor(device):02x}".encode()
            for line in maps:
                words = line.split(None, 5)
                if words[3] == where and line.rstrip().endswith(b"(deleted)"):
                    sizes[int(words[4])] = file
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(f"/proc/{pid}/fd/{name}")
                if found.st_dev == device and found.st_nlink == 0:
                    sizes[found.st_ino] = found.st_blocks * 512
    except (FileNotFoundError, ProcessLookupError):
        pass
    except OSError:
        return math.inf
    return sum(sizes.values())


def remove(folder: str) -> bool:
    """Remove a folder that an untrusted program wrote: very deep, unlistable, or by a call that is just being ended.

    A folder in it is emptied into the top one and then removed, so that no path grows and nothing recurs. No link is
    followed, and no name can be known before. Whether it is gone.
    """
    for _ in range(20):
        try:
            while entries := list(os.scandir(folder)):
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                        continue
                    os.chmod(entry.path, 0o700)
                    for inner in list(os.scandir(entry.path)):
                        if inner.is_dir(follow_symlinks=False):
                            os.chmod(inner.path, 0o700)      # moving a folder writes its ".."
                        os.rename(inner.path, os.path.join(folder, secrets.token_hex(16)))
                    os.rmdir(entry.path)
            os.rmdir(folder)
            return True
        except OSError:
            if not os.path.lexists(folder):
                return True
            time.sleep(0.005)
    return False


def main() -> None:
    """Say which layers hold, then serve. The first line is `{"layers": ..}`, or `{"missing": why}`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)         # the other side decides when this process ends
    config = json.loads(sys.argv[1])
    control = socket.socket(fileno=config["control"])
    left = [] if "namespaces" in config["without"] else namespaces()
    ours, theirs = socket.socketpair()
    inner = {**config, "orders": theirs.fileno(), "server": os.getpid()}
    forks = subprocess.Popen([sys.executable, "-S", "-s", "-P", "-B", config["forks"], json.dumps(inner)],
                             pass_fds=(theirs.fileno(),), start_new_session=True)
    theirs.close()
    first = b""
    while not first.endswith(b"\n") and (got := ours.recv(1 << 16)):
        first += got
    said = json.loads(first or b'{"missing": "the process that forks ended at once"}')
    if "layers" in said:
        said["layers"]["namespaces"] = left
    control.sendall(json.dumps(said).encode() + b"\n")
    if "missing" in said or ForkServer(config, "mnt" in left, control, ours).serve():
        forks.kill()
        forks.wait()
        if "missing" not in said:       # the other side has died: nobody else removes what is left
            for mounted in os.scandir():
                _LIBC.umount2(mounted.path.encode(), _DETACH)
            remove(os.getcwd())


if __name__ == "__main__":
    main()
