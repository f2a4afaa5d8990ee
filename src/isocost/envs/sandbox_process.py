"""The process that untrusted Python is forked from, and what each fork gives up before it runs a line of it.

It is started as a program of its own (`python -S -s -P -B sandbox_process.py CONFIG`) with the standard library alone,
so that neither torch nor a key of the user is in its memory. It reads requests from a socket, forks once for each, and
ends a fork at its limits. `isocost.envs.sandbox` is its other side.

Layers, in the order in which a fork takes them. None can be undone, and none needs root:

1. limits: `setrlimit` on address space, CPU time, file size, descriptors, processes, core files. Wall time, disk space
   and the number of files are watched by the process that forks.
2. capabilities: all dropped, and `PR_SET_NO_NEW_PRIVS`.
3. landlock: files of the interpreter may be read, one folder may be written, nothing else opened (kernel 5.13).
4. seccomp: a list of the system calls that Python needs. Any other answers EPERM: sockets, processes, signals to
   others, changes of mode, owner and time (which Landlock does not cover), memory outside the address space.
5. namespaces, where the kernel gives them: no network device, no shared System V memory. Not required.

Sources: landlock(7), seccomp(2), Documentation/userspace-api/landlock.rst and seccomp_filter.rst of Linux.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import gc
import importlib
import json
import os
import platform
import random
import resource
import selectors
import shutil
import signal
import socket
import struct
import sys
import sysconfig
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

LAYERS = ("limits", "capabilities", "landlock", "seccomp")
TICK = 0.02                 # seconds between two looks at a fork's folder
LOADED = (                  # what small programs import, loaded once before any fork
    "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools",
    "math", "operator", "re", "sqlite3", "statistics", "string", "textwrap",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TZ": "UTC", "LANG": "C.UTF-8", "PATH": ""}


class Missing(RuntimeError):
    """This kernel does not have a layer."""


# --- system calls, by (x86_64, aarch64); None: that processor has no such call

CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "preadv2": (327, 286), "pwritev": (296, 70), "pwritev2": (328, 287),
    "creat": (85, None), "close": (3, 57), "close_range": (436, 436), "lseek": (8, 62),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
    "statfs": (137, 43), "fstatfs": (138, 44), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216), "madvise": (28, 233),
    "mincore": (27, 232), "msync": (26, 227), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "pause": (34, None),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102),
    "pipe": (22, None), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73), "select": (23, None),
    "pselect6": (270, 72), "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "eventfd2": (290, 19),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getrlimit": (97, 163),
    "getrusage": (98, 165), "getpriority": (140, 141), "sysinfo": (99, 179), "uname": (63, 160), "umask": (95, 166),
    "getcpu": (309, 168),
    "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "fallocate": (285, 47),
    "fadvise64": (221, 223), "copy_file_range": (326, 285), "sendfile": (40, 71), "getdents": (78, None),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34),
    "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "readlink": (89, None), "readlinkat": (267, 78),
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "set_tid_address": (218, 96),
    "rseq": (334, 293), "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "membarrier": (324, 283),
    "arch_prctl": (158, None), "exit": (60, 93), "exit_group": (231, 94), "getrandom": (318, 278),
    "restart_syscall": (219, 128),
}
# Calls that are allowed for some values of one argument: (numbers, which argument, values). The commands of fcntl leave
# out F_SETOWN and F_SETSIG, which send signals to other processes.
SOME: dict[str, tuple[tuple[int | None, int | None], int, tuple[int, ...]]] = {
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)),
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),   # TCGETS .. FIOCLEX
    "prctl": ((157, 167), 0, (15, 16)),                                         # the name of the thread
    "prlimit64": ((302, 261), 2, (0,)),                                         # reading limits, not setting them
}
# Calls that open a file: (numbers, the argument with the flags). Landlock before ABI 3 lets O_RDONLY | O_TRUNC pass.
OPENS: dict[str, tuple[tuple[int | None, int | None], int]] = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
NEWER = ("clone3", "openat2")        # answered with ENOSYS, so that the C library takes the older call
NEWER_CALLS = {"clone3": (435, 435), "openat2": (437, 437)}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}      # column of the tables, AUDIT_ARCH_*

_LOAD, _AND, _EQUAL, _LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06    # of classic BPF
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCH, _ARGS = 0, 4, 16     # offsets in struct seccomp_data; arguments are 8 bytes, little-endian
Instruction = tuple[int, int, int, int]


def program(machine: str) -> list[Instruction]:
    """The filter as classic BPF: (code, jump if true, jump if false, constant).

    Raises Missing for a processor without a table.
    """
    if machine not in MACHINES:
        raise Missing(f"there is no table of system calls for {machine}")
    column, arch = MACHINES[machine]
    out: list[Instruction] = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL)]
    out.append((_LOAD, 0, 0, _NUMBER))
    if machine == "x86_64":
        out += [(_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]         # the x32 calls have other numbers
    for both in CALLS.values():
        if (number := both[column]) is not None:
            out += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for both, argument, values in SOME.values():
        if (number := both[column]) is not None:
            # Both halves where a pointer is compared with 0; commands are 32-bit integers.
            high = [(_LOAD, 0, 0, _ARGS + 8 * argument + 4), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _ERRNO | _EPERM)]
            test: list[Instruction] = [*(high if values == (0,) else []), (_LOAD, 0, 0, _ARGS + 8 * argument)]
            for value in values:
                test += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
            test.append((_RETURN, 0, 0, _ERRNO | _EPERM))
            out += [(_EQUAL, 0, len(test), number), *test]
    for both, argument in OPENS.values():
        if (number := both[column]) is not None:
            out += [(_EQUAL, 0, 5, number), (_LOAD, 0, 0, _ARGS + 8 * argument), (_AND, 0, 0, 0o1003),
                    (_EQUAL, 0, 1, 0o1000), (_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)]
    for name in NEWER:
        number = NEWER_CALLS[name][column]
        out += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    return [*out, (_RETURN, 0, 0, _ERRNO | _EPERM)]


# --- layers

_LIBC = ctypes.CDLL(None, use_errno=True)
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446      # the same on both processors
_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER, _DEATH_SIGNAL = 38, 22, 2, 1
_CAPSET = {"x86_64": 126, "aarch64": 91}
# Rights of Landlock: EXECUTE 1, WRITE_FILE 2, READ_FILE 4, READ_DIR 8, REMOVE_DIR 16, REMOVE_FILE 32, MAKE_CHAR 64,
# MAKE_DIR 128, MAKE_REG 256, MAKE_SOCK 512, MAKE_FIFO 1024, MAKE_BLOCK 2048, MAKE_SYM 4096, REFER 8192 (ABI 2),
# TRUNCATE 16384 (ABI 3), IOCTL_DEV 32768 (ABI 5).
_HANDLED = {1: 2**13 - 1, 2: 2**14 - 1, 3: 2**15 - 1, 4: 2**15 - 1, 5: 2**16 - 1}
_READ, _READ_FILE = 4 | 8, 4
_WRITE = 2 | 4 | 8 | 16 | 32 | 128 | 256 | 8192 | 16384      # no devices, sockets, pipes, symbolic links; no execution


def _checked(what: str, result: int) -> int:
    if result < 0:
        raise Missing(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def landlock_abi() -> int:
    """The version of Landlock that this kernel has; 0 for none."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def landlock(read: Iterable[str], write: str, abi: int) -> None:
    """Open files only below these paths, from now on."""
    handled = _HANDLED[min(abi, 5)]
    attributes = struct.pack("=QQQ", handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)   # files, TCP, scopes
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    rules = _checked("landlock_create_ruleset", _LIBC.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    for path, rights in (*((p, _READ) for p in read), (write, _WRITE), ("/dev/null", _READ_FILE | 2)):
        with contextlib.suppress(FileNotFoundError):
            at = os.open(path, os.O_PATH | os.O_CLOEXEC)
            if not os.path.isdir(path):
                rights &= _READ_FILE | 2
            rule = struct.pack("=Qi", rights & handled, at)
            _checked(f"landlock_add_rule {path}", _LIBC.syscall(_ADD_RULE, rules, 1, rule, 0))
            os.close(at)
    _checked("landlock_restrict_self", _LIBC.syscall(_RESTRICT_SELF, rules, 0))
    os.close(rules)


def drop_privileges() -> None:
    """Drop every capability, and never gain one by executing a file."""
    header = struct.pack("=Ii", 0x20080522, 0)
    call = _CAPSET.get(platform.machine())
    if call is not None:
        _checked("capset", _LIBC.syscall(call, header, bytes(24)))


def no_new_privileges() -> None:
    """Required by Landlock and seccomp for processes without privileges."""
    _checked("no_new_privs", _LIBC.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))


