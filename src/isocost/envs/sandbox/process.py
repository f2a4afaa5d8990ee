"""The process that untrusted Python is forked from, and what each fork gives up before it runs a line of it.

It is started as a program of its own by `sandbox_server` (`python -S -s -P -B sandbox_process.py CONFIG`) with the
standard library alone, so that neither torch nor a key of the user is in its memory. It forks once for each order, and
a fork reads its program by itself: programs and outputs are never in this process, so that none of another episode is
in a fork's copy of the memory.

Layers, in the order in which a fork takes them. None can be undone, and none needs root:

1. limits: `setrlimit` on address space, CPU time, file size, descriptors, processes, core files. Wall time, disk space
   and the number of files are watched by the server.
2. capabilities: all dropped, and `PR_SET_NO_NEW_PRIVS`.
3. landlock: files of the interpreter may be read, one folder may be written, nothing else opened (kernel 5.13).
4. seccomp: a list of the system calls that Python needs (`sandbox_filter`). Any other answers EPERM: sockets,
   processes, signals to others, changes of mode, owner and time (which Landlock does not cover), memory outside the
   address space.
5. namespaces, where the kernel gives them: no network device, no shared System V memory, and a file system in memory
   for each folder, whose size the kernel limits. Not required; taken by the server.

Source: landlock(7), Documentation/userspace-api/landlock.rst of Linux.
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
import select
import signal
import socket
import struct
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

LAYERS = ("limits", "capabilities", "landlock", "seccomp")
LOADED = (                  # what small programs import, loaded once before any fork
    "bisect", "cmath", "collections", "copy", "datetime", "decimal", "fractions", "functools", "heapq", "itertools",
    "math", "operator", "re", "sqlite3", "statistics", "string", "textwrap",
)
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TZ": "UTC", "LANG": "C.UTF-8", "PATH": ""}


class MissingLayer(RuntimeError):
    """This kernel does not have a layer."""


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
        raise MissingLayer(f"{what}: {os.strerror(ctypes.get_errno())}")
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


def library_paths() -> list[str]:
    """The folders that the interpreter needs to read: its library, and shared objects."""
    own = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("LIBDIR") or ""]
    system = ["/lib", "/lib64", "/usr/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache", *DEVICES]
    return sorted({p for p in (*own, *system) if p and os.path.exists(p)})


@dataclass(frozen=True)
class Layers:
    """What every fork takes."""

    limits: dict[str, float]
    without: frozenset[str]
    abi: int                         # of Landlock
    filter: bytes                    # packed, see `isocost.envs.sandbox.filter`
    paths: list[str]                 # that may be read

    @staticmethod
    def of(config: dict[str, Any]) -> Layers:
        abi = min(landlock_abi(), config["abi"]) if config["abi"] else landlock_abi()
        return Layers(config["limits"], frozenset(config["without"]), abi, bytes.fromhex(config["filter"]),
                      library_paths())

    def hold(self) -> dict[str, Any]:
        """Take every layer once in a fork that runs nothing, and return what holds. Raises Missing if one does not."""
        if "landlock" not in self.without and self.abi < 1:
            raise MissingLayer("this kernel has no Landlock (Linux 5.13 or newer, enabled at boot)")
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
            raise MissingLayer(said or "a fork ended while it took its layers")
        return {
            "landlock": 0 if "landlock" in self.without else self.abi, "seccomp": "seccomp" not in self.without,
            "capabilities": "capabilities" not in self.without, "limits": "limits" not in self.without,
            "processor": platform.machine(), "kernel": platform.release(),
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


# --- the process that forks

ORDER, NEWS = struct.Struct("<ci"), struct.Struct("<cii")       # (what, id), and (what, id, process or exit status)


def die_with(parent: int) -> bool:
    """End this process with its parent; whether the parent is still there."""
    if platform.system() == "Linux":
        _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    return os.getppid() == parent


class Forks:
    """Forks for each order, ends and reaps forks, and knows of each its number alone."""

    def __init__(self, layers: Layers, orders: socket.socket):
        self.layers, self.orders = layers, orders
        self.pids: dict[int, int] = {}               # by id
        self.wake, wakened = os.pipe()
        for end in (self.wake, wakened):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the server closes its end."""
        while True:
            ready = select.select([self.orders.fileno(), self.wake], [], [])[0]
            if self.wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 4096)
            if self.orders.fileno() in ready:
                order, ends, _, _ = socket.recv_fds(self.orders, ORDER.size, 3)
                if len(order) < ORDER.size:
                    return
                what, number = ORDER.unpack(order)
                if what == b"f":
                    self.fork(number, ends)
                else:
                    self.kill(self.pids.get(number))
            self.reap()

    def fork(self, number: int, ends: list[int]) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                code = self.child(*ends) if die_with(parent) else 70
            finally:
                os._exit(code)
        for end in ends:
            os.close(end)
        self.pids[number] = pid
        self.orders.sendall(NEWS.pack(b"f", number, pid))

    def child(self, asked: int, write: int, told: int) -> int:
        """Take the layers, say so, run the code. Returns an exit status."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDONLY)
        kept = {100: asked, 101: write, 102: told}
        for at, end in kept.items():
            os.dup2(end, at)
        for at, end in ((0, nothing), (1, 101), (2, 101), (3, 102), (4, 100)):
            os.dup2(end, at)
        os.closerange(5, 1 << 16)
        self.orders.detach()                         # its descriptor is closed
        with open(4) as file:
            request = json.load(file)
        folder = request["folder"]
        os.chdir(folder)
        os.environ.clear()
        os.environ.update({**ENVIRONMENT, "HOME": folder, "TMPDIR": folder})
        random.seed(request["seed"])
        self.layers.confine(folder)
        os.write(3, b"1")
        os.close(3)
        return run(request["code"])

    def kill(self, pid: int | None) -> None:
        """A fork and what it started; nothing once it is reaped, when another process may have its number."""
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def reap(self) -> None:
        while self.pids:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            (number,) = [n for n, p in self.pids.items() if p == pid]
            del self.pids[number]
            if "seccomp" in self.layers.without:            # it may have started processes
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            self.orders.sendall(NEWS.pack(b"e", number, os.waitstatus_to_exitcode(status)))


# --- a program

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
    orders, layers = socket.socket(fileno=config["orders"]), Layers.of(config)
    if not die_with(config["server"]):
        return
    try:
        first: dict[str, Any] = {"layers": layers.hold()}
    except (MissingLayer, OSError) as error:
        first = {"missing": str(error)}
    orders.sendall(json.dumps(first).encode() + b"\n")
    forks = Forks(layers, orders)
    forks.serve()
    for pid in forks.pids.values():
        forks.kill(pid)


if __name__ == "__main__":
    main()