def seccomp(instructions: bytes) -> None:
    """Apply a packed filter to this process."""
    code = ctypes.create_string_buffer(instructions, len(instructions))
    filter = struct.pack("HxxxxxxQ", len(instructions) // 8, ctypes.addressof(code))
    _checked("seccomp", _LIBC.prctl(_SET_SECCOMP, _FILTER, filter, 0, 0))


def packed(instructions: Iterable[Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *i) for i in instructions)


def limit(limits: dict[str, float]) -> None:
    """Set the kernel's limits of this process: bytes, and seconds of CPU time."""
    cpu = max(1, int(limits["cpu"]))
    hard = {
        resource.RLIMIT_AS: int(limits["memory"]), resource.RLIMIT_FSIZE: int(limits["file"]),
        resource.RLIMIT_NOFILE: 64, resource.RLIMIT_CORE: 0,
    }
    for what in ("RLIMIT_NPROC", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE"):
        if hasattr(resource, what):
            hard[getattr(resource, what)] = 0
    for kind, most in hard.items():
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))


def namespaces() -> list[str]:
    """Leave the network and the shared memory of the machine, if an unprivileged process may. Returns what was left."""
    user, ipc, net = 0x10000000, 0x08000000, 0x40000000
    uid, gid = os.getuid(), os.getgid()
    if platform.system() != "Linux" or _LIBC.unshare(user | ipc | net) != 0:
        return []
    for file, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with contextlib.suppress(OSError), open(f"/proc/self/{file}", "w") as f:
            f.write(text)
    return ["user", "ipc", "net"]


def library_paths() -> list[str]:
    """The folders that the interpreter needs to read: its library, and shared objects."""
    own = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("LIBDIR") or ""]
    system = ["/lib", "/lib64", "/usr/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache", *DEVICES]
    return sorted({p for p in (*own, *system) if p and os.path.exists(p)})


# --- one fork

@dataclass
class Running:
    """A fork, and what the process that forked it knows of it."""

    id: int
    pid: int
    folder: str
    output: int                      # read end of its output
    ready: int                       # read end: one byte arrives after the last layer is taken
    until: float
    began: float
    text: bytearray = field(default_factory=bytearray)
    size: int = 0                    # bytes that it wrote, kept or not
    ended: str = ""                  # why it was ended from outside
    status: int | None = None


class Server:
    """Forks once for each request, watches the forks, and answers."""

    def __init__(self, config: dict[str, Any]):
        self.limits: dict[str, float] = config["limits"]
        self.without: frozenset[str] = frozenset(config["without"])
        self.at_once: int = config["at_once"]
        self.abi = min(landlock_abi(), config["abi"]) if config["abi"] else landlock_abi()
        self.filter = b"" if "seccomp" in self.without else packed(program(platform.machine()))
        self.paths = library_paths()
        self.control = socket.socket(fileno=config["control"])
        self.waiting: list[dict[str, Any]] = []
        self.forks: dict[int, Running] = {}          # by pid
        self.buffer = b""
        self.select = selectors.DefaultSelector()
        self.wake, wakened = os.pipe()
        for end in (self.wake, wakened):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
        self.select.register(self.control, selectors.EVENT_READ)
        self.select.register(self.wake, selectors.EVENT_READ)

    def hold(self) -> dict[str, Any]:
        """Take every layer once in a fork that runs nothing, and return what holds. Raises Missing if one does not."""
        if "landlock" not in self.without and self.abi < 1:
            raise Missing("this kernel has no Landlock (Linux 5.13 or newer, enabled at boot)")
        left = [] if "namespaces" in self.without else namespaces()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                self.confine(os.getcwd())
                os.write(write, b"ok")
            except BaseException as error:
                os.write(write, str(error).encode())
            os._exit(0)
        os.close(write)
        said = os.read(read, 1000).decode()
        os.close(read)
        os.waitpid(pid, 0)
        if said != "ok":
            raise Missing(said or "a fork ended while it took its layers")
        return {
            "landlock": 0 if "landlock" in self.without else self.abi, "seccomp": "seccomp" not in self.without,
            "capabilities": "capabilities" not in self.without, "limits": "limits" not in self.without,
            "namespaces": left, "processor": platform.machine(), "kernel": platform.release(),
        }

    def confine(self, folder: str) -> None:
        """Take every layer."""
        if "limits" not in self.without:
            limit(self.limits)
        if self.without >= {"landlock", "seccomp", "capabilities"}:
            return
        no_new_privileges()
        if "landlock" not in self.without:
            landlock(self.paths, folder, self.abi)
        if "capabilities" not in self.without:
            drop_privileges()
        if "seccomp" not in self.without:
            seccomp(self.filter)

    def serve(self) -> None:
        """Until the other side closes its end."""
        while True:
            while self.waiting and len(self.forks) < self.at_once:
                self.fork(self.waiting.pop(0))
            wait = None
            if self.forks:
                wait = max(0.0, min(min(r.until for r in self.forks.values()) - time.monotonic(), TICK))
            for key, _ in self.select.select(wait):
                if key.fileobj is self.control:
                    if not self.take():
                        return
                elif key.fd == self.wake:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake, 4096)
                else:
                    self.read(key.data)
            self.watch()
            self.reap()

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
            for running in self.forks.values():
                if running.id == request["cancel"]:
                    self.end(running, "cancelled")
        return bool(got)

    def fork(self, request: dict[str, Any]) -> None:
        output, write = os.pipe()
        ready, told = os.pipe()
        os.set_blocking(output, False)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = self.child(request, write, told, parent)
            finally:
                os._exit(code)
        os.close(write)
        os.close(told)
        now = time.monotonic()
        running = Running(request["id"], pid, request["folder"], output, ready, now + self.limits["wall"], now)
        self.forks[pid] = running
        self.select.register(output, selectors.EVENT_READ, running)

    def child(self, request: dict[str, Any], write: int, told: int, parent: int) -> int:
        """Take the layers, say so, run the code. Returns an exit status."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        if platform.system() == "Linux":
            _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                return 70
        nothing = os.open("/dev/null", os.O_RDONLY)
        told_copy = os.dup2(told, 100)
        os.dup2(write, 101)
        for at, end in ((0, nothing), (1, 101), (2, 101), (3, told_copy)):
            os.dup2(end, at)
        os.closerange(4, 1 << 16)
        folder = request["folder"]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update({**ENVIRONMENT, "HOME": folder, "TMPDIR": folder})
        random.seed(request["seed"])
        self.select = self.control = None        # type: ignore[assignment]  # their descriptors are closed
        self.confine(folder)
        os.write(3, b"1")
        os.close(3)
        return run(request["code"])

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
            elif "limits" not in self.without and now - running.began > TICK:
                self.measure(running)

    def measure(self, running: Running) -> None:
        size, count = used(running.folder, int(self.limits["files"]))
        if size > self.limits["disk"] or count > self.limits["files"]:
            self.end(running, "disk")

    def end(self, running: Running, why: str) -> None:
        running.ended = running.ended or why
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)

    def reap(self) -> None:
        while self.forks:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            running = self.forks.pop(pid, None)
            if running is not None:
                if "seccomp" in self.without:           # it may have started processes
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                self.answer(running, os.waitstatus_to_exitcode(status))

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
        if not running.ended and "limits" not in self.without:
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


def used(folder: str, most: int) -> tuple[int, int]:
    """(bytes, entries) below a folder; stops counting beyond `most` entries. Follows no link."""
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
        except OSError:
            continue
    return size, count


def run(code: str) -> int:
    """Run a program as a notebook does: the value of a last expression is printed. Returns 0, 1 (error), 2 (memory)."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    status = 0
    try:
        tree = ast.parse(code, "<tool>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<tool>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<tool>", "eval"), names)
            if value is not None:
                print(repr(value))
    except SystemExit as stop:
        status = 0 if stop.code in (None, 0) else 1
    except MemoryError:
        names.clear()
        gc.collect()
        status = 2
        print("MemoryError")
    except BaseException as error:
        status = 1
        print(described(error))
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = status or 1
    return status


def described(error: BaseException) -> str:
    """The kind and message of an error, and the line of the program that it comes from."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} (line {error.lineno})"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == "<tool>"]
    said = "".join(traceback.format_exception_only(type(error), error)).strip()[:2000]
    return f"{said} (line {lines[-1]})" if lines else said


def main() -> None:
    """Say which layers hold, then serve. The first line is `{"layers": ..}`, or `{"missing": why}`."""
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)         # the other side decides when this process ends
    config = json.loads(sys.argv[1])
    control = socket.socket(fileno=os.dup(config["control"]))
    try:
        server = Server(config)
        first = {"layers": server.hold()}
    except (Missing, OSError) as error:
        control.sendall(json.dumps({"missing": str(error)}).encode() + b"\n")
        return
    control.sendall(json.dumps(first).encode() + b"\n")
    control.close()
    server.serve()
    for running in server.forks.values():       # the other side has died: nobody else removes what is left
        server.end(running, "cancelled")
    shutil.rmtree(os.getcwd(), ignore_errors=True)


if __name__ == "__main__":
    main()
